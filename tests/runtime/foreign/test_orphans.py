"""Whichever process of a run is killed outright: everything else ends, files go, and the message names who died.

The run has every kind of process that gmiflow starts: a launcher, a fork server, GMIs, an interpreter of their own for
their simulators; and each simulator has started two processes that left its group, one of them nobody's child.
"""

import os
import re
import signal
from pathlib import Path

import leftovers
import pytest
from launched import Launcher
from waiting import until

PROCESSES = 2 + 2 * (2 + 2)


def child_of(pid, word):
    """The child of a process whose command line holds a word."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if word in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise AssertionError(f"{pid} has no child {word}")


VICTIMS = {
    "the launcher": (lambda launcher, gmi: launcher, ""),
    "the fork server": (
        lambda launcher, gmi: child_of(launcher, "forkserver"),
        "Failure E0711 the fork server was killed by SIGKILL",
    ),
    "a GMI": (  # in a stage, or between two
        lambda launcher, gmi: gmi,
        r"Failure E0702 GMI 1 was killed by SIGKILL(?: while (?:sim|actor|learner) was at work)?$",
    ),
    "an interpreter": (
        lambda launcher, gmi: child_of(gmi, "gmiflow_shim"),
        "Failure E0718 the interpreter of sim was killed by SIGKILL during a step",
    ),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_process_is_named_and_nothing_is_left(tmp_path, mark, python, victim):
    choose, message = VICTIMS[victim]
    launcher = Launcher(tmp_path, mark, simulator="detaches", iterations=100_000, python=str(python))
    launcher.wait_for("Iteration 1")
    until(lambda: len(leftovers.processes(mark)) == PROCESSES, f"{PROCESSES} processes")
    killed = choose(launcher.process.pid, leftovers.gmi_process(tmp_path / "run", 1))
    os.kill(killed, signal.SIGKILL)
    status, output = launcher.end()
    assert status == (1 if message else -signal.SIGKILL)
    assert re.search(message, output, re.MULTILINE), output
    until(lambda: not leftovers.processes(mark), "the end of all processes")
    until(lambda: not leftovers.files(launcher.process.pid), "the end of all files")
