"""What the checker makes of a good file: every field of the workflow, worked out by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from gmiflow.hardware import GPU, Hardware
from gmiflow.ir.workflow import RecordType, Sizing, TensorType, WeightsType
from gmiflow.passes.check import check

ROOT = Path(__file__).parents[2]

STAGES = """edition 1

import std.tasks.ant
import std.algo.ppo
import std.targets

simulator sim     = ant.Ant()
agent     actor   = ppo.Actor(hidden = [64])
trainer   learner = ppo.Learner(lr = 1)
"""

EDGES = """
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights
"""


def program(settings="mode = sync, num_env = 1024, horizon = 16", *, before="", after="", edges=EDGES):
    return f"{STAGES}{before}\nworkflow train {{\n  {settings}\n{edges}}}\n{after}"


def good(text, **options):
    result = check("test.gmi", text=text, **options)
    assert result.diagnostics == ()
    return result.workflow


def codes(text, **options):
    return [d.code for d in check("test.gmi", text=text, **options).diagnostics]


def tensor(dtype, *shape):
    return TensorType(dtype=dtype, shape=shape)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.gmi")), ids=lambda path: path.stem)
def test_examples_are_well_formed(path):
    result = check(str(path))
    assert result.diagnostics == ()
    assert result.workflow.components


@pytest.mark.parametrize("path", sorted((ROOT / "stdlib").rglob("*.gmi")), ids=lambda path: path.stem)
def test_standard_library_is_well_formed(path):
    result = check(str(path))
    assert result.diagnostics == ()
    assert result.workflow is None


def test_defaults():
    workflow = good(program())
    assert (workflow.name, workflow.file, workflow.mode, workflow.max_staleness) == ("train", "test.gmi", "sync", 0)
    assert (workflow.num_env, workflow.horizon, workflow.seed) == (1024, 16, 0)
    assert (workflow.iterations, workflow.checkpoint_every) == (100, 50)
    assert (workflow.precision, workflow.execution, workflow.on_failure, workflow.gmi) == ("f32", "auto", "stop", None)
    assert workflow.sizing == Sizing(objective="throughput", batch="fixed")
    assert (workflow.target.name, workflow.target.device, workflow.target.devices) == ("detected", "cpu", 1)
    assert len(workflow.sha256) == 64


def test_all_settings():
    settings = """mode = async { max_staleness = 2 }
  num_env = auto
  horizon = 8 * 2
  iterations = 7
  checkpoint_every = 0
  seed = 3
  precision = tf32
  execution = overlap
  on_failure = restart
  gmi = py "gmiflow.api:Simulator"
  sizing { objective = time_to_reward, batch = free }
  place { learner = devices(0), sim = devices(0, 1) }"""
    workflow = good(program(settings, after="target two { base = targets.h200(gpus = 2) }\n"))
    assert (workflow.mode, workflow.max_staleness, workflow.num_env, workflow.horizon) == ("async", 2, "auto", 16)
    assert (workflow.iterations, workflow.checkpoint_every, workflow.seed) == (7, 0, 3)
    assert (workflow.precision, workflow.execution, workflow.on_failure) == ("tf32", "overlap", "restart")
    assert workflow.gmi == "gmiflow.api:Simulator"
    assert workflow.sizing == Sizing(objective="time_to_reward", batch="free")
    component = workflow.components[0]
    assert component.stage("trainer").place == (0,)
    assert component.stage("simulator").place == (0, 1)
    assert component.stage("agent").place is None


def test_stages_and_ports():
    component = good(program()).components[0]
    assert (component.name, component.seed) == ("train", 0)
    sim, actor, learner = component.stages
    assert (sim.role, sim.name, sim.type_name, sim.entry) == ("simulator", "sim", "ant.Ant", "gmiflow.tasks.ant:Ant")
    assert sim.params == (("engine", "auto"),)
    assert sim.shapes == ()
    assert sim.span.line == 7
    assert sim.port("action").type == tensor("f32", "env", 8)
    assert sim.port("action").range == (-1.0, 1.0)
    assert sim.port("obs").type == tensor("f32", "env", 60)
    assert dict(actor.params)["hidden"] == (64,)
    assert dict(actor.params)["init_log_std"] == 0.0
    assert actor.shapes == (("A", 8), ("O", 60))
    assert actor.port("action").type == tensor("f32", "env", 8)
    assert isinstance(actor.port("weights").type, WeightsType)
    assert dict(learner.params)["lr"] == 1.0
    assert isinstance(dict(learner.params)["lr"], float)
    assert learner.shapes == (("A", 8), ("O", 60))
    assert learner.port("experience").type == RecordType(
        name="Experience",
        fields=(
            ("obs", tensor("f32", "time", "env", 60)),
            ("action", tensor("f32", "time", "env", 8)),
            ("log_prob", tensor("f32", "time", "env")),
            ("mean", tensor("f32", "time", "env", 8)),
            ("std", tensor("f32", "time", "env", 8)),
            ("value", tensor("f32", "time", "env")),
        ),
    )


def test_edges_are_lifted_over_time():
    edges = good(program()).components[0].edges
    found = {f"{e.source_stage}.{e.source_port} -> {e.target_stage}.{e.target_port}": e for e in edges}
    lifted = {name: edge.lift for name, edge in found.items()}
    assert lifted == {
        "sim.obs -> actor.obs": False,
        "actor.action -> sim.action": False,
        "actor.experience -> learner.experience": True,
        "actor.bootstrap -> learner.bootstrap": False,
        "sim.reward -> learner.reward": True,
        "sim.terminated -> learner.terminated": True,
        "sim.truncated -> learner.truncated": True,
        "learner.weights -> actor.weights": False,
    }
    assert found["sim.reward -> learner.reward"].type == tensor("f32", "env")
    assert dict(found["actor.experience -> learner.experience"].type.fields)["obs"] == tensor("f32", "env", 60)
    assert all(edge.depth == 1 and edge.on_full == "block" for edge in edges)


def test_edge_attributes():
    edges = EDGES.replace("learner.experience\n", "learner.experience { depth = 2, on_full = drop_oldest }\n")
    workflow = good(program("mode = async { max_staleness = 1 }, num_env = 64, horizon = 4", edges=edges))
    edge = next(e for e in workflow.components[0].edges if e.source_port == "experience")
    assert (edge.depth, edge.on_full) == (2, "drop_oldest")


def test_replicas_and_independent_trainings():
    two = """
