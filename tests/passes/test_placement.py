"""`place`: stages on devices of their own, and what becomes of mapping, environments, shares and channels."""

import re

import pytest

from gmiflow.hardware import GPU, Hardware
from gmiflow.ir.text import comm_text
from gmiflow.passes.placement import takes_turns
from gmiflow.pipeline import Options, compile_file

EDGES = """
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights"""

SERVING_EDGES = "sim.obs -> actor.obs\n  actor.action -> sim.action"


def machine(gpus: int = 3, *, peers: bool = True) -> Hardware:
    found = tuple(
        GPU(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", sm_count=132, memory_bytes=140 << 30, mig=False)
        for i in range(gpus)
    )
    return Hardware(cores=32, gpus=found, peer_access=peers)


def compiled(
    place,
    target="",
    *,
    mode="sync",
    algo="ppo",
    edges=EDGES,
    hardware=None,
    simulator="cartpole.CartPole",
    more="",
    num_env=96,
):
    text = f"""edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.algo.a3c
import std.targets
simulator sim = {simulator}()
agent actor = {algo}.Actor(hidden = [32])
{f"trainer learner = {algo}.Learner()" if EDGES in edges else ""}
{more}
workflow train {{
  mode = {mode}
  num_env = {num_env}
  horizon = 16
  place {{ {place} }}
{edges}
}}
target box {{ base = targets.h200(gpus = 3), {target} }}
"""
    return compile_file("apart.gmi", Options(), text=text, hardware=hardware or machine(), stop_after="plan")


def done_of(*arguments, **options):
    done = compiled(*arguments, **options)
    assert [d.message for d in done.diagnostics if d.severity == "error"] == []
    return done


def plan_of(*arguments, **options):
    return done_of(*arguments, **options).plan


def layout(plan):
    """Stages, device, first environment and number of each GMI."""
    return [(" ".join(gmi.stages), gmi.device, gmi.env_offset, gmi.num_env) for gmi in plan.gmis]


def problem_of(*arguments, **options):
    (problem,) = compiled(*arguments, **options).diagnostics
    return problem


def test_a_trainer_has_the_gpu_that_it_is_placed_on():
    plan = plan_of("sim = devices(0, 1), learner = devices(2)", "agents = 2, trainers = 1")
    assert plan.trainings[0].mapping == "ea_t"
    assert layout(plan) == [
        ("sim actor", 0, 0, 32),  # six groups of 16 environments for four GMIs: two, two, one, one
        ("sim actor", 0, 32, 32),
        ("sim actor", 1, 64, 16),
        ("sim actor", 1, 80, 16),
        ("learner", 2, 0, 96),
    ]
    assert [gmi.share for gmi in plan.gmis] == [0.5, 0.5, 0.5, 0.5, 1.0]
    assert [gmi.backend for gmi in plan.gmis] == ["mps"] * 5
    (channel,) = plan.channels
    assert (channel.kind, channel.producers, channel.consumer) == ("p2p", (0, 1, 2, 3), 4)


@pytest.mark.parametrize(
    ("place", "counts"),
    [
        ("sim = devices(0, 1), learner = devices(2)", ["4 agents"]),  # of 2 on each device; one trainer has all
        ("sim = devices(0), learner = devices(1, 2)", []),  # two agents have three strata each, two trainers as well
        ("sim = devices(0), actor = devices(0), learner = devices(0, 1, 2)", []),
    ],
)
def test_uneven_environments_are_counted_over_the_devices_that_have_them(place, counts):
    found = compiled(place, "agents = 2, trainers = 1").diagnostics
    assert [(d.code, d.message) for d in found] == [
        ("W0502", f"96 environments do not divide evenly over {count}") for count in counts
    ]


def test_trainers_take_whatever_environments_are_theirs():
    plan = plan_of("sim = devices(0, 1, 2), learner = devices(1, 2)")
    assert layout(plan) == [
        ("sim actor", 0, 0, 32),
        ("sim actor", 1, 32, 32),
        ("sim actor", 2, 64, 32),
        ("learner", 1, 0, 48),
        ("learner", 2, 48, 48),
    ]
    assert [gmi.share for gmi in plan.gmis] == [1.0, 0.5, 0.5, 0.5, 0.5]
    assert [(c.kind, c.producers, c.consumer) for c in plan.channels] == [("p2p", (0, 1), 3), ("p2p", (1, 2), 4)]
    assert plan.collectives[0].members == (3, 4)


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        (machine(peers=False), "the GPUs of this machine do not map each other's memory, which `p2p` needs"),
        (machine(2), "this machine, which compiles, has 2 of the target's 3 GPUs; "),
        (Hardware(cores=32, gpus=()), "this machine, which compiles, has none of the target's 3 GPUs; "),
    ],
)
def test_without_peer_access_on_this_machine_the_host_is_between(hardware, reason):
    done = done_of("sim = devices(0), learner = devices(1)", hardware=hardware)
    assert [channel.kind for channel in done.plan.channels] == ["host"]
    assert [channel.reason.startswith(reason) for channel in done.comm.channels] == [True]
    assert f"    by the host: {reason}" in comm_text(done.comm)


