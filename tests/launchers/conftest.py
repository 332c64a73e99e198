"""Runs under MPI, with the small stages of the runtime's tests; every test leaves nothing on the machine."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

import leftovers
from plans import launch_plan, training_plan, write_programs
from waiting import until

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.launchers.mpi import find_mpirun


def orphans() -> set[str]:
    """Rendezvous directories and shared memory whose maker has ended."""
    found = set()
    for place in (shared_memory.directory(), Path("/tmp")):
        for path in place.glob(f"gmiflow-{os.getuid()}-*"):
            maker = path.name.split("-")[3]
            if maker.isdigit() and not Path(f"/proc/{maker}").exists():
                found.add(path.name)
    return found


@pytest.fixture
def clean(monkeypatch):
    """Marks all processes that the test starts, and checks at its end that none is left, and no file."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftovers.MARK, value)
    before = orphans()
    yield value
    assert leftovers.wait_for_none(value) == []
    until(lambda: not orphans() - before, "the end of all files")  # another test's may be going just now


@pytest.fixture(scope="session")
def mpi_installed():
    """Skips, and says so, where the extra `mpi` is not installed."""
    pytest.importorskip("mpi4py")
    if find_mpirun() is None:
        pytest.skip("mpirun is not installed: pip install 'gmiflow[mpi]'")


@pytest.fixture
def needs_mpi(mpi_installed):
    """As `mpi_installed`."""


@pytest.fixture
def run(tmp_path):
    """Runs a plan of point masses with a launcher; the result and the events."""

    def start(launcher, *, gmis=2, name="run", limits=None, **options):
        plan = launch_plan(training_plan(**{"iterations": 3, **options}), gmis=gmis)
        programs = write_programs(plan, tmp_path / "programs")
        events = []
        result = run_plan(plan, programs, tmp_path / name, on_event=events.append, limits=limits, launcher=launcher)
        return result, events

    return start
