"""`--set`: paths, types, candidates."""

import pytest
from test_check import EDGES, program

from gmiflow.passes.check import check

BEFORE = 'param size : int = 4 where size >= 2\nparam label : string = "a"\nparam engine : enum(fast, slow) = fast\n'
AFTER = "workflow other {\n  mode = sync, num_env = 64, horizon = 8\n" + EDGES + "}\n"
TEXT = program("mode = sync, num_env = 1024, horizon = size * 4", before=BEFORE, after=AFTER)


def run(*pairs, **options):
    return check("test.gmi", text=TEXT, overrides=pairs, **options)


def value(workflow, name):
    return next(v for n, v, _ in workflow.params if n == name)


def test_parameters():
    workflow = run(("size", "2 + 3"), ("engine", "slow"), ("label", "two words")).workflow
    assert workflow.params == (("size", 5, "--set"), ("label", "two words", "--set"), ("engine", "slow", "--set"))
    assert workflow.horizon == 20
    assert value(run(("label", '"quoted"')).workflow, "label") == "quoted"
    assert value(run(("size", "3"), ("size", "8")).workflow, "size") == 8


def test_settings_of_workflows_targets_and_stages():
    workflow = run(
        ("train.horizon", "32"), ("workflow.num_env", "auto"), ("train.execution", "eager"), ("other.horizon", "9"),
        ("train.objective", "time_to_reward"), ("target.gmi_per_gpu", "2"), ("target.mapping", "dp_only"),
        ("learner.lr", "5e-4"), ("target.memory", "8 GiB"),
    ).workflow  # fmt: skip
    assert (workflow.horizon, workflow.num_env, workflow.execution) == (32, "auto", "eager")
    assert workflow.sizing.objective == "time_to_reward"
    assert (workflow.target.gmi_per_gpu, workflow.target.mapping, workflow.target.memory_bytes) == (2, "dp_only", 2**33)
    assert dict(workflow.components[0].stage("trainer").params)["lr"] == 5e-4
    assert run(("workflow.horizon", "9"), workflow="other").workflow.horizon == 9
    assert run(("other.horizon", "9")).workflow.horizon == 16


def test_mode_can_be_changed_with_its_setting():
    workflow = run(("train.mode", "async"), ("train.max_staleness", "1")).workflow
    assert (workflow.mode, workflow.max_staleness) == ("async", 1)


@pytest.mark.parametrize(
    ("path", "text", "code", "mentions"),
    [
        ("sise", "1", "E0215", "size"),
        ("horizon", "8", "E0215", "train.horizon"),
        ("horizon", "8", "E0215", "other.horizon"),
        ("gmi_per_gpu", "8", "E0215", "target.gmi_per_gpu"),
        ("train.horizn", "8", "E0215", "horizon"),
        ("target.gmi_per_gpus", "8", "E0215", "gmi_per_gpu"),
        ("trian.horizon", "8", "E0215", "train.horizon"),
        ("lr", "1e-3", "E0215", "learner.lr"),
        ("lerner.lr", "1e-3", "E0215", "learner.lr"),
        ("train.place.learner", "0", "E0215", "devices(learner_device)"),
        ("place.learner", "0", "E0215", "devices(learner_device)"),
        ("target.agent_share", "60", "E0408", "`60 %`"),
        ("a.b.c", "8", "E0215", ""),
        ("", "8", "E0215", ""),
        ("learner.learning_rate", "8", "E0215", "lr"),
        ("size", "1", "E0401", ""),
        ("size", "fast", "E0201", ""),
        ("size", "1.5", "E0301", ""),
        ("size", "", "E0101", ""),
        ("size", "1; 2", "E0101", ""),
        ("size", "(" * 200, "E0107", ""),
        ("train.horizon", "0", "E0408", ""),
        ("train.num_env", "true", "E0301", ""),
        ("engine", "fst", "E0301", "fast"),
        ("target.memory", "8 GB", "E0305", "GiB"),
    ],
)
def test_mistakes(path, text, code, mentions):
    result = run((path, text))
    assert {d.code for d in result.diagnostics} == {code}
    assert result.workflow is None
    said = " ".join([d.message for d in result.diagnostics] + [n for d in result.diagnostics for n in d.notes])
    assert mentions in said
    assert all(d.span is not None and d.span.source.name == f"--set {path}" for d in result.diagnostics)