def test_a_reason_is_given_only_where_the_host_is_between_gpus():
    for place, target, kind in (
        ("sim = devices(0), learner = devices(1)", "", "p2p"),
        ("sim = devices(0), learner = devices(0)", "mapping = ea_t", "ipc"),
    ):
        (channel,) = done_of(place, target).comm.channels
        assert (channel.kind, channel.reason) == (kind, "")
    (channel,) = done_of("sim = devices(0), learner = devices(1)", "backend = mig").comm.channels
    assert (channel.kind, channel.reason) == ("host", "slices of backend `mig` do not map each other's memory")


def test_what_stays_on_a_gpu_does_not_cross():
    plan = plan_of("sim = devices(1), actor = devices(1)", "mapping = ea_t")
    assert {gmi.device for gmi in plan.gmis} == {1}  # the trainer is where the others are
    assert [channel.kind for channel in plan.channels] == ["ipc"]


@pytest.mark.parametrize(
    ("place", "mapping", "kinds", "parted"),
    [
        (
            "actor = devices(1), learner = devices(1), sim = devices(0)",
            "e_at",
            ["p2p"],
            ": the first that keeps apart what `place` puts apart: "
            "`sim` on device 0, `actor` and `learner` on device 1",
        ),
        (
            "actor = devices(1), learner = devices(0, 2), sim = devices(0)",
            "dp_mp",
            ["p2p", "p2p", "p2p"],
            ": the first that keeps apart what `place` puts apart: "
            "`sim` on device 0, `actor` on device 1, `learner` on devices 0, 2",
        ),
        ("actor = devices(0), learner = devices(0)", "dp_only", [], ""),
    ],
)
def test_the_first_mapping_that_keeps_to_place_is_taken_and_says_so(place, mapping, kinds, parted):
    done = done_of(place)
    assert done.plan.trainings[0].mapping == mapping
    assert [channel.kind for channel in done.plan.channels] == kinds
    assert done.mapped.origin == f"chosen{parted}"


def test_only_mappings_of_the_mode_part_stages():
    """`e_at`, which would do, is for `sync`; `ea_t` would join what is apart."""
    place = "sim = devices(0), actor = devices(1)"
    training = plan_of(place + ", learner = devices(1)", mode="async { max_staleness = 1 }").trainings[0]
    serving = plan_of(place, mode="serve", edges=SERVING_EDGES).trainings[0]
    assert (training.mapping, serving.mapping) == ("dp_mp", "dp_mp")


def test_the_order_of_devices_parts_nothing():
    assert plan_of("sim = devices(0, 1), learner = devices(1, 0)").trainings[0].mapping == "dp_only"


def test_another_mapping_that_keeps_to_place_comes_later():
    reasons = {item.choice: item.reason for item in done_of("sim = devices(0), learner = devices(1)").mapped.rejected}
    for template in ("e_at", "dp_mp"):  # the actor, which is not placed, may be with either
        assert reasons[template].startswith("it keeps to `place`, too, and `ea_t` comes first; ")
    assert reasons["dp_only"].startswith("it joins `sim` and `learner`, and `place` puts them on ")


def test_devices_that_wait_for_each_other_are_named():
    apart = "sim = devices(0, 1), learner = devices(2)"
    waiting = takes_turns(done_of(apart).mapped)
    assert waiting.startswith("devices 0, 1 and device 2 take turns: in a `sync` workflow one waits while the other ")
    assert takes_turns(done_of(apart, mode="async { max_staleness = 1 }").mapped) == ""
    assert takes_turns(done_of("sim = devices(0, 1), learner = devices(1)").mapped) == ""
    assert takes_turns(done_of("sim = devices(0), learner = devices(0)").mapped) == ""


