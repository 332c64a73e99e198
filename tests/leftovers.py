"""What a run may have left on the machine."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from waiting import PATIENCE_S

from gmiflow.runtime.comm import shared_memory

MARK = "GMIFLOW_TEST_MARK"


def processes(mark: str) -> list[int]:
    """Ids of living processes (zombies do not count) whose environment holds the mark; not this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and state not in "ZX":
            found.append(int(entry.name))
    return found


def wait_for_none(mark: str, timeout_s: float = PATIENCE_S) -> list[int]:
    deadline = time.monotonic() + timeout_s
    while (left := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def gmi_process(run_dir: Path, gmi: int) -> int:
    """Id of the process that a GMI of a run is: the one whose output goes to the GMI's log."""
    log = str(run_dir / "logs" / f"gmi_{gmi:02d}.log")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "fd" / "1") == log:
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"no process writes {log}")


def files(launcher: int) -> list[str]:
    """Names of shared memory and rendezvous directories of the launcher with that process id."""
    places = {shared_memory.directory(), Path(tempfile.gettempdir()), Path("/tmp")}
    return [path.name for place in places for path in place.glob(f"gmiflow-{os.getuid()}-*-{launcher}-*")]
