"""Trainings that only serve: the templates give the same steps, GMIs go at their own pace, and steps are timed."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import point_mass
import pytest
import torch
from in_process import Collector, run_in_threads
from plans import serve_plan
from waiting import PATIENCE_S

from gmiflow.hardware import Hardware
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.latency import buckets, quantile_s
from gmiflow.runtime.messages import Progress
from gmiflow.runtime.serving_statistics import ServingStatistics, jain_index

EXAMPLE = Path(__file__).parents[2] / "examples" / "ant_serve.gmi"


def ran(plan: LaunchPlan, **options: Any) -> tuple[list[GMIRuntime], list[Collector]]:
    runtimes, collectors, errors = run_in_threads(plan, **options)
    assert errors == []
    return runtimes, collectors


def recorded(mapping: str, **sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions and states of all steps, [time, env, ...], in order of environment."""
    plan = serve_plan(mapping, simulator="Recorded", **sizes)
    runtimes, _ = ran(plan)
    simulators = [r.stages.simulator for r in runtimes if "sim" in r.context.gmi.stages]
    assert all(isinstance(simulator, point_mass.Recorded) for simulator in simulators)
    actions, states = (
        torch.cat([torch.stack(getattr(simulator, name)) for simulator in simulators], 1)
        for name in ("actions", "states")
    )
    return actions, states


@pytest.fixture(scope="module")
def together() -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """What `dp_only` does, by number of GMIs."""
    return {gmis: recorded("dp_only", simulators=gmis) for gmis in (1, 2, 4)}


@pytest.mark.parametrize(
    ("mapping", "simulators", "agents"),
    [("mp_dp", 1, 1), ("mp_dp", 2, 1), ("mp_dp", 4, 2), ("dp_mp", 2, 2), ("dp_mp", 4, 4)],
)
def test_every_template_takes_the_same_steps(together, mapping: str, simulators: int, agents: int) -> None:
    """Bit by bit with as many simulator GMIs; a batch of another size may round differently in a matrix product."""
    actions, states = recorded(mapping, simulators=simulators, agents=agents)
    assert actions.shape == (6 * 8, 64, 2)
    assert torch.equal(actions, together[simulators][0]) and torch.equal(states, together[simulators][1])
    torch.testing.assert_close(states, together[1][1], rtol=1e-5, atol=1e-5)


def test_physics_and_a_network_take_the_same_steps_when_split() -> None:
    """Ant, whose contacts would show the least difference."""
    found: dict[str, torch.Tensor] = {}
    for mapping, gmis in (("dp_only", 2), ("mp_dp", 3), ("dp_mp", 4)):
        settings = {"mapping": mapping, "gmi_per_gpu": str(gmis), "simulators": "auto", "agents": "auto"}
        overrides = tuple((f"target.{name}", value) for name, value in settings.items())
        overrides += (("workflow.num_env", "32"), ("workflow.iterations", "2"), ("workflow.horizon", "8"))
        compilation = compile_file(str(EXAMPLE), Options(overrides=overrides), hardware=Hardware(cores=4, gpus=()))
        assert compilation.plan is not None
        runtimes, _ = ran(compilation.plan)
        simulators = [r.stages.simulator.state_dict() for r in runtimes if "sim" in r.context.gmi.stages]
        found[mapping] = torch.cat([value.double().flatten() for state in simulators for value in state.values()])
    assert len(found["dp_only"]) > 32 * 29  # positions and velocities
    assert torch.equal(found["mp_dp"], found["dp_only"]) and torch.equal(found["dp_mp"], found["dp_only"])


def test_what_is_reported() -> None:
    _, collectors = ran(serve_plan("mp_dp", simulators=2, iterations=3))
    for collector in collectors[:2]:
        reports = collector.of("Progress")
        assert [report.iteration for report in reports] == [1, 2, 3]
        assert all(sum(report.latencies.values()) == 8 for report in reports)  # the steps of an iteration
        assert all((report.env_steps, report.samples) == (8 * 32, 0) for report in reports)
        # 32 observations of four numbers there, and 32 actions of two back, at every step.
        assert all(report.channels["moved_bytes"] == 8 * 32 * (4 + 2) * 4 for report in reports)
    acting = collectors[2].of("Progress")
    assert [(report.iteration, report.env_steps, report.latencies) for report in acting] == [
        (1, 0, {}), (2, 0, {}), (3, 0, {}),
    ]  # fmt: skip
    assert collectors[2].of("Ready")[0].lowering == {"infer": "eager"}
    assert [collector.of("Done")[0].iteration for collector in collectors] == [3, 3, 3]


