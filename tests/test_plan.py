"""A plan that was edited is looked through when it is read; the message names the place."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import PlanError
from gmiflow.plan_check import read_plan

ROOT = Path(__file__).parents[1]
SETTINGS = (("num_env", "64"), ("workflow.horizon", "16"), ("target.gmi_per_gpu", "2"))
GONE = object()


@pytest.fixture(scope="module")
def compiled():
    """Two GMIs of 32 environments each, with one collective."""
    options = Options(overrides=SETTINGS)
    compilation = compile_file(
        str(ROOT / "examples/quickstart.gmi"), options, stop_after="plan", hardware=Hardware(cores=2, gpus=())
    )
    assert compilation.plan is not None, compilation.diagnostics
    return compilation.plan.to_json()


def changed(text, *changes):
    """The plan with values set, or removed with GONE, at paths like ``gmis.1.host``."""
    data = json.loads(text)
    for path, value in changes:
        *parents, last = [int(word) if word.isdigit() else word for word in path.split(".")]
        owner = data
        for word in parents:
            owner = owner[word]
        if value is GONE:
            del owner[last]
        else:
            owner[last] = value
    return json.dumps(data)


def test_a_compiled_plan_is_good(compiled):
    assert read_plan(compiled).to_json() == compiled


def test_gmis_of_one_process_name_the_first(compiled):
    plan = read_plan(changed(compiled, ("gmis.0.host", 0), ("gmis.1.host", 0)))
    assert [[gmi.id for gmi in gmis] for gmis in plan.processes().values()] == [[0, 1]]


@pytest.fixture(scope="module")
def replicas():
    settings = (*SETTINGS[:2], ("target.gmi_per_gpu", "1"), ("workflow.replicas", "2"))
    hardware = Hardware(cores=2, gpus=())
    quickstart = str(ROOT / "examples/quickstart.gmi")
    compilation = compile_file(quickstart, Options(overrides=settings), stop_after="plan", hardware=hardware)
    assert compilation.plan is not None, compilation.diagnostics
    return compilation.plan.to_json()


JOINT = [(f"gmis.{gmi}.{name}", 0) for gmi in (0, 1) for name in ("host", "joint")]


def test_replicas_may_share_a_simulator(replicas):
    assert [gmi.joint for gmi in read_plan(changed(replicas, *JOINT)).gmis] == [0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("gmis.1.joint", 0)], "plan.gmis[1].joint: GMI 0 is not the first of it"),
        ([("gmis.0.joint", 1), ("gmis.1.joint", 1)], "plan.gmis[0].joint: GMI 1 is not the first of it"),
        ([("gmis.0.joint", 0), ("gmis.1.joint", 0)], "plan.gmis[0].joint: GMI 0 is of another process"),
        ([*JOINT, ("trainings.1.horizon", 2)], "plan.gmis[1].joint: horizon of "),
        (
            [*JOINT, ("trainings.1.stages.0.params.engine", "mjwarp")],
            "plan.gmis[1].joint: train.1 and train.0 have different simulators",
        ),
        (
            [*JOINT, *((f"trainings.{n}.stages.0.python", "/usr/bin/python3") for n in (0, 1))],
            "plan.gmis[0].joint: the simulator of train.0 runs in another interpreter",
        ),
    ],
)
def test_a_simulator_is_shared_by_equals(replicas, changes, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        read_plan(changed(replicas, *changes))


WRONG = [
    ([("trainings", [])], "plan.trainings: there is none"),
    ([("gmis", [])], "plan.gmis: there is none"),
    ([("source.workflow", "../up")], "plan.source.workflow: '../up' is not a plain file name"),
    ([("source.file", 'a"""b.gmi')], "plan.source.file: "),
    ([("source.file", "a\nb.gmi")], "plan.source.file: "),
    ([("trainings.0.stages.0.file", "\ud800")], "not a plan: '\\ud800' is half of a character"),
    ([("trainings.0.stages.0.params", {"deep": json.loads("[" * 900 + "]" * 900)})], "not a plan: it is nested"),
    ([("gmis.1.training", "other")], "plan.gmis[1].training: there is no training 'other'"),
    ([("collectives.0.training", "other")], "plan.collectives[0].training: there is no training 'other'"),
    ([("gmis.1.id", 0)], "plan.gmis[1].id: expected 1, got 0"),
    ([("gmis.1.id", 7)], "plan.gmis[1].id: expected 1, got 7"),
    ([("gmis.0.id", -1)], "plan.gmis[0].id: expected 0, got -1"),
    ([("gmis.1.program", "gmi_00.py")], "plan.gmis[1].program: 'gmi_00.py' stands twice"),
    ([("gmis.1.stages", ["nobody"])], "plan.gmis[1].stages[0]: training 'train' has no stage 'nobody'"),
    ([("gmis.1.stages", [])], "plan.gmis[1].stages: there is none"),
    ([("trainings.0.stages", [])], "plan.trainings[0].stages: there is none"),
    ([("collectives.0.members", [0, 0])], "plan.collectives[0].members[1]: 0 stands twice"),
    ([("collectives.0.members", [0, 2])], "plan.collectives[0].members[1]: there is no GMI 2"),
    ([("collectives.0.members", [-1, 0])], "plan.collectives[0].members[0]: there is no GMI -1"),
    ([("collectives.0.members", [0])], "plan.collectives[0].members: expected two or more, got 1"),
    ([("collectives", [])], "plan.trainings[0]: GMIs 0, 1 run its trainer, and a collective joins none"),
    ([("gmis.1.host", 0)], "plan.gmis[1].host: GMI 0 is not the first of a shared process"),
    ([("gmis.0.host", 5)], "plan.gmis[0].host: there is no GMI 5"),
    ([("gmis.0.host", 1), ("gmis.1.host", 1)], "plan.gmis[0].host: GMI 1 is not the first of a shared process"),
    (
        [("gmis.0.host", 0), ("gmis.1.host", 0), ("gmis.1.device", 1)],
        "plan.gmis[1].host: GMI 0 has another device or backend than GMI 1",
    ),
    ([("gmis.1.env_offset", 0)], "plan.gmis[1].env_offset: the ranges of stage 'sim' go on at environment 32, not 0"),
    ([("gmis.1.env_offset", 48)], "plan.gmis[1].env_offset: the ranges of stage 'sim' go on at environment 32, not 48"),
    ([("gmis.1.num_env", 16)], "plan.trainings[0].num_env: the GMIs of stage 'sim' have 48 environments, not 64"),
    ([("gmis.1.num_env", 24)], "plan.gmis[1].num_env: 24 is not a multiple of the stratum 16"),
    ([("trainings.0.num_env", 72)], "plan.trainings[0].num_env: 72 is not a multiple of the stratum 16"),
    *(
        ([(f"trainings.0.{name}", value)], f"plan.trainings[0].{name}: expected 1 or more, got {value}")
        for name in ("horizon", "stratum", "num_env", "iterations")
        for value in (0, -3)
    ),
    *(
        ([(f"gmis.1.{name}", 0)], f"plan.gmis[1].{name}: expected 1 or more, got 0")
        for name in ("threads", "cores", "num_env")
    ),
    ([("trainings.0.checkpoint_every", -1)], "plan.trainings[0].checkpoint_every: expected 0 or more, got -1"),
    ([("trainings.0.iterations", 10**30)], "plan.trainings[0].iterations: the number is too large"),
    ([("gmis.0.share", 0)], "plan.gmis[0].share: expected more than 0 and at most 1, got 0"),
    ([("gmis.0.share", 1.5)], "plan.gmis[0].share: expected more than 0 and at most 1, got 1.5"),
    ([("gmis.0.device", -1)], "plan.gmis[0].device: expected 0 or more, got -1"),
    ([("trainings.0.edges.0.source", "no.obs")], "plan.trainings[0].edges[0].source: training 'train' has no stage"),
    ([("trainings.0.edges.0.target", "sim")], "plan.trainings[0].edges[0].target: 'sim' is not stage.port"),
    *(
        ([("gmis.0.program", name)], f"plan.gmis[0].program: {name!r} is not a plain file name")
        for name in ("/tmp/x.py", "../x.py", "a/b.py", "..", ".", "", "a\\b.py", "a\nb.py", "a\0.py", "\ud800.py")
    ),
    ([("gmis.0.program", "plan.json")], "plan.gmis[0].program: 'plan.json' does not end in .py"),
    ([("gmis.0.program", "x" * 300 + ".py")], "plan.gmis[0].program: 303 bytes are too long for a file name"),
    *(
        ([("trainings.0.name", name)], f"plan.trainings[0].name: {name!r} is not a plain file name")
        for name in ("/etc", "..", "a/b", "")
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_wrong_plan_is_refused_with_the_place(compiled, changes, message):
    with pytest.raises(PlanError, match="^" + re.escape(message)):
        read_plan(changed(compiled, *changes))


def test_every_stage_is_run(compiled):
    names = [stage["name"] for stage in json.loads(compiled)["trainings"][0]["stages"]]
    text = changed(compiled, ("gmis.0.stages", names[:-1]), ("gmis.1.stages", names[:-1]))
    with pytest.raises(PlanError, match=rf"^plan\.trainings\[0\]\.stages\[{len(names) - 1}\]: no GMI runs stage"):
        read_plan(text)


def two_trainings(compiled, name):
    """The plan with a second training called ``name``, on two further GMIs."""
    plan = read_plan(compiled)
    second = dataclasses.replace(plan.trainings[0], name=name)
    further = tuple(
        dataclasses.replace(gmi, id=gmi.id + 2, program=f"gmi_0{gmi.id + 2}.py", training=name) for gmi in plan.gmis
    )
    group = dataclasses.replace(plan.collectives[0], name="second.gradient", training=name, members=(2, 3))
    return dataclasses.replace(
        plan,
        trainings=(*plan.trainings, second),
        gmis=(*plan.gmis, *further),
        collectives=(*plan.collectives, group),
    ).to_json()


def test_trainings_have_names_of_their_own(compiled):
    assert len(read_plan(two_trainings(compiled, "second")).trainings) == 2
    with pytest.raises(PlanError, match=r"^plan\.trainings\[1\]\.name: 'train' stands twice"):
        read_plan(two_trainings(compiled, "train"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [("collectives.1.members", [1, 2])],
            "plan.collectives[1].members[0]: GMI 1 is of training 'train', not 'second'",
        ),
        (
            [("collectives.1", GONE)],
            "plan.trainings[1]: GMIs 2, 3 run its trainer, and a collective joins none",
        ),
        (
            [("collectives.1.name", "train.gradient")],
            "plan.collectives[1].name: 'train.gradient' stands twice",
        ),
    ],
)
def test_trainings_do_not_share_collectives(compiled, changes, message):
    with pytest.raises(PlanError, match="^" + re.escape(message)):
        read_plan(changed(two_trainings(compiled, "second"), *changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "not a plan: it is nested too deeply"),
        ('{"version": ' + "9" * 6000 + "}", "not a plan: "),
        ('{"version": NaN}', "not a plan: NaN is not a number"),
        ('{"version": 1e999}', "not a plan: 1e999 is not a number"),
        ("[]", "not a plan: the top level is not an object"),
        ("", "not a plan: "),
    ],
)
def test_absurd_json_is_refused(text, message):
    with pytest.raises(PlanError, match="^" + re.escape(message)):
        read_plan(text)


