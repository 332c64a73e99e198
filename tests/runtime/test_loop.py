"""The run loop on one and several GMIs of one process."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from in_process import Collector, parameters_of, run_in_threads
from plans import EDGES, launch_plan, training_plan

from gmiflow.runtime import GMI
from gmiflow.runtime.failure import GMIError


def run_one(**options):
    plan = launch_plan(training_plan(**options), gmis=1)
    (runtime,), (collector,), errors = run_in_threads(plan)
    return runtime, collector, errors


def failure_of(**options):
    _, _, errors = run_one(**options)
    assert len(errors) == 1 and isinstance(errors[0], GMIError), errors
    return errors[0].failure


def test_one_gmi_makes_its_iterations_and_learns() -> None:
    _, collector, errors = run_one(iterations=60, num_env=64)
    assert not errors
    progress = collector.of("Progress")
    assert [p.iteration for p in progress] == list(range(1, 61))
    assert {p.env_steps for p in progress} == {64 * 8}
    assert progress[-1].metrics["updates"] == 60
    assert progress[-1].diagnostics == {"overflows": 0.0}
    first = [p for p in progress[:20] if p.episodes]
    last = [p for p in progress[-20:] if p.episodes]
    mean = [sum(p.return_sum for p in part) / sum(p.episodes for p in part) for part in (first, last)]
    assert mean[1] > mean[0]
    assert collector.of("Done")[0].iteration == 60


@pytest.mark.parametrize("gmis", [2, 4])
def test_slicing_changes_nothing(gmis: int) -> None:
    (one,), _, errors = run_in_threads(launch_plan(training_plan(), gmis=1))
    runtimes, collectors, more = run_in_threads(launch_plan(training_plan(), gmis=gmis))
    assert not errors and not more
    for runtime in runtimes:
        assert torch.equal(parameters_of(runtime), parameters_of(runtimes[0]))
        torch.testing.assert_close(parameters_of(runtime), parameters_of(one), rtol=1e-5, atol=1e-6)
    assert len({c.of("Done")[0].checksum for c in collectors}) == 1


def test_episodes_are_those_of_a_step_by_step_count() -> None:
    rewards, ends = [], []

    class Watching(GMI):
        def run(self) -> None:
            for _ in self.runtime.iterations():
                self.runtime.collect()
                rollout = self.runtime._execution.rollout
                rewards.extend(rollout.reward.double().clone())
                ends.extend((rollout.terminated | rollout.truncated).clone())
                self.runtime.learn()

    plan = launch_plan(training_plan(num_env=16, iterations=9), gmis=1)
    _, (collector,), errors = run_in_threads(plan, gmi_class=Watching)
    assert not errors
    episodes, return_sum, length_sum = 0, 0.0, 0
    for env in range(16):
        running, length = 0.0, 0
        for reward, end in zip(rewards, ends, strict=True):
            running, length = running + reward[env].item(), length + 1
            if end[env]:
                episodes, return_sum, length_sum = episodes + 1, return_sum + running, length_sum + length
                running, length = 0.0, 0
    progress = collector.of("Progress")
    assert episodes > 30
    assert sum(p.episodes for p in progress) == episodes
    assert sum(p.length_sum for p in progress) == length_sum
    assert sum(p.return_sum for p in progress) == pytest.approx(return_sum, rel=1e-9)


def test_times_add_up_to_the_stages() -> None:
    _, collector, _ = run_one(simulator="Slow", iterations=2, num_env=16)
    for progress in collector.of("Progress"):
        assert progress.stage_s["sim"] >= 8 * 0.02
        assert progress.collect_s >= progress.stage_s["sim"]
        assert progress.communicate_s == 0
        assert set(progress.stage_s) == {"runtime", "sim", "actor", "learner"}


def test_all_gmis_stop_at_the_same_iteration() -> None:
    plan = launch_plan(training_plan(iterations=1000), gmis=2)
    runtimes, collectors, errors = run_in_threads(plan, collector=lambda gmi: Collector(5 if gmi == 1 else None))
    assert not errors
    assert runtimes[0].iteration == runtimes[1].iteration >= 5
    assert all(c.of("Done")[0].stopped for c in collectors)


def test_two_trainings_do_not_meet() -> None:
    first, second = training_plan(name="a"), training_plan(name="b", seed=8)
    runtimes, _, errors = run_in_threads(launch_plan(first, second, gmis=2))
    assert not errors
    assert torch.equal(parameters_of(runtimes[0]), parameters_of(runtimes[1]))
    assert not torch.equal(parameters_of(runtimes[0]), parameters_of(runtimes[2]))


def test_serving_needs_no_trainer() -> None:
    plan = training_plan(iterations=3)
    inner = tuple(e for e in EDGES if "learner" not in e.source + e.target)
    plan = dataclasses.replace(plan, mode="serve", stages=plan.stages[:2], edges=inner)
    _, (collector,), errors = run_in_threads(launch_plan(plan, gmis=1))
    assert not errors
    assert sum(p.episodes for p in collector.of("Progress")) > 0
    assert collector.of("Progress")[0].metrics == {}


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        ("WrongShape", "sim.reward is declared f32[16] on cpu, but the stage returned f32[16, 1] on cpu"),
        ("WrongType", "sim.reward is declared f32[16] on cpu, but the stage returned f64"),
        ("Forgetful", "sim.truncated is declared, but the stage did not return it"),
    ],
)
def test_ports_are_checked_against_their_types(simulator: str, message: str) -> None:
    failure = failure_of(simulator=simulator, num_env=16)
    assert failure.code == "E0708"
    assert failure.message.startswith(message)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("NoSuchClass", "the module point_mass has no class NoSuchClass"),
        ("NotAStage", "point_mass:NotAStage is not a subclass of gmiflow.api.Simulator"),
    ],
)
def test_entries_that_cannot_be_used(entry: str, message: str) -> None:
    failure = failure_of(simulator=entry)
    assert (failure.code, failure.message) == ("E0709", message)


def test_a_missing_module_is_named() -> None:
    plan = training_plan()
    stages = (dataclasses.replace(plan.stages[0], entry="no_such_module.inner:Sim"), *plan.stages[1:])
    _, _, errors = run_in_threads(launch_plan(dataclasses.replace(plan, stages=stages), gmis=1))
    assert errors[0].failure.message == "there is no Python module no_such_module"


def test_gmis_that_drift_apart_are_reported() -> None:
    _, _, errors = run_in_threads(launch_plan(training_plan(trainer="Diverging"), gmis=2))
    assert {error.failure.code for error in errors} == {"E0706"}


def test_roles_split_over_gmis_are_refused() -> None:
    plan = launch_plan(training_plan(mapping="ea_t"), gmis=1)
    own = dataclasses.replace(plan.gmis[0], stages=("sim", "actor"))
    _, _, errors = run_in_threads(dataclasses.replace(plan, gmis=(own,)))
    assert errors[0].failure.code == "E0710"
    assert errors[0].failure.message == "the mapping ea_t splits roles over GMIs"