@pytest.mark.parametrize("mapping", ["dp_only", "mp_dp"])
def test_gmis_do_not_wait_for_each_other(mapping: str) -> None:
    """One simulator stands still until the other one has finished."""
    finished = threading.Event()

    class Watched(Collector):
        def send(self, message: Any) -> None:
            super().send(message)
            if type(message).__name__ == "Done" and message.gmi == 0:
                finished.set()

    class Stopped(point_mass.GMI):
        def run(self) -> None:
            if self.context.id == 1:
                assert finished.wait(PATIENCE_S)
            super().run()

    plan = serve_plan(mapping, simulators=2, iterations=4)
    _, collectors = ran(plan, gmi_class=Stopped, collector=lambda gmi: Watched())
    assert [len(collector.of("Progress")) for collector in collectors[:2]] == [4, 4]


@pytest.mark.parametrize("mapping", ["dp_only", "mp_dp", "dp_mp"])
def test_a_stop_ends_at_an_iteration(mapping: str) -> None:
    plan = serve_plan(mapping, simulators=2, agents=2 if mapping == "dp_mp" else 1, iterations=10**6)
    _, collectors = ran(plan, collector=lambda gmi: Collector(stop_after=3))
    assert [collector.of("Done")[0].stopped for collector in collectors[:2]] == [True, True]
    assert all(len(collector.of("Done")) == 1 for collector in collectors)


def test_graphs_that_cannot_be_are_told_and_change_nothing(together) -> None:
    """Without a GPU every part of `execution = graph` runs eagerly; the parts are those that a GPU captures."""
    plan = serve_plan("mp_dp", simulators=2, simulator="Recorded", execution="graph")
    runtimes, collectors = ran(plan)
    assert [collector.of("Ready")[0].lowering for collector in collectors] == [
        {"simulate": "eager: no CUDA device"},
        {"simulate": "eager: no CUDA device"},
        {"infer": "eager: Actor.act may wait for the device (capturable is False)"},
    ]
    inner = [runtime.stages.simulator._simulator for runtime in runtimes[:2]]
    assert torch.equal(torch.cat([torch.stack(simulator.states) for simulator in inner], 1), together[2][1])


def test_actions_of_another_type_are_refused_by_the_agents_gmi() -> None:
    plan = serve_plan("mp_dp")
    stages = plan.trainings[0].stages
    wrong = dataclasses.replace(stages[1], entry="point_mass:ShapelessActor")
    plan = dataclasses.replace(plan, trainings=(dataclasses.replace(plan.trainings[0], stages=(stages[0], wrong)),))
    _, _, errors = run_in_threads(plan)
    failures = [problem.failure for problem in errors if isinstance(problem, GMIError)]
    assert "E0708" in {failure.code for failure in failures}
    assert any("actor.action is declared f32[64, 2]" in failure.message for failure in failures)


def with_agent(plan: LaunchPlan, entry: str, **params: Any) -> LaunchPlan:
    training = plan.trainings[0]
    agent = dataclasses.replace(training.stages[1], entry=entry, params=params)
    return dataclasses.replace(
        plan, trainings=(dataclasses.replace(training, stages=(training.stages[0], agent, *training.stages[2:])),)
    )


