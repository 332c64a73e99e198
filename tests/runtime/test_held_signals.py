"""Signals before the supervisor is at work, and after: nothing is cut short."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import leftovers
import pytest
from plans import launch_plan, training_plan, write_programs

from gmiflow.runtime.events import Event, Finished
from gmiflow.runtime.held_signals import held_signals
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.launchers.local import LocalLauncher

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalledEarly(LocalLauncher):
    """Hears a signal while it makes the slices, where a daemon would be half started."""

    def prepare(self, plan, run_dir, stack):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().prepare(plan, run_dir, stack)


@pytest.mark.usefixtures("mark")
def test_a_signal_before_anything_runs_ends_the_run_in_order(tmp_path: Path, mark: str) -> None:
    plan = launch_plan(training_plan(), gmis=2)
    programs, events = write_programs(plan, tmp_path / "programs"), list[Event]()
    result = run_plan(plan, programs, tmp_path / "run", on_event=events.append, launcher=SignalledEarly())
    assert (result.status, result.exit_code, result.failures) == ("interrupted", 128 + signal.SIGTERM, ())
    assert result.report.exists() and isinstance(events[-1], Finished)
    assert leftovers.wait_for_none(mark) == []
    assert leftovers.files(os.getpid()) == []


@pytest.fixture
def heard():
    """Numbers that this process' own handlers were called with."""
    numbers: list[int] = []
    before = {number: signal.signal(number, lambda number, _: numbers.append(number)) for number in CAUGHT}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("pass_on", [False, True])
def test_what_is_read_is_not_raised_again_and_what_is_not_only_if_asked(heard: list[int], pass_on: bool) -> None:
    with held_signals(pass_on=pass_on) as numbers:
        assert isinstance(numbers, socket.socket)
        for number in CAUGHT:
            signal.raise_signal(number)
        assert numbers.recv(64) == bytes(CAUGHT) and heard == []
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert heard == ([signal.SIGHUP] if pass_on else [])
    signal.raise_signal(signal.SIGTERM)
    assert heard[-1] == signal.SIGTERM


def test_what_is_ignored_stays_ignored(heard: list[int]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with held_signals(pass_on=True) as numbers:
        assert numbers is not None
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(BlockingIOError):
            numbers.recv(64)
    assert heard == [] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
