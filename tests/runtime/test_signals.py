"""Signals to a launcher: what stops, how soon, and what is kept."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import leftovers
from launched import Launcher
from waiting import PATIENCE_S, until


def test_sigterm_saves_a_checkpoint_and_stops_everything(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, echo_s=PATIENCE_S)
    launcher.wait_for("Iteration 1")
    until(lambda: len(leftovers.processes(mark)) == 4, "launcher, fork server, two GMIs")
    for _ in range(2):  # as `timeout` does: to the process, then to its group
        launcher.process.send_signal(signal.SIGTERM)
    status, output = launcher.end()
    assert status == 143
    assert "Checkpoint" in output and "Failure" not in output
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "interrupted"
    assert leftovers.wait_for_none(mark) == []
    assert leftovers.files(launcher.process.pid) == []


def test_sigterm_does_not_wait_for_ever_for_the_end_of_an_iteration(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, simulator="Waiting", interrupt_s=1.0)
    launcher.wait_for("Started")
    launcher.process.send_signal(signal.SIGTERM)
    status, output = launcher.end()
    assert (status, "Checkpoint" in output) == (143, False)
    assert leftovers.wait_for_none(mark) == []


def test_what_a_simulator_detached_ends_with_the_run(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, simulator="Detaching", iterations=100_000)
    launcher.wait_for("Iteration 1")
    until(lambda: len(leftovers.processes(mark)) == 8, "launcher, fork server, two GMIs, two sleepers of each")
    launcher.process.send_signal(signal.SIGINT)
    status, _ = launcher.end()
    assert status == 130
    assert leftovers.wait_for_none(mark) == []


def test_ctrl_c_stops_at_an_iteration_boundary_and_saves(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, echo_s=PATIENCE_S)
    launcher.wait_for("Iteration 1")
    for _ in range(2):  # as `timeout -s INT` does: to the process, then to its group
        launcher.process.send_signal(signal.SIGINT)
    status, output = launcher.end()
    assert status == 130
    assert "Checkpoint" in output
    assert "Failure" not in output
    meta = json.loads((tmp_path / "run" / "checkpoints" / "last" / "meta.json").read_text())
    assert 1 <= meta["iteration"] < 1000
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "interrupted"
    assert leftovers.files(launcher.process.pid) == []


def test_ctrl_c_twice_does_not_wait(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, simulator="Waiting")
    launcher.wait_for("Started")
    launcher.process.send_signal(signal.SIGINT)
    launcher.wait_for("Stopping")
    launcher.process.send_signal(signal.SIGINT)
    status, _ = launcher.end()
    assert status == 130


def test_ctrl_c_while_starting_stops_at_once(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark, simulator="SlowSetup")
    until(lambda: list(tmp_path.glob("run/logs/gmi_*.log")), "the GMIs' logs")
    launcher.process.send_signal(signal.SIGINT)
    status, output = launcher.end()
    assert (status, "Iteration" in output) == (130, False)
    assert leftovers.wait_for_none(mark) == []


def test_a_fork_server_that_passes_nothing_on_does_not_keep_the_run_alive(tmp_path: Path, mark: str) -> None:
    launcher = Launcher(tmp_path, mark)
    launcher.wait_for("Iteration 1")
    children = Path(f"/proc/{launcher.process.pid}/task/{launcher.process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGSTOP)
    launcher.process.send_signal(signal.SIGTERM)
    launcher.wait_for("Stopping")
    launcher.process.send_signal(signal.SIGTERM)
    status, _ = launcher.end()
    assert status == 143
    assert leftovers.wait_for_none(mark) == []