def test_the_number_of_gmis_says_whose_they_are():
    origins = dict(done_of("sim = devices(0, 1), learner = devices(2)", "agents = 2, trainers = 1").sized.origins)
    assert origins["gmi_per_gpu"] == (
        "given as `agents` and `trainers`; 2 that collect, 1 that trains, on each device that has them"
    )


def test_serving_simulators_may_be_on_another_gpu_than_their_agent():
    options = {"mode": "serve", "edges": SERVING_EDGES}
    plan = plan_of("sim = devices(0, 1), actor = devices(2)", "mapping = mp_dp, simulators = 2, agents = 1", **options)
    assert layout(plan)[-1] == ("actor", 2, 0, 96)
    assert [(c.kind, c.producers, c.consumer) for c in plan.channels] == [("p2p", (i,), 4) for i in range(4)]
    problem = problem_of("sim = devices(0), actor = devices(1, 2)", "mapping = mp_dp, simulators = 1", **options)
    assert problem.message == "`place` leads to 2 that act for 1 that simulates: some GMIs would have no work"


@pytest.mark.parametrize("device", [0, 1])
def test_an_agent_acts_for_whole_simulators(device):
    plan = plan_of(
        f"sim = devices(0), actor = devices({device})",
        "mapping = mp_dp, simulators = 3, agents = 2",
        mode="serve",
        edges=SERVING_EDGES,
    )
    assert layout(plan)[3:] == [("actor", device, 0, 64), ("actor", device, 64, 32)]
    assert [(c.producers, c.consumer) for c in plan.channels] == [((0,), 3), ((1,), 3), ((2,), 4)]


def test_each_a3c_trainer_has_agents_of_its_own_on_other_gpus():
    options = {"mode": "async { max_staleness = 3 }", "algo": "a3c"}
    plan = plan_of("sim = devices(0, 1), learner = devices(2)", "agents = 2, trainers = 2", **options)
    assert [(c.producers, c.consumer) for c in plan.channels] == [((0, 1), 4), ((2, 3), 5)]
    plan = plan_of("sim = devices(0), learner = devices(1)", **options)  # as many as trainers are enough
    assert [(c.producers, c.consumer) for c in plan.channels] == [((0,), 1)]
    problem = problem_of("sim = devices(0), learner = devices(1, 2)", "agents = 1, trainers = 1", **options)
    assert (problem.code, problem.message) == (
        "E0501",
        "`place` leads to 2 that train for 1 that collects: some GMIs would have no work",
    )


def test_a_mapping_that_joins_what_is_apart_is_refused():
    problem = problem_of("sim = devices(0), learner = devices(1, 2)", "mapping = dp_only")
    assert (problem.code, problem.message) == (
        "E0501",
        "mapping `dp_only` joins `sim` and `learner`, and `place` puts them on device 0 and devices 1, 2",
    )
    assert problem.notes == ("`e_at`, `ea_t`, `dp_mp` or `auto` keep them apart",)
    assert problem.span.text == "devices(1, 2)"
    assert [(label.span.text, label.text) for label in problem.secondary] == [
        ("devices(0)", "placed elsewhere"),
        ("dp_only", "joined here"),
    ]


def test_one_gmi_for_each_gpu_is_no_split():
    problem = problem_of("sim = devices(0), learner = devices(1)", "gmi_per_gpu = 1")
    assert (problem.code, problem.span.text) == ("E0501", "1")
    assert problem.notes[0] == (
        "`place` parts agents and trainers: `gmi_per_gpu` counts those of a device of either together"
    )


def test_a_device_beyond_the_target_has_two_mends():
    problem = problem_of("sim = devices(0), learner = devices(3)")
    assert (problem.code, problem.span.text) == ("E0506", "devices(3)")
    assert problem.notes == (
        "a target of 4 GPUs has it, for example `targets.h200(gpus = 4)`; the CPU is one device",
        "one file for several machines: `param learner_device : int = 3` and `learner = devices(learner_device)`, "
        "then `--set learner_device=0`",
    )
    problem = problem_of("sim = devices(0), learner = devices(123456789)")
    assert problem.notes == ("devices are counted from 0, and there are at most 1,024",)


