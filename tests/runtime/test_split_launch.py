"""Split trainings as processes of their own: who is lost is replaced, or ends the run, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from plans import split_plan, training_plan, write_programs
from waiting import PATIENCE_S

from gmiflow.runtime.events import Event, Iteration, Replacing, Restarting
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.supervisor import Limits

pytestmark = pytest.mark.usefixtures("one_fork_server")


def run(tmp_path: Path, *, agents: int = 1, trainers: int = 1, limits: Limits | None = None, **changes):
    options = {"mode": "async", "max_staleness": 1, "checkpoint_every": 2, **changes}
    plan = split_plan(training_plan(**options), agents=agents, trainers=trainers)
    events: list[Event] = []
    programs = write_programs(plan, tmp_path / "programs")
    return run_plan(plan, programs, tmp_path / "run", on_event=events.append, limits=limits), events


def only(events: list[Event], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.usefixtures("mark")
def test_a_killed_agent_is_replaced_while_the_others_go_on(tmp_path: Path) -> None:
    result, events = run(tmp_path, agents=2, simulator="DyingOnce", on_failure="restart", iterations=8)
    assert (result.status, result.exit_code, result.restarts, result.failures) == ("finished", 0, 0, ())
    assert only(events, Replacing) == [
        Replacing(gmi=1, training="train", reason="killed by SIGKILL", replacement=1, limit=3)
    ]
    iterations = only(events, Iteration)
    assert [event.iteration for event in iterations] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [event.metrics["updates"] for event in iterations] == [1, 2, 3, 4, 5, 6, 7, 8]  # the trainer went on
    assert all(int(lag) <= 1 for event in iterations for lag in event.lags)

    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["replaced"] == {"1": 1}
    training = report["trainings"]["train"]
    assert training["weights"]["equal_on_all_gmis"]
    assert sum(training["lags"].values()) == 2 * 8
    assert training["training_samples_per_s"] > 0 and training["predictions_per_s"] > 0
    assert training["channels"]["received_bytes"] == 8 * 64 * (8 * (4 * 4 + 2 * 4 + 4 + 1 + 1) + 4)


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(
    ("simulator", "limits", "reason"),
    [
        ("HangingOnce", Limits(stuck_s=3.0), "hanging: sim has not come back from one call for "),
        ("StoppedOnce", Limits(silence_s=4.0), "silent for "),
    ],
)
def test_an_agent_that_hangs_is_replaced_as_one_that_died(tmp_path: Path, simulator: str, limits, reason: str) -> None:
    """Two trainers: one waits in their reduction for the other, which waits for the agent."""
    options = {"simulator": simulator, "on_failure": "restart", "iterations": 8}
    result, events = run(tmp_path, agents=2, trainers=2, limits=limits, **options)
    assert (result.status, result.exit_code, result.restarts, result.failures) == ("finished", 0, 0, ())
    (replacing,) = only(events, Replacing)
    assert (replacing.gmi, replacing.replacement, replacing.reason.startswith(reason)) == (1, 1, True)
    assert [event.metrics["updates"] for event in only(events, Iteration)] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.usefixtures("mark")
def test_a_killed_agent_ends_a_run_that_shall_stop(tmp_path: Path) -> None:
    result, _ = run(tmp_path, agents=2, simulator="DyingOnce", on_failure="stop", iterations=1000)
    assert (result.status, result.exit_code) == ("failed", 1)
    failure = result.failures[0].failure
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while sim was at work")


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(("on_failure", "status", "restarts"), [("restart", "finished", 1), ("stop", "failed", 0)])
def test_a_killed_trainer_restarts_or_stops_the_run(tmp_path: Path, on_failure, status: str, restarts: int) -> None:
    result, events = run(tmp_path, trainer="FallingOnce", on_failure=on_failure)
    assert (result.status, result.restarts, len(only(events, Restarting))) == (status, restarts, restarts)
    failure = result.failures[0].failure
    assert (failure.code, failure.message) == ("E0702", "GMI 1 was killed by SIGKILL while learner was at work")
    if restarts:
        assert only(events, Iteration)[-1].metrics["updates"] == 6


def applying(trainer: str, **changes) -> dict:
    """Two agents, each with a trainer that applies its gradients to what both share."""
    shared = {"trainer": f"point_mass_shared:{trainer}", "update": "apply", "max_staleness": 3}
    return {"agents": 2, "trainers": 2, **shared, **changes}


@pytest.mark.usefixtures("mark")
def test_where_gradients_are_applied_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    options = applying("Sharing", simulator="DyingOnce", on_failure="restart", iterations=8)
    result, events = run(tmp_path, **options)
    assert (result.status, result.exit_code, result.restarts, result.failures) == ("finished", 0, 0, ())
    assert [event.gmi for event in only(events, Replacing)] == [1]
    assert [event.iteration for event in only(events, Iteration)] == [1, 2, 3, 4, 5, 6, 7, 8]
    training = json.loads((tmp_path / "run" / "report.json").read_text())["trainings"]["train"]
    assert training["weights"]["equal_on_all_gmis"]
    assert sum(training["lags"].values()) == 2 * 8
    assert max(map(int, training["lags"])) <= 3


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(("on_failure", "status", "restarts"), [("restart", "finished", 1), ("stop", "failed", 0)])
def test_where_gradients_are_applied_a_killed_trainer_restarts_or_stops_the_run(
    tmp_path: Path, on_failure, status: str, restarts: int
) -> None:
    result, events = run(tmp_path, **applying("FallingOnce", on_failure=on_failure))
    assert (result.status, result.restarts, len(only(events, Restarting))) == (status, restarts, restarts)
    failure = result.failures[0].failure
    assert (failure.code, failure.message) == ("E0702", "GMI 2 was killed by SIGKILL while learner was at work")
    if restarts:
        assert only(events, Iteration)[-1].iteration == 6


def test_a_lost_trainer_is_named_with_its_channel(tmp_path: Path, mark: str) -> None:
    plan = split_plan(training_plan(trainer="FallingOnce", mode="async", max_staleness=1, iterations=1000))
    programs = write_programs(plan, tmp_path / "programs")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, str(programs / gmi.program), "--rendezvous", str(tmp_path / "meet")],
            env=environment,
            stderr=subprocess.PIPE,
        )
        for gmi in plan.gmis
    ]
    outputs = [process.communicate(timeout=PATIENCE_S)[1].decode() for process in started]
    assert [process.returncode for process in started] == [1, -9]
    assert "GMI 1 died while the channel train.experience.0 waited for it" in outputs[0]
    for file in leftovers.files(started[0].pid) + leftovers.files(started[1].pid):
        (Path("/dev/shm") / file).unlink()  # by hand nobody tidies up after a killed consumer
