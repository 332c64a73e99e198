"""Training whose simulators are in GMIs of their own: mappings `e_at` and `dp_mp`, GMIs as threads of one process."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import Collector, run_in_threads, weights_of
from plans import apart_plan, launch_plan, split_plan, training_plan

from gmiflow.plan import LaunchPlan, PlanError
from gmiflow.plan_check import read_plan
from gmiflow.runtime.core import GMI, GMIRuntime
from gmiflow.runtime.failure import GMIError

STEP_BYTES = 64 * (4 * 4 + 4 + 1 + 1 + 2 * 4)
"""Of 64 environments: four observations, the reward and two flags there, two actions back."""


def ran(plan: LaunchPlan, **options: Any) -> tuple[list[GMIRuntime], list[Collector]]:
    assert read_plan(plan.to_json()) == plan
    runtimes, collectors, errors = run_in_threads(plan, **options)
    assert errors == []
    return runtimes, collectors


def whole(gmis: int = 1, **changes: Any) -> dict[str, torch.Tensor]:
    """Weights when every GMI has all roles."""
    return weights_of(ran(launch_plan(training_plan(**changes), gmis=gmis))[0][-1])


def equal(runtimes: list[GMIRuntime], wanted: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, wanted[name]) for r in runtimes for name, value in weights_of(r).items())


def test_agents_and_trainers_apart_from_their_simulators_learn_what_all_roles_together_learn() -> None:
    """Trainers and partition are those of `dp_only`, so that every sum is made in the same order."""
    for pairs in (1, 2):
        runtimes, collectors = ran(apart_plan(training_plan(), "e_at", pairs=pairs))
        assert equal(runtimes[pairs:], whole(gmis=pairs)), pairs
    simulating, acting = (collector.of("Progress") for collector in (collectors[0], collectors[-1]))
    assert [report.iteration for report in simulating] == [report.iteration for report in acting] == [1, 2, 3, 4, 5, 6]
    assert {report.channels["moved_bytes"] for report in simulating} == {8 * STEP_BYTES / pairs}
    assert all(report.channels["simulator_wait_s"] >= 0 and report.env_steps == 0 for report in simulating)
    assert all(0 < report.channels["step_wait_s"] <= report.collect_s for report in acting)
    assert sum(report.episodes for collector in collectors for report in collector.of("Progress")) > 0
    lowerings = [collector.of("Ready")[0].lowering for collector in collectors]
    assert lowerings == [{"simulate": "eager"}] * 2 + [{"infer": "eager", "learn": "eager"}] * 2


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_role_in_gmis_of_its_own_learns_what_all_roles_together_learn(mode: str) -> None:
    wanted = whole()
    for pairs in (1, 2):
        runtimes, _ = ran(apart_plan(training_plan(mode=mode), "dp_mp", pairs=pairs))
        assert equal(runtimes[pairs:], wanted), pairs  # one trainer, whose minibatches are those of `dp_only`


def test_several_trainers_behind_agents_apart_reduce_as_with_ea_t() -> None:
    wanted = weights_of(ran(split_plan(training_plan(), agents=2, trainers=2))[0][-1])
    assert equal(ran(apart_plan(training_plan(), "dp_mp", pairs=2, trainers=2))[0][2:], wanted)


def test_experience_gets_no_older_than_allowed() -> None:
    plan = apart_plan(training_plan(mode="async", max_staleness=1, iterations=12), "dp_mp", pairs=2)
    _, collectors = ran(plan)
    lags = {lag for collector in collectors for report in collector.of("Progress") for lag in report.lags}
    assert lags and lags <= {"0", "1"}
    assert [collector.of("Done")[0].iteration for collector in collectors] == [12] * 5


def test_trainers_that_apply_their_gradients_take_agents_apart_too() -> None:
    shared = {"trainer": "point_mass_shared:Sharing", "update": "apply", "mode": "async", "max_staleness": 3}
    plan = apart_plan(training_plan(**shared), "dp_mp", pairs=2, trainers=2)
    _, collectors = ran(plan)
    assert [collector.of("Done")[0].iteration for collector in collectors] == [6] * 6
    assert len({collector.of("Done")[0].checksum for collector in collectors[2:]}) == 1
    lags = {int(lag) for collector in collectors for report in collector.of("Progress") for lag in report.lags}
    assert max(lags) <= 3


def test_a_plan_whose_trainers_would_each_have_a_policy_of_their_own_is_refused() -> None:
    shared = {"trainer": "point_mass_shared:Sharing", "update": "apply"}
    plan = dataclasses.replace(apart_plan(training_plan(**shared), "e_at", pairs=2), collectives=())
    with pytest.raises(PlanError, match=r"GMIs 2, 3 run its trainer, and without channels of rollouts one can"):
        read_plan(plan.to_json())


@pytest.mark.parametrize(("mapping", "pairs"), [("e_at", 1), ("e_at", 2), ("dp_mp", 2)])
def test_a_resumed_run_learns_what_an_uninterrupted_one_learns(tmp_path: Path, mapping: str, pairs: int) -> None:
    def plan(iterations: int) -> LaunchPlan:
        return apart_plan(training_plan(iterations=iterations, checkpoint_every=3), mapping, pairs=pairs)

    straight, _ = ran(plan(6), run_dir=tmp_path / "straight")
    ran(plan(3), run_dir=tmp_path / "first")
    resumed, collectors = ran(plan(6), run_dir=tmp_path / "second", resume=tmp_path / "first")
    assert equal(resumed[pairs:], weights_of(straight[-1]))
    assert {collector.of("Ready")[0].iteration for collector in collectors[:pairs]} == {3}
    assert not any(collector.of("Ready")[0].new_episodes for collector in collectors)
    # A checkpoint does not tell how roles were mapped: GMIs with all roles go on from it, too.
    together, _ = ran(launch_plan(training_plan(), gmis=1), resume=tmp_path / "first")
    for name, value in weights_of(together[0]).items():
        torch.testing.assert_close(value, weights_of(straight[-1])[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("saved", "changed", "refusal"),
    [
        ("dp_only", {"simulator": "RenamedMass"}, "the state of sim in .* is that of another stage"),
        ("e_at", {"simulator": "RenamedMass"}, "the state of sim in the checkpoint is that of another stage"),
        ("ea_t", {"trainer": "WiderLearner"}, "the state of learner in .* is that of another stage"),
    ],
)
def test_the_state_of_another_stage_is_no_failure_of_the_stage(
    tmp_path: Path, saved: str, changed: dict[str, str], refusal: str
) -> None:
    def plan(**changes: Any) -> LaunchPlan:
        training = training_plan(iterations=1, **changes)
        if saved == "ea_t":
            return split_plan(training, agents=1, trainers=1)
        return launch_plan(training, gmis=1) if saved == "dp_only" else apart_plan(training, saved)

    ran(plan(), run_dir=tmp_path)
    _, _, errors = run_in_threads(plan(**changed), resume=tmp_path)
    found = [problem.failure for problem in errors if isinstance(problem, GMIError) and problem.failure.code == "E0707"]
    assert len(found) == 1 and re.search(refusal, found[0].message), errors
    ran(plan(**changed), run_dir=tmp_path / "own")
    ran(plan(**changed), resume=tmp_path / "own")


def test_a_stop_ends_all_at_one_iteration() -> None:
    for mapping in ("e_at", "dp_mp"):
        plan = apart_plan(training_plan(iterations=10**6), mapping, pairs=2)
        _, collectors = ran(plan, collector=lambda gmi: Collector(stop_after=3))
        assert len({collector.of("Done")[0].iteration for collector in collectors}) == 1
        assert [collector.of("Done")[0].stopped for collector in collectors[2:]] == [True] * (len(collectors) - 2)


@pytest.mark.parametrize("mapping", ["e_at", "dp_mp"])
def test_a_loop_that_only_collects_ends_in_order_and_its_steps_are_counted(mapping: str) -> None:
    class OnlyCollecting(GMI):
        def run(self) -> None:
            for _ in self.runtime.iterations():
                self.runtime.collect()

    plan = apart_plan(training_plan(iterations=3), mapping)
    _, collectors = ran(plan, gmi_class=OnlyCollecting)
    assert {collector.of("Done")[0].iteration for collector in collectors} == {3}
    assert [report.env_steps for report in collectors[1].of("Progress")] == [64 * 8] * 3


def test_graphs_that_cannot_be_are_told_and_change_nothing() -> None:
    """Without a GPU every part of `execution = graph` runs eagerly; the parts are those that a GPU captures."""
    runtimes, collectors = ran(apart_plan(training_plan(execution="graph"), "e_at"))
    assert equal(runtimes[1:], whole())
    assert [collector.of("Ready")[0].lowering for collector in collectors] == [
        {"simulate": "eager: no CUDA device"},
        {
            "infer": "eager: Actor.act may wait for the device (capturable is False)",
            "learn": "eager: Learner.update may wait for the device (capturable is False)",
        },
    ]


def test_ports_of_another_type_are_refused_by_the_gmi_that_made_them() -> None:
    """At once also where lost agents are replaced: without its simulator this one is not."""
    training = dataclasses.replace(training_plan(simulator="WrongShape"), on_failure="restart")
    _, _, errors = run_in_threads(apart_plan(training, "e_at"))
    failures = [problem.failure for problem in errors if isinstance(problem, GMIError)]
    assert {failure.code for failure in failures} == {"E0708", "E0704"}  # the other one misses it


def test_plans_whose_pairs_do_not_match_are_refused() -> None:
    plan = apart_plan(training_plan(), "e_at", pairs=2)
    steps = plan.channels[0]
    for channels, said in (
        (plan.channels[:1], "GMIs 0, 1 simulate alone, and channels come from 0"),
        ((dataclasses.replace(steps, consumer=3), plan.channels[1]), "GMI 3 does not act for all environments"),
        ((dataclasses.replace(steps, carries="rollout"), plan.channels[1]), "GMI 0 does not run the agent alone"),
    ):
        with pytest.raises(ValueError, match=said):
            read_plan(dataclasses.replace(plan, channels=channels).to_json())
    both = dataclasses.replace(plan.gmis[2], num_env=64)
    steps = tuple(dataclasses.replace(channel, consumer=2) for channel in plan.channels)
    with pytest.raises(ValueError, match="GMI 2 acts for others than GMI 0 too"):
        read_plan(dataclasses.replace(plan, gmis=(*plan.gmis[:2], both), channels=steps, collectives=()).to_json())