PLACED = """edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets
simulator sim = cartpole.CartPole()
agent actor = ppo.Actor()
trainer learner = ppo.Learner()
workflow train {
  mode = sync, num_env = 64, horizon = 16
  sim.obs -> actor.obs
  actor.action -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights -> actor.weights
  place { learner = devices(0, 1) }
}
target box { base = targets.h200(gpus = 2), mapping = ea_t }
target cpu { base = targets.cpu, mapping = ea_t, agents = 2, trainers = 2 }
"""


_UNPLACED = ("place { learner = devices(0, 1) }", "")


def placed(target):
    """GMIs 0 and 1 collect, 2 and 3 train; one of each on each of two GPUs, or all on the CPU."""
    hardware = Hardware(cores=4, gpus=())
    options = Options(target=target)
    text = PLACED if target == "box" else PLACED.replace(*_UNPLACED)
    done = compile_file("placed.gmi", options, text=text, hardware=hardware, stop_after="plan")
    assert done.plan is not None, done.diagnostics
    return done.plan.to_json()


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("box", [("gmis.1.device", 2)], "gmis[1].device: the target has 2 devices, 0 to 1, and GMI 1 is on device 2"),
        ("cpu", [("gmis.0.device", 1)], "gmis[0].device: the target has one device, 0, and GMI 0 is on device 1"),
        ("cpu", [("gmis.3.backend", "mps")], "gmis[3].backend: 'mps' is no backend of the device 'cpu'"),
        ("box", [("gmis.3.backend", "cpu")], "gmis[3].backend: 'cpu' is no backend of the device 'cuda'"),
        (
            "cpu",
            [("channels.0.kind", "p2p")],
            "channels[0].kind: 'p2p' is memory of a GPU, and GMI 0 is cpu; use 'host'",
        ),
        (
            "box",
            [("channels.0.kind", "ipc"), ("gmis.0.device", 1)],
            "channels[0].kind: 'ipc' is memory of one GPU, and the members are on several; use 'p2p' or 'host'",
        ),
        (
            "box",
            [("gmis.0.host", 0)],
            "channels[0].kind: 'ipc' is between processes, and GMI 0 shares one; use 'host'",
        ),
        (
            "cpu",
            [("collectives.0.kind", "rp")],
            "collectives[0].kind: `rp` moves device memory, and the GMIs have no GPU; use `ip`",
        ),
        (
            "box",
            [("collectives.0.kind", "ipc")],
            "collectives[0].kind: `ipc` works inside one GPU; use `hybrid`",
        ),
        ("cpu", [("trainings.0.max_staleness", 1)], "trainings[0].max_staleness: train is sync, and experience may"),
    ],
)
def test_devices_and_what_lies_between_them_are_looked_through(target, changes, message):
    with pytest.raises(PlanError, match=re.escape(f"plan.{message}")):
        read_plan(changed(placed(target), *changes))
