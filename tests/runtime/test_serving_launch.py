"""Serve workflows as processes of their own: a lost GMI is named, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from pathlib import Path

import leftovers
import pytest
from plans import serve_plan, write_programs

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.events import Event, Iteration, Replacing, Restarting
from gmiflow.runtime.launch import run_plan

pytestmark = pytest.mark.usefixtures("one_fork_server")


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch, tmp_path: Path):
    """Marks all processes started by the test, and checks at its end that none is left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftovers.MARK, value)
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    yield
    assert leftovers.wait_for_none(value) == []
    assert leftovers.files(os.getpid()) == []


def run(tmp_path: Path, plan: LaunchPlan):
    events: list[Event] = []
    programs = write_programs(plan, tmp_path / "programs")
    return run_plan(plan, programs, tmp_path / "run", on_event=events.append), events


def test_a_killed_agent_is_named_and_ends_the_run(tmp_path: Path) -> None:
    plan = serve_plan("mp_dp", simulators=2, iterations=1000)
    training = plan.trainings[0]
    falling = dataclasses.replace(training.stages[1], entry="point_mass:FallingActor")
    training = dataclasses.replace(training, stages=(training.stages[0], falling))
    result, _ = run(tmp_path, dataclasses.replace(plan, trainings=(training,)))
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0].failure  # the cause; others may have been told before
    assert (failure.code, failure.message) == ("E0702", "GMI 2 was killed by SIGKILL while actor was at work")
    assert (failure.stage, failure.line) == ("actor", 9)


def test_a_killed_simulator_starts_the_run_again_where_the_file_says_so(tmp_path: Path) -> None:
    plan = serve_plan("mp_dp", simulators=2, simulator="DyingOnce", on_failure="restart", iterations=6)
    result, events = run(tmp_path, plan)
    assert (result.status, result.exit_code, result.restarts) == ("finished", 0, 1)
    failure = result.failures[0].failure  # the cause; others may have been told before
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while sim was at work")
    assert not any(isinstance(event, Replacing) for event in events)  # its peers cannot go on without it
    assert sum(isinstance(event, Restarting) for event in events) == 1
    iterations = [event.iteration for event in events if isinstance(event, Iteration)]
    assert iterations[-6:] == [1, 2, 3, 4, 5, 6]  # nothing is learned, so nothing is gone on from
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert not (tmp_path / "run" / "checkpoints").exists()