simulator sim_b     = ant.Ant()
agent     actor_b   = ppo.Actor()
trainer   learner_b = ppo.Learner()
"""
    renamed = EDGES.replace("sim.", "sim_b.").replace("actor.", "actor_b.").replace("learner", "learner_b")
    settings = "mode = sync, num_env = 64, horizon = 16, seed = 5, replicas = {}"
    one_three = good(program(settings.format(3))).components
    assert [(c.name, c.seed) for c in one_three] == [("train.0", 5), ("train.1", 6), ("train.2", 7)]
    both = good(program(settings.format(1), before=two, edges=EDGES + renamed)).components
    assert [(c.name, c.seed) for c in both] == [("train.sim", 5), ("train.sim_b", 5)]
    assert [s.name for s in both[1].stages] == ["sim_b", "actor_b", "learner_b"]
    assert {e.source_stage for e in both[0].edges} == {"sim", "actor", "learner"}
    four = good(program(settings.format(2), before=two, edges=EDGES + renamed)).components
    assert [c.name for c in four] == ["train.sim.0", "train.sim.1", "train.sim_b.0", "train.sim_b.1"]


def test_serving_needs_no_trainer_and_no_weights():
    edges = "  sim.obs -> actor.obs\n  actor.action -> sim.action\n"
    component = good(program("mode = serve, num_env = 64", edges=edges)).components[0]
    assert component.stage("trainer") is None
    assert component.stage("agent").port("weights").optional


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("1 + 2 * 3", "int", 7),
        ("7 / 2", "float", 3.5),
        ("8 / 2", "int", 4),
        ("floor(7 / 2)", "int", 3),
        ("ceil(7 / 2)", "int", 4),
        ("log2(8)", "float", 3.0),
        ("min(3, 1, 2)", "int", 1),
        ("max(1, 2.5)", "float", 2.5),
        ("-(2 - 5)", "int", 3),
        ("2", "float", 2.0),
        ("1 < 2 && !(3 <= 2) || false", "bool", True),
        ("true == false", "bool", False),
        ('"a" != "b"', "bool", True),
        ("false && 1 / 0 > 1", "bool", False),
        ("4 GiB", "bytes", 4294967296),
        ("1.5 KiB + 512 B", "bytes", 2048),
        ("2 * 3 MiB", "bytes", 6291456),
        ("50 % * 4 GiB", "bytes", 2147483648),
        ("250 us", "seconds", 0.00025),
        ("2 min", "seconds", 120.0),
        ("3 kHz", "hertz", 3000.0),
        ("12.5 %", "fraction", 0.125),
        ("0.5", "fraction", 0.5),
        ("25 %", "float", 0.25),
        ("2 GB/s", "bytes_per_second", 2e9),
        ("6 GiB / 2 GiB", "float", 3.0),
        ("[1, 2, 3]", "list(int)", (1, 2, 3)),
        ("[1, 2]", "list(float)", (1.0, 2.0)),
        ("[[1], []]", "list(list(int))", ((1,), ())),
        ("[]", "list(string)", ()),
        ("fast", "enum(slow, fast)", "fast"),
        ("auto", "enum(auto, fast)", "auto"),
        ("auto", "auto int", "auto"),
        ("3", "auto float", 3.0),
        ("other * 2", "int", 20),
        ('"é\\n\\""', "string", 'é\n"'),
    ],
)
def test_values(expression, kind, expected):
    workflow = good(program(before=f"param x : {kind} = {expression}\nparam other : int = 10\n"))
    value = dict((name, value) for name, value, _ in workflow.params)["x"]
    assert value == expected
    assert type(value) is type(expected)


def test_an_enum_member_hides_a_name_in_scope():
    before = "param fast : enum(a, b) = b\nparam x : enum(slow, fast) = fast\nparam y : enum(a, b) = fast\n"
    values = {name: value for name, value, _ in good(program(before=before)).params}
    assert values == {"fast": "b", "x": "fast", "y": "b"}


@pytest.mark.parametrize("relation", ["==", "!="])
def test_enums_compare_with_their_members(relation):
    before = (
        f'param x : enum(slow, fast) = fast\nrequire (x {relation} fast) == {str(relation == "==").lower()} else "no"\n'
    )
    good(program(before=before))


def test_where_waits_for_a_concrete_value():
    good(program(before="param n : auto int = auto where n >= 64\n"))
    assert codes(program(before="param n : auto int = 32 where n >= 64\n")) == ["E0401"]
    assert codes(program(before="param n : auto int = auto\nparam m : int = n * 2\n")) == ["E0307"]


def test_parameters_of_a_stage_type_size_its_ports():
    before = """simulator Box(n : int = 2, m : int = n * 3) {
  entry = py "gmiflow.tasks.ant:Ant"
  needs { memory = 1 GiB, cores = 2 }
  in  action     : f32[env, n] range -1 .. 1
  out obs        : f32[env, m, 2]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}
