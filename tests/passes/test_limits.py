"""Limits of numbers, and values that could only fail after the start: what the checker says, and that it answers."""

from pathlib import Path

import pytest

from gmiflow.passes.check import CheckResult, check
from gmiflow.passes.slicing import cut
from gmiflow.pipeline import Options, compile_file

PROGRAM = """edition 1

import std.tasks.cartpole
import std.algo.ppo

simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner()

workflow train {
  mode = sync, num_env = 256, horizon = 16
  sim.obs -> actor.obs
  actor.action -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights -> actor.weights
}
"""
LARGEST = 2**63 - 1


def checked(*pairs: tuple[str, str], text: str = PROGRAM, folder: Path | None = None) -> CheckResult:
    return check(str((folder or Path()) / "limits.gmi"), text=text, overrides=pairs)


def errors(result: CheckResult) -> list[tuple[str, str]]:
    return [(d.code, d.message) for d in result.diagnostics if d.severity == "error"]


@pytest.mark.parametrize("number", [None, LARGEST])
@pytest.mark.parametrize(
    ("path", "limit", "shown"),
    [
        ("train.num_env", 2**31, "2,147,483,648"),
        ("train.horizon", 2**20, "1,048,576"),
        ("train.iterations", 2**62, "4,611,686,018,427,387,904"),
        ("train.checkpoint_every", 2**62, "4,611,686,018,427,387,904"),
        ("train.replicas", 1024, "1,024"),
        ("target.gmi_per_gpu", 256, "256"),
        ("target.devices", 1024, "1,024"),
        ("target.cores", 65536, "65,536"),
        ("target.sm_count", 65536, "65,536"),
    ],
)
def test_a_number_above_its_limit(path: str, limit: int, shown: str, number: int | None) -> None:
    wrong = number or limit + 1
    name = path.partition(".")[2]
    assert errors(checked((path, str(wrong)))) == [("E0408", f"`{name}` is at most {shown}, not {wrong}")]


def test_the_limits_themselves_are_legal() -> None:
    largest = [("num_env", 2**31), ("horizon", 2**20), ("iterations", 2**62), ("replicas", 1024)]
    result = checked(*((f"train.{name}", str(value)) for name, value in largest))
    assert errors(result) == []
    assert result.workflow is not None
    assert (result.workflow.num_env, result.workflow.horizon) == (2**31, 2**20)
    assert len(result.workflow.components) == 1024


def test_staleness_and_depth() -> None:
    stale = PROGRAM.replace("mode = sync", "mode = async { max_staleness = 1025 }")
    assert errors(checked(text=stale)) == [("E0408", "`max_staleness` is at most 1,024, not 1025")]
    legal = PROGRAM.replace("mode = sync", "mode = async { max_staleness = 1 }")
    deep = legal.replace("learner.experience\n", f"learner.experience {{ depth = {LARGEST} }}\n")
    assert errors(checked(text=deep)) == [("E0408", f"`depth` is at most 1,024, not {LARGEST}")]


def test_the_gmis_of_a_run() -> None:
    """Replicas, devices and GMIs of a device multiply: 17 x 256 and 4 x 8 x 256 are more than 4096; 16 x 256 is not."""
    assert errors(checked(("train.replicas", "17"), ("target.gmi_per_gpu", "256"))) == [
        ("E0408", "a run has at most 4,096 GMIs, not 4,352")
    ]
    eight = (("target.device", "cuda"), ("target.devices", "8"), ("target.gmi_per_gpu", "256"))
    assert errors(checked(("train.replicas", "4"), *eight)) == [("E0408", "a run has at most 4,096 GMIs, not 8,192")]
    assert errors(checked(("train.replicas", "16"), ("target.gmi_per_gpu", "256"))) == []


def test_a_run_at_the_limit_is_planned() -> None:
    overrides = (("train.replicas", "16"), ("target.gmi_per_gpu", "256"), ("train.num_env", "4096"))
    path = Path(__file__).parents[2] / "examples" / "quickstart.gmi"
    compilation = compile_file(str(path), Options(overrides=overrides), stop_after="plan")
    assert not compilation.failed
    assert compilation.plan is not None
    assert len(compilation.plan.gmis) == 4096


def test_a_cut_into_many_parts() -> None:
    parts = cut(100_001 * 16, 16, 100_000)
    assert parts[:3] == [(0, 32), (32, 16), (48, 16)]
    assert parts[-1] == (100_000 * 16, 16)


def test_nearest_minibatches_of_a_long_rollout() -> None:
    """2^20 steps of 16 environments are 2^24 samples, so the divisors are the powers of two."""
    (found,) = checked(("train.horizon", str(2**20)), ("learner.minibatches", "1000")).diagnostics
    assert (found.code, found.notes[1]) == ("E0411", "nearest legal numbers: minibatches = 512 or 1024")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("actor.hidden", "[0]"),
        ("actor.hidden", "[64, -1]"),
        ("actor.hidden", "[]"),
        ("actor.hidden", "[65537]"),
        ("actor.init_log_std", "1e9"),
        ("learner.lr", "0"),
        ("learner.lr", "-1e-3"),
        ("learner.lr", "1e30"),
        ("learner.epochs", "0"),
        ("learner.epochs", str(LARGEST)),
        ("learner.minibatches", "0"),
        ("learner.minibatches", str(LARGEST)),
    ],
)
def test_parameters_of_ppo_that_cannot_train(path: str, value: str) -> None:
    result = checked((path, value))
    assert [code for code, _ in errors(result)] == ["E0401"]
    assert result.diagnostics[0].span.source.name == f"--set {path}"


