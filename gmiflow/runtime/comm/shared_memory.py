"""Named shared memory of one host, and the memory fence that flags in it need.

`multiprocessing.shared_memory` is not used: its resource tracker is one more process, and it
unlinks segments that it does not own when one of several users exits (Python < 3.13).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from gmiflow.runtime.failure import LAUNCH_FAILED, GMIError, error

_TOTAL_STORE_ORDER = frozenset({"x86_64", "AMD64", "i386", "i686"})
# Number of the system call, and the command of <linux/membarrier.h>.
_MEMBARRIER_NUMBER = {"aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356, "x86_64": 324}
_GLOBAL_EXPEDITED = 1 << 1
_REGISTER_GLOBAL_EXPEDITED = 1 << 2


def directory() -> Path:
    """Where segments live: the POSIX shared memory of Linux, elsewhere files that are mapped."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def scarce(path: Path, size: int, problem: OSError) -> GMIError:
    """E0711: ``size`` bytes for a segment at ``path`` cannot be had."""
    text = f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{-(-size // 2**10)} KiB"
    what = f"{text} of shared memory in {path.parent} cannot be had: {problem.strerror}"
    return error(LAUNCH_FAILED, what, "containers often limit it: with Docker, give --shm-size")


class Segment:
    """Shared memory that every member opens by name; whoever comes first creates it, full of zeros.

    Attributes:
        memory: the mapping. Views of it must be released before `close`.
    """

    def __init__(self, name: str, size: int) -> None:
        """Open or create ``name`` with ``size`` bytes, the same on every member.

        Raises:
            GMIError: E0711 when the machine has too little shared memory left.
        """
        self.path = directory() / name
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # Reserves the pages: without that, a full file system shows as a bus error later.
                os.posix_fallocate(handle, 0, size)
                self.memory = mmap.mmap(handle, size)
            finally:
                os.close(handle)
        except OSError as problem:
            self.unlink()
            raise scarce(self.path, size, problem) from problem

    def unlink(self) -> None:
        """Remove the name; the memory lives until its last user is gone, however it goes."""
        self.path.unlink(missing_ok=True)


def _no_fence() -> None:
    """Nothing: on x86 stores are seen in program order, and loads are made in program order.

    The interpreter adds no reordering of its own: the copies before and the flag after are calls
    of compiled functions that no compiler sees together. (Long copies with non-temporal stores end
    with a store fence inside the C library.)
    """


def make_fence() -> Callable[[], None]:
    """A full memory fence between this thread's accesses to shared memory before and after it.

    A writer fences between data and flag, a reader between flag and data. Python has no such
    instruction, so weakly ordered machines (ARM, POWER, RISC-V) make the system call that Linux
    documents for it: membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED), about a microsecond.

    Raises:
        OSError: where the machine is weakly ordered and the kernel has no such call.
    """
    machine = platform.machine()
    return _no_fence if machine in _TOTAL_STORE_ORDER else make_membarrier(machine)


def make_membarrier(machine: str) -> Callable[[], None]:
    """The fence by system call for ``machine`` (as `platform.machine` names it); raises OSError if there is none."""
    if machine not in _MEMBARRIER_NUMBER:
        raise OSError(f"no memory fence is known for {machine}")
    number = ctypes.c_long(_MEMBARRIER_NUMBER[machine])
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    zero, expedited = ctypes.c_int(0), ctypes.c_int(_GLOBAL_EXPEDITED)
    if call(number, ctypes.c_int(_REGISTER_GLOBAL_EXPEDITED), zero, zero) != 0:
        raise OSError(ctypes.get_errno(), "membarrier is not available")

    def fence() -> None:
        if call(number, expedited, zero, zero) != 0:
            raise OSError(ctypes.get_errno(), "membarrier failed")

    return fence