agent Flat {
  entry = py "gmiflow.rl.ppo:Actor"
  in  obs    : f32[env, H, W]
  out action : f32[env, A]
}
simulator box  = Box(n = 4)
agent     flat = Flat()
"""
    edges = "  box.obs -> flat.obs\n  flat.action -> box.action\n"
    box, flat = good(program("mode = serve, num_env = 8", before=before, edges=edges)).components[0].stages
    assert box.params == (("n", 4), ("m", 12))
    assert box.port("obs").type == tensor("f32", "env", 12, 2)
    assert box.needs == (("memory", 2**30), ("cores", 2))
    assert flat.shapes == (("A", 4), ("H", 12), ("W", 2))


HOSTED = """
simulator Hosted {
  entry = py "only_there.tasks:Task"
  in  action     : f32[env, 8] range -1 .. 1
  out obs        : f32[env, 60]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}
"""


def test_a_foreign_python_for_a_simulator():
    text = program(before=HOSTED).replace("ant.Ant()", 'Hosted() { python = "/opt/py38/bin/python" }')
    assert good(text).components[0].stages[0].python == "/opt/py38/bin/python"
    assert codes(program().replace("hidden = [64])", 'hidden = [64]) { python = "/x" }')) == ["E0209"]
    assert codes(text.replace(' { python = "/opt/py38/bin/python" }', "")) == ["E0212"]  # it is not here
    # What ships with gmiflow and takes torch tensors runs here.
    assert codes(program().replace("ant.Ant()", 'ant.Ant() { python = "/x" }')) == ["E0214"]


HOSTED_CLASS = """
class Task:
    def __init__(self, size=3):
        pass
    def setup(self, context):
        pass
    def reset(self):
        return {}
    def step(self, inputs):
        return {}
