"""Trainers that apply their gradients one by one (`update = apply`), in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import point_mass
import pytest
import torch
from in_process import Collector, lags_of, run_in_threads, weights_of
from plans import launch_plan, program_of, split_plan, training_plan
from point_mass_shared import Sharing

from gmiflow.api import StageContext
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.noise import CounterNoise
from gmiflow.runtime.split import make_runtime
from gmiflow.runtime.stages import build_trainer

SHARED: dict[str, Any] = {"trainer": "point_mass_shared:Sharing", "update": "apply", "mode": "async"}


def plan_of(*, agents: int = 2, trainers: int = 2, depth: int = 1, **changes: Any) -> LaunchPlan:
    return split_plan(training_plan(**{**SHARED, **changes}), agents=agents, trainers=trainers, depth=depth)


def run(*, options=None, **changes: Any) -> tuple[list[GMIRuntime], list[Collector]]:
    runtimes, collectors, errors = run_in_threads(plan_of(**changes), **(options or {}))
    assert errors == []
    return runtimes, collectors


def assert_equal(runtimes: list[GMIRuntime], expected: dict[str, torch.Tensor]) -> None:
    for runtime in runtimes:
        assert all(torch.equal(value, expected[name]) for name, value in weights_of(runtime).items())


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    """Weights after six updates of one GMI with all roles."""
    runtimes, _, errors = run_in_threads(launch_plan(training_plan(**SHARED), gmis=1))
    assert errors == []
    return weights_of(runtimes[0])


@pytest.mark.parametrize("agents", [1, 4])
def test_one_trainer_without_staleness_makes_the_updates_of_sync(alone, agents: int) -> None:
    runtimes, collectors = run(agents=agents, trainers=1, max_staleness=0, depth=3)
    assert_equal(runtimes, alone)
    assert lags_of(collectors) == {0: 6 * agents}


def in_turns(parts: int, updates: int) -> dict[str, torch.Tensor]:
    """Weights when the slices collect and update in turn, worked out with the stages alone."""
    size = 64 // parts
    policy, slices = None, []
    for part in range(parts):
        noise = CounterNoise(seed=7, num_env=size, env_offset=part * size, device=torch.device("cpu"))
        given: dict[str, Any] = {
            "stage": "stage",
            "device": torch.device("cpu"),
            "num_env": size,
            "env_offset": part * size,
            "num_env_total": 64,
            "horizon": 8,
            "stratum": 16,
            "seed": 7,
            "params": {"lr": 0.01},
            "shapes": {"O": 4, "A": 2},
            "communicator": LocalCollective.alone("turns", part),
            "noise": noise,
        }
        policy = policy or point_mass.Actor.make_policy(StageContext(**given))
        simulator, actor = point_mass.PointMass(), point_mass.Actor()
        for stage in (simulator, actor):
            stage.setup(StageContext(**given, policy=policy))
        slices.append((simulator, actor, simulator.reset()["obs"]))
    learner = Sharing()
    learner.setup(StageContext(**given, policy=policy))
    for _ in range(updates):
        for simulator, actor, obs in slices:
            record: dict[str, list[torch.Tensor]] = {}
            for _ in range(8):
                acted = actor.act({"obs": obs})
                values = {name: value.clone() for name, value in acted["experience"].items()}
                values |= {n: v.clone() for n, v in simulator.step({"action": acted["action"]}).items() if n != "obs"}
                for name, value in values.items():
                    record.setdefault(name, []).append(value)
            stacked = {name: torch.stack(value) for name, value in record.items()}
            batch = {**stacked, "experience": stacked, "bootstrap": actor.finish({"obs": obs})["bootstrap"]}
            learner.update(batch)
    return dict(policy.state_dict())


def test_without_staleness_the_trainers_update_in_turn() -> None:
    runtimes, collectors = run(max_staleness=0)
    assert_equal(runtimes, in_turns(2, 6))
    assert lags_of(collectors) == {0: 12}
    assert len({collector.of("Done")[0].checksum for collector in collectors}) == 1


@pytest.mark.parametrize(("staleness", "depth"), [(1, 1), (2, 1), (4, 3)])
def test_the_lag_never_exceeds_its_bound_beside_a_slow_trainer(staleness: int, depth: int) -> None:
    slow = "point_mass_shared:SlowFirst"
    runtimes, collectors = run(trainer=slow, agents=4, max_staleness=staleness, depth=depth, iterations=12)
    lags = lags_of(collectors)
    assert max(lags) <= staleness
    assert sum(lags.values()) == 4 * 12
    assert [runtime.iteration for runtime in runtimes] == [12] * 6
    assert {runtime._trainer.shared["updates"].item() for runtime in runtimes[4:]} == {24}  # each trainer's count
    assert len({collector.of("Done")[0].checksum for collector in collectors}) == 1


def test_a_stop_ends_all_trainers_at_the_same_iteration() -> None:
    stopping = {"collector": lambda gmi: Collector(stop_after=3 if gmi == 3 else None)}
    runtimes, collectors = run(max_staleness=3, iterations=1000, options=stopping)
    assert all(collector.of("Done")[0].stopped for collector in collectors)
    assert len({runtime.iteration for runtime in runtimes}) == 1
    assert 3 <= runtimes[0].iteration < 1000


def test_a_resumed_run_goes_on_exactly(tmp_path: Path) -> None:
    run(max_staleness=0, iterations=3, options={"run_dir": tmp_path})
    resumed = {"run_dir": tmp_path / "rest", "resume": tmp_path / "checkpoints" / "last"}
    runtimes, collectors = run(max_staleness=0, checkpoint_every=2, options=resumed)
    assert [collector.of("Ready")[0].iteration for collector in collectors] == [3] * 4
    assert [saved.iteration for saved in collectors[2].of("Saved")] == [4, 6]
    assert_equal(runtimes, in_turns(2, 6))


def test_checkpoints_hold_everybody_at_the_same_iteration(tmp_path: Path) -> None:
    changes = {"trainer": "point_mass_shared:SlowFirst", "max_staleness": 4, "depth": 2}
    run(checkpoint_every=2, options={"run_dir": tmp_path}, **changes)
    resumed = {"resume": tmp_path / "checkpoints" / "iter_000002"}
    runtimes, _ = run(options=resumed, **changes)
    assert {runtime._trainer.shared["updates"].item() for runtime in runtimes[2:]} == {12}
    assert [runtime.stages.simulator.tick.item() for runtime in runtimes[:2]] == [6 * 8] * 2


def test_a_rollout_that_is_not_learned_from_counts_all_the_same() -> None:
    runtimes, collectors = run(max_staleness=2, options={"gmi_class": point_mass.Alternating})
    assert {runtime._trainer.shared["updates"].item() for runtime in runtimes[2:]} == {6}
    assert sum(lags_of(collectors).values()) == 12


def test_a_trainer_that_cannot_share_is_refused() -> None:
    program = program_of(plan_of(trainer="Learner", agents=1, trainers=1), 1)
    control = LocalCollective.alone("control", 1)
    context = GMIContext(program=program, device=torch.device("cpu"), collectives={}, control=control)
    clock = StageClock(["sim", "actor", "learner"])
    with pytest.raises(GMIError, match=r"point_mass:Learner is not a subclass of gmiflow\.api\.SharedTrainer"):
        build_trainer(context, clock)
    assert clock.names[clock.current] == "learner"


def test_a_trainer_that_never_came_to_share_can_be_stopped() -> None:
    """As after any failure of its setup, which must not be covered by another one."""
    program = program_of(plan_of(agents=1, trainers=1), 1)
    control = LocalCollective.alone("control", 1)
    context = GMIContext(program=program, device=torch.device("cpu"), collectives={}, control=control)
    make_runtime(context, Collector()).stop()


def test_what_is_not_finite_is_found_where_it_is_trained_on() -> None:
    _, _, errors = run_in_threads(plan_of(simulator="NotANumber", max_staleness=1))
    assert any("is not finite" in str(problem) for problem in errors)