def test_pairs_need_as_many_devices():
    problem = problem_of("sim = devices(0), actor = devices(1, 2), learner = devices(1, 2)")
    assert (problem.code, problem.message) == (
        "E0501",
        "mapping `e_at` pairs GMIs, and `place` leads to 1 that simulates and 2 that act",
    )
    assert [problem.span.text, *(label.span.text for label in problem.secondary)] == [
        "devices(0)",
        "devices(1, 2)",
        "devices(1, 2)",
    ]


def test_devices_are_numbers_without_a_name():
    problem = problem_of("learner = devices(gpu = 1)")
    assert (problem.code, problem.message) == ("E0210", "`devices` takes device indices without a name")
    problem = problem_of("learner = device(1)")
    assert (problem.code, problem.notes) == ("E0201", ("did you mean `devices`?",))
    problem = problem_of("learner = auto")
    assert (problem.code, problem.notes) == ("E0301", ())  # no parameter is of this type, so none may be `auto`


def test_a_device_is_named_once():
    problem = problem_of("learner = devices(0, 1, 1)")
    assert (problem.code, problem.message) == ("E0210", "`devices` is given device 1 twice")
    assert problem.span.text == "1" and problem.span.start > problem.span.source.text.index("0, 1")


OTHER = """simulator sim2 = cartpole.CartPole()
agent actor2 = ppo.Actor(hidden = [32])
trainer learner2 = ppo.Learner()"""
OTHER_EDGES = re.sub(r"(sim|actor|learner)\b", r"\g<1>2", EDGES)


def test_environments_of_every_training_are_counted_over_its_own_devices():
    place = "sim = devices(0, 1, 2), sim2 = devices(0, 1)"
    found = compiled(place, "gmi_per_gpu = 2", edges=EDGES + OTHER_EDGES, more=OTHER).diagnostics
    # 6 groups of 16: even over the six GMIs of the first training, not over the four of the second.
    assert [d.message for d in found] == ["96 environments do not divide evenly over 4 GMIs"]


def test_gmis_of_a_run_are_counted_where_they_are_placed():
    found = compiled("sim = devices(0, 1, 2)", "gmi_per_gpu = 2", edges=f"replicas = 1024\n{EDGES}").diagnostics
    assert ("E0408", "a run has at most 4,096 GMIs, not 6,144") in [(d.code, d.message) for d in found]


NEEDY = """simulator Needy {
  needs { memory_per_env = 1 GiB }
  entry = py "gmiflow.tasks.cartpole:CartPole"
  in  action     : f32[env, 1]
  out obs        : f32[env, 4]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}"""


@pytest.mark.parametrize(
    ("place", "needed"), [("sim = devices(1)", ["96.0"]), ("learner = devices(0)", ["96.0"]), ("", [])]
)
def test_memory_is_counted_on_the_devices_that_have_the_environments(place, needed):
    """96 environments of 1 GiB on one device of 80 GiB, or 32 on each of three."""
    found = compiled(place, "memory = 80 GiB, reserve = 0 GiB", simulator="Needy", more=NEEDY).diagnostics
    assert [d.message for d in found] == [
        f"training `train` needs {size} GiB per device, and target `box` has 80.0 GiB" for size in needed
    ]


def test_memory_is_that_of_whole_groups_of_environments():
    """96 environments are six groups of 16, of which some of four devices have two: 32 GiB, not 24."""
    box = "memory = 30 GiB, reserve = 0 GiB, devices = 4"
    problem = problem_of("", box, simulator="Needy", more=NEEDY)
    assert problem.message == "training `train` needs 32.0 GiB per device, and target `box` has 30.0 GiB"


@pytest.mark.parametrize(
    ("num_env", "takes", "legal"),
    [(32, "whole groups of 16 environments", "2 GMIs"), (1, "one environment or more", "1 GMI")],
)
def test_fewer_environments_than_gmis(num_env, takes, legal):
    done = compiled("learner = devices(0)", "gmi_per_gpu = 3", num_env=num_env)
    assert [(d.code, d.message, d.notes[0]) for d in done.diagnostics] == [
        (
            "E0502",
            f"num_env = {num_env} cannot be cut into 3 GMIs: a GMI takes {takes}",
            f"nearest legal numbers: num_env = 48, or {legal}",
        ),
    ]