"""


@pytest.mark.parametrize(
    ("old", "new", "there", "here"),
    [
        ("", "", [], ["E0214"]),  # fit for another interpreter only
        ("step", "advance", ["E0214"], ["E0214"]),
        ("size=3", "size", ["E0214"], ["E0214", "E0214"]),
        ("class Task", "class Tasks", ["E0213"], ["E0213"]),
        ("\nclass Task", "from gmiflow.api import Simulator\nclass Task(Simulator)", ["E0214"], []),
    ],
)
def test_a_class_beside_the_file_is_looked_at(tmp_path, old, new, there, here):
    (tmp_path / "tasks.py").write_text(HOSTED_CLASS.replace(old, new, 1) if old else HOSTED_CLASS)
    text = program(before=HOSTED.replace("only_there.", "")).replace("ant.Ant()", "Hosted()")
    path = tmp_path / "test.gmi"
    path.write_text(text.replace("Hosted()", 'Hosted() { python = "/x" }'))
    assert [d.code for d in check(str(path)).diagnostics] == there
    path.write_text(text)
    assert [d.code for d in check(str(path)).diagnostics] == here


def test_a_type_for_another_interpreter_may_stand_alone(tmp_path):
    (tmp_path / "tasks.py").write_text(HOSTED_CLASS)
    path = tmp_path / "test.gmi"
    path.write_text("edition 1\n" + HOSTED.replace("only_there.", ""))
    assert check(str(path)).diagnostics == ()


def test_imports(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "nets.gmi").write_text('edition 1\nimport "../base.gmi"\nparam size : int = base.size * 2\n')
    (tmp_path / "base.gmi").write_text("edition 1\nparam size : int = 8\n")
    main = tmp_path / "main.gmi"
    main.write_text(program(before='import "./lib/nets.gmi" as nets\nparam n : int = nets.size\n'))
    result = check(str(main))
    assert result.diagnostics == ()
    assert result.workflow.params == (("n", 16, "default"),)
    assert [Path(s.name).name for s in result.sources] == [
        "main.gmi",
        "ant.gmi",
        "ppo.gmi",
        "targets.gmi",
        "nets.gmi",
        "base.gmi",
    ]


def test_a_module_is_reported_once(tmp_path):
    (tmp_path / "bad.gmi").write_text("edition 1\nparam a : int = ;\n")
    (tmp_path / "also.gmi").write_text('edition 1\nimport "./bad.gmi"\n')
    main = tmp_path / "main.gmi"
    main.write_text('edition 1\nimport "./bad.gmi"\nimport "./also.gmi"\nparam b : int = bad.a + 1\n')
    (found,) = check(str(main)).diagnostics
    assert found.code == "E0115"
    assert found.span.source.name.endswith("bad.gmi")


def test_imports_too_deep(tmp_path):
    for index in range(40):
        (tmp_path / f"m{index}.gmi").write_text(f'edition 1\nimport "./m{index + 1}.gmi"\n')
    (tmp_path / "m40.gmi").write_text("edition 1\n")
    assert [d.code for d in check(str(tmp_path / "m0.gmi")).diagnostics] == ["E0205"]
    assert check(str(tmp_path / "m20.gmi")).diagnostics == ()


@pytest.mark.parametrize(
    ("content", "code"), [(b"\x00\x01", "E0105"), (b"\xff\xfe", "E0105"), (b"/" * (4 * 2**20 + 1), "E0106")]
)
def test_unreadable_files(tmp_path, content, code):
    path = tmp_path / "x.gmi"
    path.write_bytes(content)
    assert [d.code for d in check(str(path)).diagnostics] == [code]
    assert [d.code for d in check(str(tmp_path / "none.gmi")).diagnostics] == ["E0105"]
    assert [d.code for d in check(str(tmp_path)).diagnostics] == ["E0105"]


def test_target_fields():
    after = """target lab(n : int = 2) {
  base        = targets.h200(gpus = n)
  backend     = mps
  gmi_per_gpu = 4
  mapping     = dp_only
  reserve     = 4 GiB
}
"""
    target = good(program(after=after)).target
    assert (target.name, target.device, target.devices, target.gpu) == ("lab", "cuda", 2, "NVIDIA H200")
    assert (target.sm_count, target.memory_bytes, target.reserve_bytes) == (132, 143771 * 2**20, 4 * 2**30)
    assert (target.backend, target.gmi_per_gpu, target.mapping) == ("mps", 4, "dp_only")


def test_choice_of_target():
    gpu = GPU(index=0, uuid="GPU-0", name="NVIDIA L4", sm_count=58, memory_bytes=24 * 2**30, mig=False)
    machine = Hardware(cores=8, gpus=(gpu, gpu))
    assert good(program()).target.device == "cpu"
    found = good(program(), hardware=machine).target
    assert (found.name, found.device, found.devices, found.gpu) == ("detected", "cuda", 2, "NVIDIA L4")
    assert (found.sm_count, found.memory_bytes) == (58, 24 * 2**30)
    mine = good(program(after="target mine { gmi_per_gpu = 2 }\n"), hardware=machine, target="mine").target
    assert (mine.name, mine.device, mine.gmi_per_gpu) == ("mine", "cuda", 2)
    assert good(program(), target="cpu", hardware=machine).target.device == "cpu"
    assert good(program(), target="h100").target.sm_count == 132
    assert good(program(), target="h100(gpus = 4)").target.devices == 4
    assert good(program(), target="targets.a100").target.sm_count == 108
    assert codes(program(), target="h1000") == ["E0208"]
    assert codes(program(), target="sim") == ["E0208"]
    assert codes(program(after="target a { gmi_per_gpu = 1 }\ntarget b { gmi_per_gpu = 1 }\n")) == ["E0208"]


def test_choice_of_workflow():
    other = "workflow other {\n  mode = sync, num_env = 64, horizon = 8\n" + EDGES + "}\n"
    assert good(program(after=other)).name == "train"
    assert good(program(after=other), workflow="other").horizon == 8
    assert codes(program(after=other), workflow="othr") == ["E0208"]
    assert codes(STAGES) == []
    assert codes(STAGES, require_workflow=True) == ["E0208"]


def test_a_mistake_in_a_workflow_that_is_not_chosen_is_found():
    other = (
        "workflow other {\n  mode = sync, num_env = 64, horizon = 8\n" + EDGES.replace("actor.obs", "actor.obz") + "}\n"
    )
    assert codes(program(after=other)) == ["E0211"]


@pytest.mark.parametrize(
    ("settings", "gmi_per_gpu", "expected"),
    [
        ("num_env = 1024", 3, ["W0502"]),  # 64 strata of 16 over 3 GMIs
        ("num_env = 1024", 4, []),
        ("num_env = 1008", 9, []),  # 63 strata
        ("num_env = 10", 3, ["W0502"]),  # 5 strata of 2
        ("num_env = 32", 4, []),  # fewer strata than GMIs: sizing refuses
        ("num_env = auto", 3, []),
    ],
)
def test_uneven_shards_are_stated(settings, gmi_per_gpu, expected):
    after = f"target box {{ gmi_per_gpu = {gmi_per_gpu} }}\n"
    text = program(f"mode = sync, horizon = 16, {settings}", after=after)
    result = check("test.gmi", text=text)
    assert [d.code for d in result.diagnostics] == expected
    assert result.workflow is not None


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ("agents = 3", ["1024 environments do not divide evenly over 3 agents"]),  # 64 strata; one trainer has all
        ("agents = 4, trainers = 3", ["1024 environments do not divide evenly over 3 trainers"]),
        ("agents = 4, trainers = 2", []),  # six GMIs, but none shares with the other group
        ("gmi_per_gpu = 4", ["1024 environments do not divide evenly over 3 agents"]),
        ("gmi_per_gpu = 4, agents = 2", []),
        ("trainers = 3", []),  # sizing decides the agents
    ],
)
def test_agents_and_trainers_share_the_environments_each_among_themselves(numbers, said):
    text = program("mode = sync, horizon = 16, num_env = 1024", after=f"target box {{ mapping = ea_t, {numbers} }}\n")
    assert [d.message for d in check("test.gmi", text=text).diagnostics] == said


@pytest.mark.parametrize(
    ("num_env", "horizon", "minibatches", "ok"),
    [
        (1024, 16, 4, True),
        (1024, 16, 3, False),
        (1024, 3, 3, True),
        (10, 3, 4, False),
        (10, 4, 8, True),
        ("auto", 1, 16, True),
    ],
)
def test_minibatches_divide_a_stratum(num_env, horizon, minibatches, ok):
    text = program(f"mode = sync, num_env = {num_env}, horizon = {horizon}")
    text = text.replace("lr = 1)", f"minibatches = {minibatches})")
    assert codes(text) == ([] if ok else ["E0411"])


def test_a_node_of_an_import_chain_that_is_missing_is_silent_afterwards():
    text = "edition 1\nimport std.tasks.antt\nsimulator sim = antt.Ant()\nparam a : int = antt.b\n"
    assert codes(text) == ["E0203"]


def test_nothing_heavy_is_imported():
    """Checking loads neither torch nor a simulator, although it looks into Python files that do."""
    code = (
        "import sys; from gmiflow.passes.check import check; "
        f"assert check({str(ROOT / 'examples' / 'ant.gmi')!r}).workflow; "
        "print([m for m in ('torch', 'mujoco', 'numpy', 'warp', 'gmiflow.rl', 'gmiflow.tasks') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_result_is_the_same_every_time():
    path = str(ROOT / "examples" / "ant.gmi")
    assert check(path) == check(path)
