"""GMIs that collect and GMIs that train: mapping `ea_t`, in one process and as processes of their own."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import point_mass
import pytest
import torch
from in_process import Collector, lags_of, run_in_threads, weights_of
from plans import launch_plan, program_of, split_plan, training_plan
from waiting import PATIENCE_S

from gmiflow.runtime.comm.channel.batcher import Batcher
from gmiflow.runtime.comm.channel.connect import open_links
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.migrator import Migrator
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.split.trainers import TrainerRuntime


def split(*, agents: int = 1, trainers: int = 1, depth: int = 1, drop: bool = False, run=None, **changes):
    plan = split_plan(training_plan(**changes), agents=agents, trainers=trainers, depth=depth, drop=drop)
    runtimes, collectors, errors = run_in_threads(plan, **(run or {}))
    assert errors == []
    return runtimes, collectors


@pytest.fixture(scope="module")
def synchronous() -> dict[str, torch.Tensor]:
    """Weights after six iterations of one GMI with all roles."""
    runtimes, _, errors = run_in_threads(launch_plan(training_plan(), gmis=1))
    assert errors == []
    return weights_of(runtimes[0])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_without_staleness_the_weights_are_those_of_sync(synchronous, mode: str) -> None:
    runtimes, collectors = split(mode=mode, max_staleness=0, depth=3)
    for runtime in runtimes:  # the agent has the last weights too
        assert all(torch.equal(value, synchronous[name]) for name, value in weights_of(runtime).items())
    assert lags_of(collectors) == {0: 6}
    assert len({collector.of("Done")[0].checksum for collector in collectors}) == 1


def test_several_agents_fill_one_slot(synchronous) -> None:
    runtimes, collectors = split(agents=4)
    assert all(torch.equal(value, synchronous[name]) for name, value in weights_of(runtimes[-1]).items())
    assert lags_of(collectors) == {0: 4 * 6}


@pytest.mark.parametrize(("agents", "trainers"), [(1, 2), (2, 2), (4, 2), (2, 4)])
def test_trainers_reduce_among_themselves(synchronous, agents: int, trainers: int) -> None:
    runtimes, _ = split(agents=agents, trainers=trainers)
    for runtime in runtimes:
        for name, value in weights_of(runtime).items():
            torch.testing.assert_close(value, synchronous[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("changes", [{}, {"trainer": "point_mass_shared:Sharing", "update": "apply", "mode": "async"}])
def test_the_first_iteration_of_trainers_begins_when_the_agents_are_ready(monkeypatch, changes) -> None:
    """Else its time would be that of setting up a simulator."""
    began, early = threading.Event(), []
    set_up, start_clock = point_mass.PointMass.setup, GMIRuntime._restart_clock

    def set_up_slowly(self, context) -> None:
        set_up(self, context)
        early.append(began.wait(0.3))

    def start(self) -> None:
        if isinstance(self, TrainerRuntime):
            began.set()
        start_clock(self)

    monkeypatch.setattr(point_mass.PointMass, "setup", set_up_slowly)
    monkeypatch.setattr(GMIRuntime, "_restart_clock", start)
    split(agents=2, trainers=2, **changes)
    assert early == [False, False]
    assert began.is_set()


SLOW_TRAINER: dict[str, Any] = {"simulator": "Counted", "trainer": "Patient", "mode": "async"}


@pytest.fixture
def ahead(monkeypatch):
    """Makes update k wait until every agent has made so many rollouts."""

    def set_rollouts(rollouts) -> None:
        monkeypatch.setattr(point_mass.Patient, "rollouts", staticmethod(rollouts))
        point_mass.Counted.steps.clear()

    return set_rollouts


@pytest.mark.parametrize("staleness", [1, 2, 4])
@pytest.mark.parametrize("agents", [1, 2])
def test_the_lag_never_exceeds_its_bound(ahead, staleness: int, agents: int) -> None:
    ahead(lambda update: min(update + 1 + staleness, 12))
    _, collectors = split(**SLOW_TRAINER, max_staleness=staleness, depth=8, agents=agents, iterations=12)
    # Rollouts 0 .. S are collected with version 0, and each further one with the version after.
    first = {lag: agents for lag in range(staleness)}
    assert lags_of(collectors) == {**first, staleness: agents * (12 - staleness)}


def test_the_depth_of_the_channel_bounds_the_lag_too(ahead) -> None:
    ahead(lambda update: min(update + 3, 10))
    _, collectors = split(**SLOW_TRAINER, max_staleness=4, depth=2, iterations=10)
    assert max(lags_of(collectors)) == 2


@pytest.mark.parametrize(("agents", "trainers"), [(1, 1), (2, 1), (1, 2)])
def test_the_oldest_may_be_dropped(ahead, agents: int, trainers: int) -> None:
    ahead(lambda update: 4 * (update + 1))
    runtimes, collectors = split(
        **SLOW_TRAINER, max_staleness=2, depth=2, drop=True, agents=agents, trainers=trainers, iterations=8
    )
    lags = lags_of(collectors)
    assert max(lags) <= 2
    assert sum(lags.values()) == 8 * max(agents, trainers)
    made = [collector.of("Done")[0].iteration for collector in collectors[:agents]]
    assert min(made) >= 4 * 8  # the agents did not wait for the trainer
    dropped = sum(progress.channels["dropped"] for c in collectors[:agents] for progress in c.of("Progress"))
    # What was trained on, what may be left in the channels, and what is dropped after the last report.
    kept = max(agents, trainers) * (8 + 2 + 2)
    assert dropped >= sum(made) * trainers - kept
    assert [runtime.iteration for runtime in runtimes[agents:]] == [8] * trainers


def test_a_stop_is_decided_by_the_trainers() -> None:
    runtimes, collectors = split(
        agents=2,
        mode="async",
        max_staleness=2,
        depth=2,
        iterations=1000,
        run={"collector": lambda gmi: Collector(stop_after=3 if gmi == 2 else None)},
    )
    assert runtimes[2].iteration == 4  # asked for once three are reported, so the fourth is the last
    assert all(collector.of("Done")[0].stopped for collector in collectors)
    assert all(4 <= runtime.iteration <= 4 + 2 for runtime in runtimes[:2])


@pytest.mark.parametrize("trainers", [1, 2])
def test_a_stopped_split_leaves_the_agents_where_the_trainer_is_and_goes_on_exactly(
    tmp_path: Path, synchronous, trainers: int
) -> None:
    stopping = {"run_dir": tmp_path, "collector": lambda gmi: Collector(stop_after=2 if gmi == 2 else None)}
    runtimes, _ = split(agents=2, trainers=trainers, iterations=6, run=stopping)
    assert [runtime.iteration for runtime in runtimes] == [3] * (2 + trainers)
    resumed = {"run_dir": tmp_path / "rest", "resume": tmp_path / "checkpoints" / "last"}
    runtimes, _ = split(agents=2, iterations=6, run=resumed)
    whole = synchronous if trainers == 1 else weights_of(split(agents=2, trainers=2, iterations=6)[0][2])
    tolerance = {"rtol": 0, "atol": 0} if trainers == 1 else {"rtol": 1e-5, "atol": 1e-6}
    for name, value in weights_of(runtimes[2]).items():
        torch.testing.assert_close(value, whole[name], **tolerance)


def test_a_resumed_split_continues_exactly(tmp_path: Path, synchronous) -> None:
    split(agents=2, iterations=3, run={"run_dir": tmp_path})
    resumed = {"run_dir": tmp_path / "rest", "resume": tmp_path / "checkpoints" / "last"}
    runtimes, collectors = split(agents=2, iterations=6, checkpoint_every=2, run=resumed)
    assert [collector.of("Ready")[0].iteration for collector in collectors] == [3, 3, 3]
    assert [saved.iteration for saved in collectors[2].of("Saved")] == [4, 6]
    assert [progress.iteration for progress in collectors[0].of("Progress")] == [4, 5, 6]
    assert all(torch.equal(value, synchronous[name]) for name, value in weights_of(runtimes[2]).items())


def test_a_split_that_is_resumed_at_its_end_ends(tmp_path: Path) -> None:
    """The trainer has nothing to do, and waits for agents that come late to tell them."""
    before, _ = split(agents=2, iterations=3, run={"run_dir": tmp_path})
    resumed = {"run_dir": tmp_path / "rest", "resume": tmp_path / "checkpoints" / "last"}
    runtimes, _ = split(agents=2, iterations=3, simulator="Tardy", run=resumed)
    assert all(torch.equal(value, weights_of(before[2])[name]) for name, value in weights_of(runtimes[0]).items())


def test_a_checkpoint_of_a_split_resumes_in_one_gmi(tmp_path: Path, synchronous) -> None:
    split(agents=2, iterations=3, run={"run_dir": tmp_path})
    whole = launch_plan(training_plan(iterations=6), gmis=1)
    runtimes, _, errors = run_in_threads(whole, resume=tmp_path / "checkpoints" / "last")
    assert errors == []
    assert all(torch.equal(value, synchronous[name]) for name, value in weights_of(runtimes[0]).items())


def test_what_is_not_finite_is_found_where_it_is_trained_on() -> None:
    plan = split_plan(training_plan(simulator="NotANumber"))
    _, _, errors = run_in_threads(plan)
    assert any("is not finite" in str(problem) for problem in errors)


def test_a_batch_stays_as_it_is_while_the_oldest_is_dropped(tmp_path) -> None:
    """Its slot was given back when it was taken, and the agent goes round all three: the batch is a copy."""
    plan = split_plan(training_plan(mode="async", max_staleness=2), agents=1, trainers=1, depth=2, drop=True)
    training, cpu, size = plan.trainings[0], torch.device("cpu"), {"env_offset": 0, "num_env": plan.gmis[0].num_env}
    rendezvous = Rendezvous.join(tmp_path)
    with contextlib.ExitStack() as stack:
        agent, trainer = (open_links(program_of(plan, gmi), rendezvous, cpu, PATIENCE_S, stack) for gmi in (0, 1))
        migrator = Migrator(agent, **size, max_staleness=2, device=cpu)
        batcher = Batcher(Dispenser(training), trainer, **size, device=cpu)
        for value in (1, 0, 0, 0):
            assert migrator.has_room(version=0)
            for tensor in migrator.storages[migrator.storage].values():
                tensor.fill_(value)
            migrator.deliver(version=0)
            if value == 1:
                taken = batcher.take()
        assert all(bool((tensor == 1).all()) for tensor in batcher.tensors(taken).values())
        migrator.close()
        batcher.close()
