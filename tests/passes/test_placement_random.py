"""Random workflows with `place`: a diagnostic, or a plan that keeps to the places and uses no device too much.

What each stage may use is worked out here from the words of docs/language.md, not by the compiler.
"""

import random

import pytest

from gmiflow.hardware import GPU, Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan_check import read_plan
from gmiflow.runtime.gmi.green import share_groups

GROUPS = {
    "dp_only": [{"simulator", "agent", "trainer"}],
    "ea_t": [{"simulator", "agent"}, {"trainer"}],
    "e_at": [{"simulator"}, {"agent", "trainer"}],
    "mp_dp": [{"simulator"}, {"agent"}],
    "dp_mp": [{"simulator"}, {"agent"}, {"trainer"}],
}


def machine(gpus, cores=32, *, peers=True):
    found = tuple(
        GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=140 << 30, mig=False)
        for i in range(gpus)
    )
    return Hardware(cores=cores, gpus=found, peer_access=peers)


def training(number, algo, *, serve):
    """Declarations and edges of one training."""
    sim, actor, learner = (f"{name}{number}" for name in ("sim", "actor", "learner"))
    stages = [f"simulator {sim} = cartpole.CartPole()", f"agent {actor} = {algo}.Actor(hidden = [32])"]
    edges = [f"{sim}.obs -> {actor}.obs", f"{actor}.action -> {sim}.action"]
    if not serve:
        stages.append(f"trainer {learner} = {algo}.Learner()")
        edges += [f"{actor}.experience -> {learner}.experience", f"{actor}.bootstrap -> {learner}.bootstrap"]
        edges += [f"{sim}.{{reward, terminated, truncated}} -> {learner}", f"{learner}.weights -> {actor}.weights"]
    return stages, edges, [sim, actor] if serve else [sim, actor, learner]


def program(stages, settings, target):
    imports = ["import std.tasks.cartpole", "import std.algo.ppo", "import std.algo.a3c", "import std.targets"]
    head = "\n".join(["edition 1", *imports, *stages])
    return f"{head}\nworkflow train {{\n" + "\n".join(settings) + "\n}\ntarget box { " + ", ".join(target) + " }\n"


def drawn(seed):
    """A program, the machine that it is compiled on, and the places in it."""
    draw = random.Random(seed)
    gpus = draw.choice([0, 1, 2, 3, 4])
    mode = draw.choice(["sync", "sync", f"async {{ max_staleness = {draw.choice([0, 1, 3])} }}", "serve"])
    algo = draw.choice(["ppo", "ppo", "a3c"])
    stages, edges, places = [], [], {}
    for number in range(draw.choice([1, 1, 2])):
        declared, joined, names = training(number, algo, serve=mode == "serve")
        stages, edges = stages + declared, edges + joined
        for name in names:
            if draw.random() < 0.6:
                places[name] = draw.sample(range(max(1, gpus)), draw.randint(1, max(1, gpus)))
    settings = [f"mode = {mode}", f"num_env = {draw.choice([1, 15, 48, 96, 112, 1000, 1024])}", "horizon = 16"]
    settings.append(f"replicas = {draw.choice([1, 1, 1, 3])}")
    written = [f"{name} = devices({', '.join(map(str, where))})" for name, where in places.items()]
    settings.append("place { " + ", ".join(written) + " }")
    cores = draw.choice([1, 2, 8])
    target = [f"base = targets.h200(gpus = {gpus})" if gpus else f"base = targets.cpu(cores = {cores})"]
    target.append(f"mapping = {draw.choice(['auto', 'auto', *GROUPS])}")
    for field in ("gmi_per_gpu", "agents", "trainers", "simulators"):
        if draw.random() < 0.25:
            target.append(f"{field} = {draw.choice([1, 2, 3, 6])}")
    if draw.random() < 0.2:
        target.append(f"agent_share = {draw.choice([1, 30, 99])} %")
    return program(stages, [*settings, *edges], target), machine(gpus, cores, peers=draw.random() < 0.5), places


