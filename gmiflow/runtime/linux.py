"""System calls that Python does not wrap."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_AGAIN_S = 0.01
RUNNABLE = "R"
"""State letter of a process that runs, or would if a processor were free."""


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when process ``parent``, which started it, ends.

    Covers even SIGKILL of the parent. Elsewhere than on Linux nothing is done: there the sockets
    between the processes end, which stops them more slowly.

    Args:
        parent: its process id.
        number: the signal.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number))
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of descendants whose own parent has ended.

    So a process that detached itself (in a session of its own, its parent gone) is not lost sight of. Elsewhere than
    on Linux nothing is done.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))


def kill_children(patience_s: float = 2.0) -> int:
    """Kill every child of this process, and with `adopt_orphans` all their descendants; how many there were.

    Args:
        patience_s: how long to wait for those that do not end at once, for example within a driver.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + patience_s
    while (children := _children()) and time.monotonic() < deadline:
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        killed |= children
        # Reaping the dead shows whom they leave behind.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_LOOK_AGAIN_S)
    return len(killed)


def _children() -> set[int]:
    """Processes whose parent is this one, the dead that nobody has reaped included."""
    own, found = str(os.getpid()), set[int]()
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                if file.read().rpartition(")")[2].split()[1] == own:
                    found.add(int(name))
    return found


def processor_ticks(pid: int) -> tuple[str, int] | None:
    """State letter of a process and the clock ticks it has used; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[11]) + int(fields[12])
