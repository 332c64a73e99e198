"""Joint replicas: trainings that share one simulator compute, resume and fail as with one each."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
import torch
from in_process import Collector, parameters_of, run_in_threads
from plans import launch_plan, training_plan
from point_mass import JoinableMass

from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.process import explain

SEEDS = (7, 8, 9)


def plan_of(*, joint, simulator="JoinableMass", actor="Actor", seeds=SEEDS, iterations=6, **changes):
    """Three trainings that differ in seed; ``iterations`` may be one number for each."""
    counts = (iterations,) * len(seeds) if isinstance(iterations, int) else iterations
    trainings = []
    for number, (seed, count) in enumerate(zip(seeds, counts, strict=True)):
        plan = training_plan(
            simulator=simulator, name=f"train.{number}", num_env=32, seed=seed, iterations=count, **changes
        )
        stages = tuple(
            dataclasses.replace(s, entry=f"point_mass:{actor}") if s.role == "agent" else s for s in plan.stages
        )
        trainings.append(dataclasses.replace(plan, stages=stages))
    plan = launch_plan(*trainings, gmis=1)
    if not joint:
        return plan
    return dataclasses.replace(plan, gmis=tuple(dataclasses.replace(gmi, host=0, joint=0) for gmi in plan.gmis))


def train(*, joint, collector=lambda gmi: Collector(), run_dir=None, resume=None, **changes):
    return run_in_threads(plan_of(joint=joint, **changes), collector=collector, run_dir=run_dir, resume=resume)


def progress(collector):
    return [(p.iteration, p.episodes, p.return_sum, p.length_sum, p.metrics) for p in collector.of("Progress")]


def require_equal(joint, apart, replicas=(0, 1, 2)):
    for number in replicas:
        assert torch.equal(parameters_of(joint[0][number]), parameters_of(apart[0][number]))
        assert progress(joint[1][number]) == progress(apart[1][number])


@pytest.fixture(scope="module")
def apart():
    return train(joint=False)


@pytest.fixture(scope="module")
def joint():
    return train(joint=True)


def test_each_replica_trains_as_with_a_simulator_of_its_own(joint, apart):
    assert not joint[2] and not apart[2]
    require_equal(joint, apart)
    assert len({tuple(parameters_of(runtime).tolist()) for runtime in joint[0]}) == len(SEEDS)
    (lowering,) = {tuple(message.lowering.items()) for messages in joint[1] for message in messages.of("Ready")}
    assert lowering == (("collect", "eager, joint with 2 other trainings"), ("learn", "eager"))


@pytest.mark.parametrize(("execution", "staleness"), [("graph", 0), ("overlap", 0), ("overlap", 1)])
def test_lowerings_of_joint_replicas_train_as_of_one_alone(execution, staleness):
    settings = {"execution": execution, "max_staleness": staleness, "mode": "async" if staleness else "sync"}
    together, alone = train(joint=True, **settings), train(joint=False, **settings)
    assert not together[2] and not alone[2]
    require_equal(together, alone)


@pytest.mark.parametrize("first", [True, False])
def test_what_was_saved_joint_is_resumed_apart_and_the_reverse(tmp_path: Path, first, apart):
    train(joint=first, run_dir=tmp_path, iterations=3)
    rest = train(joint=not first, resume=tmp_path)
    assert not rest[2]
    for number in range(len(SEEDS)):
        assert torch.equal(parameters_of(rest[0][number]), parameters_of(apart[0][number]))
        assert progress(rest[1][number]) == progress(apart[1][number])[3:]


def test_replicas_resume_from_different_iterations(tmp_path: Path, apart):
    """A restart finds what each has saved: here iterations 2, 4 and nothing."""
    train(joint=True, run_dir=tmp_path, iterations=(2, 4, 1))
    train(joint=False, run_dir=tmp_path / "none", iterations=1)
    plan = plan_of(joint=True)
    resume = {f"train.{n}": tmp_path / "checkpoints" / f"train.{n}" / "last" for n in range(2)}
    runtimes, collectors, errors = run_in_threads(plan, resume=resume)
    assert not errors
    require_equal((runtimes, [Collector()] * 3), (apart[0], [Collector()] * 3))
    assert [c.of("Progress")[0].iteration for c in collectors] == [3, 5, 1]


def test_replicas_that_end_early_leave_the_others_at_work(apart):
    together = train(joint=True, iterations=(6, 2, 4), collector=lambda gmi: Collector())
    assert not together[2]
    require_equal(together, apart, [0])
    assert [len(messages.of("Progress")) for messages in together[1]] == [6, 2, 4]


def test_a_stop_that_one_hears_first_saves_it_where_it_was(tmp_path: Path, apart):
    stops = {0: 2, 1: None, 2: 3}
    train(joint=True, run_dir=tmp_path, iterations=4, collector=lambda gmi: Collector(stops[gmi]))
    rest = train(joint=False, resume=tmp_path)
    assert not rest[2]
    require_equal((rest[0], [Collector()] * 3), (apart[0], [Collector()] * 3))


def test_numbers_that_are_not_finite_do_not_spoil_the_others(apart):
    together, alone = train(joint=True, trainer="ExplodingAlone"), train(joint=False, trainer="ExplodingAlone")
    (problem,), (expected,) = together[2], alone[2]
    assert isinstance(problem, GMIError)
    assert problem.failure == expected.failure
    assert problem.failure.code == "E0716"
    require_equal(together, apart, [0, 2])


@pytest.mark.parametrize("actor", ["RaisingActor", "UnreadyActor"])
def test_a_replica_whose_agent_fails_leaves_the_others_at_work(actor, apart):
    together = train(joint=True, actor=actor)
    assert [str(problem) for problem in together[2]] == ["no way to act" if actor == "RaisingActor" else "not ready"]
    require_equal(together, apart, [0, 2])
    runtime = together[0][1]
    failure = explain(together[2][0], runtime.context.program, runtime.clock)
    assert (failure.code, failure.stage) == ("E0701", "actor")


def test_one_thread_does_all_the_work_that_is_shared(monkeypatch):
    threads = set()
    step = JoinableMass.step

    def noted(self, inputs):
        threads.add(threading.get_ident())
        return step(self, inputs)

    monkeypatch.setattr(JoinableMass, "step", noted)
    assert not train(joint=True)[2]
    assert len(threads) == 1


def test_a_simulator_that_fails_is_told_once():
    runtimes, _, errors = train(joint=True, simulator="JoinableRaising")
    told = sorted((explain(e, r.context.program, r.clock).code for e, r in zip(errors, runtimes, strict=True)))
    assert told == ["E0701", "E0704", "E0704"]
    (cause,) = [problem for problem in errors if not isinstance(problem, GMIError)]
    assert str(cause) == "the mass left the table"
    assert "shares with GMI 0" in str(next(problem for problem in errors if isinstance(problem, GMIError)))


def test_a_simulator_whose_class_does_not_say_so_is_not_shared(apart):
    together = train(joint=True, simulator="PointMass")
    assert not together[2]
    require_equal(together, apart)
    assert together[1][0].of("Ready")[0].lowering["collect"] == "eager"


def test_a_state_without_rows_is_refused(tmp_path: Path):
    _, _, errors = train(joint=True, simulator="JoinableOneClock", run_dir=tmp_path, iterations=1)
    assert len(errors) == len(SEEDS)
    assert str(errors[0]) == "JoinableOneClock is `joinable`, but `tick` of its state has no row per environment"