def require_placed(plan, places, devices):
    """Each stage is on its devices, those of the stages that it shares GMIs with, or those of its training."""
    for training in plan.trainings:
        of_training = {device for stage in training.stages for device in places.get(stage.name, ())}
        alone = len(plan.trainings) < devices or devices == 1  # else each training without a place has one device
        for stage in training.stages:
            group = next(group for group in GROUPS[training.mapping] if stage.role in group)
            mates = {d for other in training.stages if other.role in group for d in places.get(other.name, ())}
            parts = [gmi for gmi in plan.gmis if gmi.training == training.name and stage.name in gmi.stages]
            used = {gmi.device for gmi in parts}
            if wanted := mates or of_training or (set(range(devices)) if alone else None):
                assert used == wanted
            assert used == set(places.get(stage.name, used))
            covered = [env for gmi in parts for env in range(gmi.env_offset, gmi.env_offset + gmi.num_env)]
            assert sorted(covered) == list(range(training.num_env))


def require_room(plan, cores):
    """No device is given away twice, and cores only where there are fewer than GMIs."""
    for device in {gmi.device for gmi in plan.gmis}:
        assert 0.999 < sum(gmi.share for gmi in plan.gmis if gmi.device == device) <= 1 + 1e-9
    assert sum(gmi.cores for gmi in plan.gmis) <= cores or {gmi.cores for gmi in plan.gmis} == {1}


def require_channels(plan, *, peers):
    for channel in plan.channels:
        gmis = [plan.gmis[number] for number in (*channel.producers, channel.consumer)]
        on_gpu = all(gmi.backend in ("mps", "timeshare") for gmi in gmis)
        between = "ipc" if len({gmi.device for gmi in gmis}) == 1 else "p2p" if peers else "host"
        assert channel.kind == (between if on_gpu else "host")


def require_explained(diagnostics):
    for problem in diagnostics:
        assert problem.span is not None
        assert problem.notes or problem.secondary


@pytest.mark.parametrize("first", range(0, 45, 15))
def test_a_random_workflow_is_explained_or_its_plan_keeps_to_places(first):
    plans = 0
    for seed in range(first, first + 15):
        text, hardware, places = drawn(seed)
        done = compile_file("random.gmi", Options(use_profiles=False), text=text, hardware=hardware, stop_after="plan")
        require_explained(done.diagnostics)
        assert (done.plan is None) == done.failed
        if done.plan is None:
            continue
        plans += 1
        assert read_plan(done.plan.to_json()) == done.plan
        require_placed(done.plan, places, max(1, len(hardware.gpus)))
        require_room(done.plan, hardware.cores)
        require_channels(done.plan, peers=hardware.peer_access)
    assert plans >= 3


@pytest.mark.parametrize("gmis", [1, 3, 6, 7, 14, 16])
def test_equal_shares_of_a_plan_are_a_whole_device_and_no_more(gmis):
    """Six of 0.166667 are more than a device, and three of 0.333333 are less than 16 groups of SMs."""
    stages, edges, _ = training(0, "ppo", serve=False)
    settings = ["mode = sync", "num_env = 256", "horizon = 16", *edges]
    text = program(stages, settings, ["base = targets.h200", f"gmi_per_gpu = {gmis}", "backend = green"])
    done = compile_file("even.gmi", Options(use_profiles=False), text=text, hardware=machine(1), stop_after="plan")
    assert done.plan is not None
    shares = [gmi.share for gmi in done.plan.gmis]
    assert sum(shares) <= 1 + 1e-9
    parts = share_groups(16, shares)
    assert sum(parts) == 16 and max(parts) - min(parts) <= 1


def a3c(mode, *target):
    stages, edges, _ = training(0, "a3c", serve=False)
    text = program(stages, [f"mode = {mode}", "num_env = 64", "horizon = 16", *edges], target)
    return compile_file("a3c.gmi", Options(use_profiles=False), text=text, hardware=machine(2), stop_after="plan")


@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("base", ["cpu(cores = %d)", "h200"])
def test_one_agent_trains_where_gradients_are_applied_and_simulators_are_apart(base, cores):
    done = a3c("sync", f"base = targets.{base.replace('%d', str(cores))}", "mapping = e_at")
    assert done.plan is not None
    assert [gmi.stages for gmi in done.plan.gmis] == [("sim0",), ("actor0", "learner0")]


def test_two_agents_that_train_would_have_a_policy_each_where_gradients_are_applied():
    for target in (["base = targets.cpu", "simulators = 2"], ["base = targets.h200(gpus = 2)"]):
        (problem,) = a3c("sync", *target, "mapping = e_at").diagnostics
        assert (problem.code, problem.message) == (
            "E0501",
            "2 GMIs that act and train would each train a policy of its own",
        )
