"""Simulators in GMIs of their own, as processes: who is lost is named, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path

import leftovers
import pytest
from launched import Launcher
from plans import apart_plan, training_plan, write_programs

from gmiflow.runtime.events import Event, Iteration, Replacing, Restarting
from gmiflow.runtime.launch import run_plan

pytestmark = pytest.mark.usefixtures("one_fork_server")


@pytest.fixture(autouse=True)
def mark(monkeypatch, tmp_path: Path):
    """Marks all processes started by the test, and checks at its end that none is left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftovers.MARK, value)
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    yield value
    assert leftovers.wait_for_none(value) == []
    assert leftovers.files(os.getpid()) == []


def run(tmp_path: Path, mapping: str, **changes):
    plan = apart_plan(training_plan(simulator="DyingOnce", checkpoint_every=2, **changes), mapping, pairs=2)
    events: list[Event] = []
    programs = write_programs(plan, tmp_path / "programs")
    return run_plan(plan, programs, tmp_path / "run", on_event=events.append), events


def test_a_killed_simulator_is_named_and_ends_the_run(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "dp_mp", iterations=1000)
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0].failure  # the cause; others may have been told before
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while sim was at work")
    assert (failure.stage, failure.line) == ("sim", 3)


def test_a_killed_simulator_starts_the_run_again_where_the_file_says_so(tmp_path: Path) -> None:
    result, events = run(tmp_path, "e_at", on_failure="restart", iterations=6)
    assert (result.status, result.exit_code, result.restarts) == ("finished", 0, 1)
    failure = result.failures[0].failure  # the cause; others may have been told before
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while sim was at work")
    assert not any(isinstance(event, Replacing) for event in events)  # its agent cannot go on without it
    assert sum(isinstance(event, Restarting) for event in events) == 1
    last = [event for event in events if isinstance(event, Iteration)][-1]
    assert (last.iteration, last.metrics["updates"]) == (6, 6)
    training = json.loads((tmp_path / "run" / "report.json").read_text())["trainings"]["train"]
    assert training["weights"]["equal_on_all_gmis"]
    assert training["channels"]["step_wait_s"] > 0 and training["channels"]["simulator_wait_s"] > 0


def test_ctrl_c_ends_all_with_a_checkpoint(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, mapping="e_at")
    launcher.wait_for("Iteration 1")
    launcher.process.send_signal(signal.SIGINT)
    status, output = launcher.end()
    assert (status, "Checkpoint" in output, "Failure" in output) == (130, True, False)
    saved = tmp_path / "run" / "checkpoints" / "last"
    assert sorted(file.name for file in saved.glob("environments_*")) == [
        "environments_00000000.safetensors", "environments_00000032.safetensors",
    ]  # fmt: skip
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "interrupted"
    assert leftovers.files(launcher.process.pid) == []