@pytest.mark.parametrize("mapping", ["dp_only", "mp_dp"])
def test_deterministic_actions_are_the_means_of_the_policy(mapping: str) -> None:
    """The module itself says what they are, for the state that the step before led to."""
    plan = serve_plan(mapping, simulator="Recorded", deterministic=True, iterations=2)
    runtimes, _ = ran(with_agent(plan, "gmiflow.rl.ppo:Actor", hidden=[8]))
    simulator = runtimes[0].stages.simulator
    assert isinstance(simulator, point_mass.Recorded)
    policy = runtimes[-1]._policy
    with torch.no_grad():
        mean, deviation, _ = policy(torch.stack(simulator.states[:-1]))
    assert deviation.min() > 0.9  # drawn actions would be far from the mean
    torch.testing.assert_close(torch.stack(simulator.actions[1:]), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mapping", ["dp_only", "mp_dp"])
def test_an_agent_that_always_draws_is_refused_where_it_shall_not(mapping: str) -> None:
    _, _, errors = run_in_threads(serve_plan(mapping, deterministic=True))
    failures = [problem.failure for problem in errors if isinstance(problem, GMIError)]
    assert {failure.code for failure in failures} >= {"E0710"}
    assert any("point_mass:Actor does not" in failure.message for failure in failures)


def test_quantiles_are_those_of_the_times() -> None:
    """1 ms to 100 ms: the nearest-rank percentiles are known, and buckets are 1 % wide."""
    counts = buckets(millisecond / 1000 for millisecond in range(1, 101))
    for percent in (50, 95, 99, 100):
        assert quantile_s(counts, percent) == pytest.approx(percent / 1000, rel=0.0051)
    assert quantile_s(buckets([0.0]), 50) == pytest.approx(1e-9, rel=0.01)  # a clock may stand still
    with pytest.raises(ValueError, match="no step"):
        quantile_s({}, 50)


def test_jains_index() -> None:
    """By hand: (1+2+3)^2 / (3 * 14) = 36/42; equal shares give 1, all for one of four gives 1/4."""
    assert jain_index([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)
    assert jain_index([5.0, 5.0]) == 1.0
    assert jain_index([0.0, 7.0, 0.0, 0.0]) == 0.25


def report(gmi: int, iteration: int, seconds: float, env_steps: int) -> Progress:
    latencies = {str(bucket): count for bucket, count in buckets([seconds / 4] * 4).items()}
    return Progress(
        gmi=gmi, iteration=iteration, env_steps=env_steps, iteration_s=seconds, collect_s=seconds, learn_s=0.0,
        communicate_s=0.0, episodes=0, return_sum=0.0, length_sum=0.0, stage_s={}, metrics={}, diagnostics={},
        latencies=latencies,
    )  # fmt: skip


def test_gmis_are_compared_while_all_run() -> None:
    """GMI 0 takes 1 s for an iteration and GMI 1 takes 2 s; the first of each is warm-up and takes 10 s.

    All run from 10 s to 14 s. Meanwhile GMI 0 makes 4 iterations of 100 steps, 100 per second, and GMI 1 two, 50 per
    second. Jain: 150^2 / (2 * 12500) = 0.9.
    """
    gmis = serve_plan("dp_only", simulators=2).gmis
    statistics = ServingStatistics(gmis, warm_up=1)
    assert statistics.summary() is None
    for gmi, seconds, iterations in ((0, 1.0, 4), (1, 2.0, 4)):
        statistics.add(report(gmi, 1, 10.0, 100))
        for iteration in range(2, 2 + iterations):
            statistics.add(report(gmi, iteration, seconds, 100))
    summary = statistics.summary()
    assert summary is not None
    assert {gmi: found.steps_per_s for gmi, found in summary.gmis.items()} == {0: 100.0, 1: 50.0}
    assert (summary.steps_per_s, summary.slowest_steps_per_s, summary.fastest_steps_per_s) == (150.0, 50.0, 100.0)
    assert summary.fairness == pytest.approx(0.9)
    assert summary.gmis[1].latency_ms == pytest.approx({"p50": 500.0, "p95": 500.0, "p99": 500.0}, rel=0.0051)
    assert [found.timed_steps for found in summary.gmis.values()] == [16, 16]  # without the warm-up


def test_an_uneven_cut_is_not_unfair() -> None:
    gmis = [
        dataclasses.replace(gmi, num_env=size)
        for gmi, size in zip(serve_plan(simulators=2).gmis, (48, 16), strict=True)
    ]
    statistics = ServingStatistics(gmis, warm_up=0)
    for gmi in gmis:
        statistics.add(report(gmi.id, 1, 1.0, 10 * gmi.num_env))
    summary = statistics.summary()
    assert summary is not None
    assert (summary.fairness, summary.slowest_steps_per_s, summary.fastest_steps_per_s) == (1.0, 160.0, 480.0)
