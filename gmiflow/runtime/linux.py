"""System calls that Python does not wrap."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when process ``parent``, which started it, ends.

    Covers even SIGKILL of the parent. Elsewhere than on Linux nothing is done: there the sockets
    between the processes end, which stops them more slowly.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def processor_ticks(pid: int) -> tuple[str, int] | None:
    """State letter of a process and the clock ticks it has used; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[11]) + int(fields[12])
