"""Where the mapping splits agent and trainer: who has which environments, who feeds whom, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmiflow.hardware import Hardware
from gmiflow.passes import channel_lowering
from gmiflow.passes.mapping import map_workflow
from gmiflow.passes.packing import best_grouping
from gmiflow.passes.slicing import divide_cores
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.workload import Measurement, Point

SOURCE = """edition 1
import std.tasks.cartpole
import std.algo.ppo
import std.targets
simulator sim     = cartpole.CartPole()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner()
workflow train {
  mode    = async { max_staleness = %d }
  num_env = 96
  horizon = 8
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience { depth = 3, on_full = %s }
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights
}
target box {
  base    = targets.%s
  mapping = ea_t
  %s
}
"""


def lowered(*settings: str, on_full: str = "block", target: str = "cpu", staleness=2, overrides=()):
    text = SOURCE % (staleness, on_full, target, "\n  ".join(settings))
    options = Options(use_profiles=False, overrides=tuple(overrides))
    return compile_file("split.gmi", options, text=text, hardware=Hardware(cores=4, gpus=()), stop_after="plan")


def planned(*settings: str, **options):
    done = lowered(*settings, **options)
    assert done.plan is not None, done.diagnostics
    return done.plan


def channels_of(plan):
    return [(c.producers, c.consumer, c.env_offset, c.num_env, c.depth, c.on_full) for c in plan.channels]


def test_all_agents_fill_the_slots_of_the_one_trainer():
    plan = planned("agents = 3", "trainers = 1")
    assert [(g.stages, g.env_offset, g.num_env, g.share) for g in plan.gmis] == [
        (("sim", "actor"), 0, 32, 0.25),
        (("sim", "actor"), 32, 32, 0.25),
        (("sim", "actor"), 64, 32, 0.25),
        (("learner",), 0, 96, 0.25),
    ]
    assert channels_of(plan) == [((0, 1, 2), 3, 0, 96, 3, "block")]
    assert plan.collectives == ()
    assert plan.channels[0].groups == (
        (
            "actor.experience.obs",
            "actor.experience.action",
            "actor.experience.log_prob",
            "actor.experience.mean",
            "actor.experience.std",
            "actor.experience.value",
            "sim.reward",
        ),
        ("actor.bootstrap@last",),
        ("sim.terminated", "sim.truncated"),
    )


def test_an_agent_feeds_every_trainer_that_has_some_of_its_environments():
    plan = planned("agents = 2", "trainers = 3")
    assert channels_of(plan) == [
        ((0,), 2, 0, 32, 3, "block"),
        ((0, 1), 3, 32, 32, 3, "block"),
        ((1,), 4, 64, 32, 3, "block"),
    ]
    assert [(c.name, c.members) for c in plan.collectives] == [("train.gradient", (2, 3, 4))]


def test_where_the_oldest_may_be_dropped_each_pair_has_a_channel():
    plan = planned("agents = 2", "trainers = 1", on_full="drop_oldest")
    assert channels_of(plan) == [((0,), 2, 0, 48, 3, "drop_oldest"), ((1,), 2, 48, 48, 3, "drop_oldest")]


def test_without_staleness_nothing_is_dropped():
    plan = planned("agents = 2", "trainers = 1", on_full="drop_oldest", staleness=0)
    assert [c.on_full for c in plan.channels] == ["block"]


def test_rollouts_stay_on_their_gpu():
    plan = planned("agents = 2", "trainers = 1", target="h200(gpus = 2)")
    assert [(g.device, g.env_offset, g.num_env) for g in plan.gmis] == [
        *[(0, 0, 32), (0, 32, 16), (1, 48, 32), (1, 80, 16)],
        *[(0, 0, 48), (1, 48, 48)],
    ]
    assert [(c.producers, c.consumer, c.kind) for c in plan.channels] == [((0, 1), 4, "ipc"), ((2, 3), 5, "ipc")]
    assert plan.trainings[0].execution == "graph"


@pytest.mark.parametrize(
    ("settings", "gmis"),
    [
        ((), (3, 1)),
        (("gmi_per_gpu = 2",), (1, 1)),
        (("trainers = 2",), (2, 2)),
        (("gmi_per_gpu = 5", "agents = 2"), (2, 3)),
    ],
)
def test_what_is_not_given_follows(settings, gmis):
    plan = planned(*settings)
    agents = sum("actor" in g.stages for g in plan.gmis)
    assert (agents, len(plan.gmis) - agents) == gmis


@pytest.mark.parametrize(
    ("settings", "target", "code", "message"),
    [
        (("gmi_per_gpu = 1",), "cpu", "E0501", "mapping `ea_t` splits a training over two GMIs or more"),
        (("gmi_per_gpu = 4", "agents = 2", "trainers = 1"), "cpu", "E0501", "2 agents and 1 trainers are not the 4"),
        (("agents = 7",), "cpu", "E0502", "num_env = 96 cannot be cut into 7 GMIs"),
        (("backend = green",), "h200", "E0503", "channels join GMIs of processes of their own"),
    ],
)
def test_what_cannot_be_is_said(settings, target, code, message):
    done = lowered(*settings, target=target)
    problems = [d for d in done.diagnostics if d.severity == "error"]
    assert [d.code for d in problems] == [code]
    assert problems[0].message.startswith(message)


@pytest.mark.parametrize(
    ("settings", "shares", "cores"),
    [
        (("agents = 1", "trainers = 1"), [0.5, 0.5], [2, 2]),
        (("agents = 1", "trainers = 1", "agent_share = 75 %"), [0.75, 0.25], [3, 1]),
        (("agents = 1", "trainers = 1", "agent_share = 25 %"), [0.25, 0.75], [1, 3]),
        (("agents = 2", "trainers = 1", "agent_share = 60 %"), [0.3, 0.3, 0.4], [1, 1, 2]),
        (("agents = 3", "trainers = 2", "agent_share = 90 %"), [0.3, 0.3, 0.3, 0.05, 0.05], [1, 1, 1, 1, 1]),
    ],
)
def test_agents_get_the_share_that_they_are_given(settings, shares, cores):
    gmis = planned(*settings).gmis
    assert [gmi.share for gmi in gmis] == pytest.approx(shares)
    assert [gmi.cores for gmi in gmis] == cores
    assert [gmi.threads for gmi in gmis] == cores


def test_by_measured_times_no_group_gets_less_than_a_tenth_of_the_others():
    """The trainer works for 1 % of the time: it gets 0.1 against 0.99, together a whole device."""
    workflow = lowered("agents = 1", "trainers = 1").mapped.workflow
    point = Point(template="dp_only", gmis=1, num_env=96, execution="eager", backend="cpu")
    seconds = {"simulate": 0.9, "infer": 0.09, "update": 0.01}
    mapped = map_workflow(workflow, Measurement(point=point, status="ok", steps_per_s=1.0, stage_s=seconds))
    assert mapped.shares == pytest.approx((0.99 / 1.09, 0.1 / 1.09))


def test_on_each_gpu_the_shares_are_the_same():
    plan = planned("agents = 2", "trainers = 1", "agent_share = 80 %", target="h200(gpus = 2)")
    assert [(gmi.device, gmi.share) for gmi in plan.gmis] == [
        (0, 0.4),
        (0, 0.4),
        (1, 0.4),
        (1, 0.4),
        (0, 0.2),
        (1, 0.2),
    ]


def test_a_share_leaves_something_to_both():
    problems = lowered("agents = 1", "agent_share = 100 %").diagnostics
    assert [(d.code, d.message) for d in problems] == [("E0408", "`agent_share` is at most 0.99, not 1")]


@given(
    cores=st.integers(1, 300),
    copies=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    share=st.floats(0.01, 0.99),
)
def test_cores_follow_the_shares_as_far_as_they_go(cores, copies, sizes, share):
    shares = (share, 1 - share)
    given = divide_cores(cores, [copies * size for size in sizes], shares)
    used = copies * sum(count * size for count, size in zip(given, sizes, strict=True))
    assert min(given) >= 1
    if cores < copies * sum(sizes):
        assert given == (1, 1)
        return
    assert used <= cores
    assert cores // copies - used // copies < max(sizes)  # no group could get one more for each
    for count, size, part in zip(given, sizes, shares, strict=True):
        # At most one more for each than its share, unless the rest is too little for the other group.
        assert count == 1 or (count - 1) * size <= part * cores / copies + max(sizes)


def test_why_async_does_not_part_simulators_from_trainers_alone_is_said():
    problem = lowered(overrides=[("target.mapping", "e_at")]).diagnostics[0]
    assert (problem.code, problem.message) == ("E0501", "mapping `e_at` is for sync workflows")
    assert "take turns there" in " ".join(problem.notes)


@pytest.mark.parametrize(
    ("mode", "mapping", "numbers", "steps", "rollouts"),
    [
        ("sync", "e_at", {}, [(0, 2), (1, 3)], []),  # four cores
        ("sync", "e_at", {"simulators": 3}, [(0, 3), (1, 4), (2, 5)], []),
        ("sync", "dp_mp", {"gmi_per_gpu": 3}, [(0, 1)], [((1,), 2)]),
        ("sync", "dp_mp", {"agents": 2, "trainers": 2}, [(0, 2), (1, 3)], [((2,), 4), ((3,), 5)]),
        ("async", "dp_mp", {"agents": 2}, [(0, 2), (1, 3)], [((2, 3), 4)]),
    ],
)
def test_simulators_apart_are_paired_with_their_agents(mode, mapping, numbers, steps, rollouts):
    """A simulator gives 4 observations, a reward and two flags there, and gets one action back."""
    text = SOURCE % (2, "block", "cpu", "")
    if mode == "sync":
        text = text.replace("async { max_staleness = 2 }", "sync").replace(" { depth = 3, on_full = block }", "")
    given = {"target.mapping": mapping, **{f"target.{name}": str(count) for name, count in numbers.items()}}
    options = Options(use_profiles=False, overrides=tuple(given.items()))
    done = compile_file("split.gmi", options, text=text, hardware=Hardware(cores=4, gpus=()), stop_after="plan")
    assert done.plan is not None, done.diagnostics
    channels = {carries: [c for c in done.plan.channels if c.carries == carries] for carries in ("step", "rollout")}
    assert [(c.producers[0], c.consumer) for c in channels["step"]] == steps
    assert [(c.producers, c.consumer) for c in channels["rollout"]] == rollouts
    assert [c.bytes for c in done.comm.channels if c.carries == "step"] == [
        c.num_env * (4 * 4 + 4 + 1 + 1 + 4) for c in channels["step"]
    ]


A3C = SOURCE.replace("std.algo.ppo", "std.algo.a3c").replace("ppo.", "a3c.")


def applied(*settings: str, on_full: str = "block", overrides=()):
    text = A3C % (2, on_full, "cpu", "\n  ".join(settings))
    options = Options(use_profiles=False, overrides=tuple(overrides))
    return compile_file("a3c.gmi", options, text=text, hardware=Hardware(cores=4, gpus=()), stop_after="plan")


@pytest.mark.parametrize(
    ("agents", "trainers", "channels"),
    [
        (2, 2, [((0,), 2, 0, 48), ((1,), 3, 48, 48)]),
        (3, 2, [((0, 1), 3, 0, 64), ((2,), 4, 64, 32)]),
        (4, 3, [((0, 1), 4, 0, 64), ((2,), 5, 64, 16), ((3,), 6, 80, 16)]),
    ],
)
def test_trainers_that_apply_gradients_have_agents_of_their_own(agents, trainers, channels):
    plan = applied(f"agents = {agents}", f"trainers = {trainers}").plan
    assert plan is not None
    assert [(c.producers, c.consumer, c.env_offset, c.num_env) for c in plan.channels] == channels
    assert (plan.trainings[0].update, plan.collectives) == ("apply", ())


def test_without_a_mapping_trainers_that_apply_gradients_are_apart():
    plan = applied("agents = 2", overrides=[("target.mapping", "auto")]).plan
    assert plan is not None and plan.trainings[0].mapping == "ea_t"


@pytest.mark.parametrize(
    ("settings", "on_full", "mapping", "code", "message"),
    [
        (("agents = 1", "trainers = 2"), "block", "ea_t", "E0501", "2 trainers that each apply gradients"),
        (("gmi_per_gpu = 2",), "block", "dp_only", "E0501", "2 GMIs with all roles would each train a policy"),
        (("agents = 2",), "drop_oldest", "ea_t", "E0407", "trainers that apply their gradients asynchronously"),
    ],
)
def test_what_does_not_go_with_applying_is_said(settings, on_full, mapping, code, message):
    done = applied(*settings, on_full=on_full, overrides=[("target.mapping", mapping)])
    problems = [d for d in done.diagnostics if d.severity == "error"]
    assert [d.code for d in problems] == [code]
    assert problems[0].message.startswith(message)


def test_replicas_are_grouped_once(monkeypatch):
    """The search takes a tenth of a second, and a run may have a thousand trainings."""
    searched: list[list[int]] = []

    def search(sizes, may_share):
        searched.append(sizes)
        return best_grouping(sizes, may_share)

    channel_lowering._grouping.cache_clear()
    monkeypatch.setattr(channel_lowering, "best_grouping", search)
    plan = planned("agents = 1", "trainers = 1", overrides=[("train.replicas", "5")])
    assert len(plan.channels) == 5 and len({channel.groups for channel in plan.channels}) == 1
    assert len(searched) == 1


def test_overlap_is_for_gmis_with_all_roles():
    done = lowered(target="h200", overrides=[("train.execution", "overlap")])
    assert [d.code for d in done.diagnostics if d.severity == "error"] == ["E0503"]