def test_hidden_layers_at_their_bounds() -> None:
    assert errors(checked(("actor.hidden", "[1, 65536]"))) == []


def test_memory_of_a_target() -> None:

    def on(memory: str, reserve: str) -> list[tuple[str, str]]:
        target = f"target gpu {{ device = cuda, memory = {memory}, reserve = {reserve} }}\n"
        return errors(checked(text=PROGRAM + target))

    assert on("0 B", "0 B") == [("E0408", "`memory` is at least 1, not 0")]
    for reserve in ("8 GiB", "9 GiB"):
        assert [code for code, _ in on("8 GiB", reserve)] == ["E0505"]
    assert on("8 GiB", "7 GiB") == []


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("min(sizes) == 2 && max(sizes) == 7", None),
        ("min(sizes) == 3", "E0401"),
        ("sizes == [7, 2]", None),
        ("sizes != []", None),
        ("sizes == [2, 7]", "E0401"),
        ("sizes == [7.0, 2.0]", "E0307"),
        ("min(words) == 1", "E0307"),
        ("max(none) == 1", "E0412"),
    ],
)
def test_conditions_on_lists(condition: str, code: str | None) -> None:
    lists = 'param words : list(string) = ["a"]\nparam none : list(int) = []\n'
    text = f"edition 1\n{lists}param sizes : list(int) = [7, 2] where {condition}\n"
    assert [found for found, _ in errors(checked(text=text))] == ([code] if code else [])


STAGE = 'edition 1\nsimulator Own {\n  entry = py "own_limits:Own"\n  out obs : f32[env, 4]\n}\n'
BODY = b"from gmiflow.api import Simulator\n\n\nclass Own(Simulator):\n"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (BODY + b"    def step(self:\n        pass\n", 5, ""),
        (BODY + b"    x = (1,\n", 5, "'(' was never closed"),
        (BODY + b"pass\n", 5, "expected an indented block after class definition on line 4"),
        (BODY + b"    x = 1\n    y = '\0'\n", 6, "it holds a NUL byte"),
        (BODY + b"    x = '\xff\xfe'\n", 5, "it is not UTF-8 text"),
        (b"\x00\x01\x02\x03", 1, "it holds a NUL byte"),
        (b"# coding: klingon\n", 1, "unknown encoding: klingon"),
    ],
)
def test_a_module_that_python_cannot_read(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    (tmp_path / "own_limits.py").write_bytes(content)
    (found,) = checked(text=STAGE, folder=tmp_path).diagnostics
    assert found.code == "E0214"
    assert found.message.startswith(f"Python cannot read `own_limits`: {reason}")
    source = found.span.source
    assert Path(source.name).name == "own_limits.py"
    assert source.text.count("\n", 0, found.span.start) + 1 == line
    assert found.secondary[0].span.text == 'py "own_limits:Own"'


def test_a_module_in_another_encoding_is_read(tmp_path: Path) -> None:
    text = "# coding: latin-1\nfrom gmiflow.api import Simulator\nclass Own(Simulator):\r\n    name = 'é'\n"
    (tmp_path / "own_limits.py").write_bytes(text.encode("latin-1"))
    assert errors(checked(text=STAGE, folder=tmp_path)) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("class Loop(GMI):\n    pass\n", None),
        ("class Loop(GMI):\n    def __init__(self, runtime):\n        super().__init__(runtime)\n", None),
        ("class Loop(GMI):\n    def __init__(self, runtime, extra):\n        pass\n", "E0214"),
        ("class Loop(GMI):\n    def __init__(self):\n        pass\n", "E0214"),
        ("class Loop(Trainer):\n    pass\n", "E0214"),
        ("class Loop:\n    pass\n", "E0214"),
        ("def Loop(runtime):\n    return GMI(runtime)\n", "E0214"),
        ("class Loop(GMI:\n", "E0214"),
        ("class Other(GMI):\n    pass\n", "E0213"),
    ],
)
@pytest.mark.parametrize("replaced", [False, True])
def test_the_class_of_gmi(tmp_path: Path, body: str, code: str | None, replaced: bool) -> None:
    imports = "from gmiflow.api import Trainer\nfrom gmiflow.runtime import GMI\n\n\n"
    (tmp_path / "own_limits.py").write_text(imports + body)
    entry = 'py "own_limits:Loop"'
    text = PROGRAM if replaced else PROGRAM.replace("mode = sync", f"mode = sync, gmi = {entry}")
    result = checked(*([("train.gmi", entry)] if replaced else []), text=text, folder=tmp_path)
    assert [found for found, _ in errors(result)] == ([code] if code else [])


def test_a_gmi_class_that_is_not_there() -> None:
    assert [code for code, _ in errors(checked(("train.gmi", 'py "a_module_of_nobody:b"')))] == ["E0212"]
