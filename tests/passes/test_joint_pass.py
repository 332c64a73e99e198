"""Which trainings share a simulator, and why not."""

from pathlib import Path

import pytest

from gmiflow.commands.plan_view import headline
from gmiflow.hardware import GPU, Hardware
from gmiflow.ir.text import sizing_text
from gmiflow.pipeline import Options, compile_file

ANT = str(Path(__file__).parents[2] / "examples/ant.gmi")
GPUS = Hardware(
    cores=16,
    gpus=tuple(
        GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=143771 << 20, mig=False)
        for i in range(2)
    ),
)
HOSTED = """
simulator Hosted() {
  entry = py "hosted:Hosted"
  in  action     : f32[env, 8] range -1 .. 1
  out obs        : f32[env, 60]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}
simulator sim     = Hosted() { python = "/opt/py38/bin/python" }"""


def lower(target="lab", text=None, **overrides):
    pairs = tuple((name.replace("__", "."), str(value)) for name, value in {"num_env": 4096, **overrides}.items())
    options = Options(workflow="train", target=target, overrides=pairs, use_profiles=False)
    return compile_file(ANT, options, text=text, hardware=GPUS, stop_after="plan")


def joints(compilation):
    assert compilation.plan is not None, compilation.diagnostics
    return [gmi.joint for gmi in compilation.plan.gmis]


def reason(compilation):
    return dict(compilation.sized.origins).get("joint")


def test_as_many_share_a_simulator_as_are_asked_for():
    assert joints(lower(train__replicas=5, train__joint=8)) == [0] * 5
    assert joints(lower(train__replicas=5, train__joint=2)) == [0, 0, 2, 2, None]
    assert joints(lower(train__replicas=5, train__joint=1)) == [None] * 5
    assert joints(lower(train__replicas=4, train__joint=4, target__devices=2)) == [0, 1, 0, 1]
    assert reason(lower(train__replicas=5, train__joint=8)) == "given"
    assert reason(lower(train__joint=8)) is None, "one training has nobody to share with"


def test_trainings_that_span_gpus_are_processes():
    """Two of them on three GPUs: each has a GMI on every one, which threads of one process could not be."""
    compilation = lower(train__replicas=2, target__devices=3)
    assert [(gmi.device, gmi.backend, gmi.host) for gmi in compilation.plan.gmis] == [
        (device, "mps", None) for device in (0, 1, 2, 0, 1, 2)
    ]


def test_on_the_cpu_they_become_threads_of_one_process():
    compilation = lower("cpu", train__replicas=3, train__joint=3, num_env=64, target__gmi_per_gpu=1)
    assert [(gmi.host, gmi.joint) for gmi in compilation.plan.gmis] == [(0, 0)] * 3
    assert "with the simulator of gmi 0" in sizing_text(compilation.sized)
    assert headline(compilation.plan)[1].endswith("one simulator with 2 other trainings")


def test_auto_joins_what_shares_a_core():
    settings = {"num_env": 64, "target__gmi_per_gpu": 1, "target__cores": 2}
    assert joints(lower("cpu", train__replicas=2, **settings)) == [None, None]
    assert joints(lower("cpu", train__replicas=4, **settings)) == [0, 0, 2, 2]
    assert joints(lower("cpu", train__replicas=5, **settings)) == [0, 0, 0, 3, 3]
    three = lower("cpu", train__replicas=5, **settings)
    assert reason(three) == "default: 3 trainings that share a core share one simulator too (2 cores)"


def test_auto_on_a_gpu():
    assert joints(lower(train__replicas=3)) == [0, 0, 0]
    assert joints(lower(train__replicas=8)) == [0, 0, 0, 0, 4, 4, 4, 4]
    assert joints(lower(train__replicas=5)) == [0, 0, 0, 3, 3]
    assert reason(lower(train__replicas=3)) == "default: 4 trainings that share a simulator win most on a GPU"


@pytest.mark.parametrize(
    ("settings", "obstacle"),
    [
        ({"target__gmi_per_gpu": 2}, "a training of several GMIs has a simulator in each"),
        ({"target__backend": "mps"}, "backend `mps` gives each training a part of its own"),
        ({"target__backend": "timeshare"}, "backend `timeshare`, when it is given, makes a process of each training"),
        ({"target__devices": 2, "train__replicas": 2}, "no two trainings of a device have the same simulator"),
    ],
)
def test_what_cannot_be_shared_is_said(settings, obstacle):
    settings = {"train__replicas": 3, **settings}
    wanted = lower(train__joint=2, **settings)
    assert [(d.code, d.message) for d in wanted.diagnostics] == [("E0503", f"joint = 2 cannot be: {obstacle}")]
    apart = lower(**settings)
    assert set(joints(apart)) == {None}
    assert reason(apart) == f"default: {obstacle}"


def test_other_interpreters_and_classes_of_gmi_stay_apart():
    text = Path(ANT).read_text()
    hosted = text.replace("\nsimulator sim     = ant.Ant()", HOSTED)
    apart = lower(text=hosted, train__replicas=2)
    assert reason(apart) == "default: a simulator in an interpreter of its own serves one training"
    own = text.replace("  mode       = sync", '  mode       = sync\n  gmi        = py "gmiflow.runtime:GMI"')
    assert (
        reason(lower(text=own, train__replicas=2))
        == "default: a class of `gmi` may do with its simulator what it likes"
    )


OWN = """
simulator Own() {
  entry = py "own:Own"
  in  action     : f32[env, 8] range -1 .. 1
  out obs        : f32[env, 60]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}
simulator sim     = Own()"""


@pytest.mark.parametrize(
    ("body", "base", "joined"),
    [
        ("joinable = True", "Simulator", True),
        ("joinable = False", "Simulator", False),
        ("capturable = True", "Simulator", False),  # no by default
        ("capturable = True", "Base", True),  # what it inherits is known when it is loaded
    ],
)
def test_a_class_that_does_not_say_that_it_may_be_shared_is_not(body, base, joined, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = f"from gmiflow.api import Simulator\nfrom base import Base\n\n\nclass Own({base}):\n    {body}\n"
    (tmp_path / "own.py").write_text(module)
    text = Path(ANT).read_text().replace("simulator sim     = ant.Ant()", OWN)

    def compiled(**settings):
        pairs = tuple((name.replace("__", "."), str(value)) for name, value in settings.items())
        options = Options(workflow="train", target="cpu", overrides=pairs, use_profiles=False)
        return compile_file("own.gmi", options, text=text, hardware=GPUS, stop_after="plan")

    settings = {"num_env": 64, "train__replicas": 2, "target__gmi_per_gpu": 1, "target__cores": 1}
    found = compiled(**settings)
    assert joints(found) == ([0, 0] if joined else [None, None])
    if not joined:
        assert reason(found) == "default: the class `own:Own` does not say `joinable = True`"
        (problem,) = (d for d in compiled(**settings, train__joint=2).diagnostics if d.severity == "error")
        assert problem.message == "joint = 2 cannot be: the class `own:Own` does not say `joinable = True`"
