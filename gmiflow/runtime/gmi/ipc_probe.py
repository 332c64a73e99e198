"""Can one process open the GPU memory of another (CUDA IPC)? Two processes try, with nothing but the driver library.

Run as a script, this file is the process that exports, and starts the one that imports.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Mapping

WORDS = 1024
_PATTERN = 0x5EED1234
_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_TIMEOUT_S = 30.0


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * _HANDLE_BYTES),)


def probe_ipc(environment: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S) -> str | None:
    """Try it; return None when it works, else the reason.

    Args:
        environment: variables of the two processes on top of this one's.
        timeout_s: after this time they are killed.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", os.path.abspath(__file__)],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the probe does not end: {error}"
    try:
        return json.loads(done.stdout)["error"]
    except (json.JSONDecodeError, KeyError):
        return f"the probe ended with status {done.returncode}"


def _context(driver: ctypes.CDLL) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(driver, driver.cuInit(0))
    _check(driver, driver.cuDeviceGet(ctypes.byref(device), 0))
    _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(driver, driver.cuCtxPushCurrent_v2(context))


def _check(driver: ctypes.CDLL, code: int) -> None:
    if code:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(name))
        raise OSError((name.value or b"unknown CUDA error").decode())


def _export(driver: ctypes.CDLL) -> str | None:
    """Fill memory with a pattern, let another process read it."""
    memory, handle = ctypes.c_uint64(), _Handle()
    _context(driver)
    _check(driver, driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * WORDS)))
    _check(driver, driver.cuMemsetD32_v2(memory, ctypes.c_uint(_PATTERN), ctypes.c_size_t(WORDS)))
    _check(driver, driver.cuCtxSynchronize())
    _check(driver, driver.cuIpcGetMemHandle(ctypes.byref(handle), memory))
    other = subprocess.run(
        [sys.executable, "-I", os.path.abspath(__file__), bytes(handle.reserved).hex()],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S / 2,
        check=False,
    )
    return json.loads(other.stdout)["error"] if other.stdout else f"the importer ended with status {other.returncode}"


def _import(driver: ctypes.CDLL, text: str) -> str | None:
    """Open the memory and compare."""
    handle, memory, words = _Handle(), ctypes.c_uint64(), (ctypes.c_uint32 * WORDS)()
    ctypes.memmove(ctypes.byref(handle), bytes.fromhex(text), _HANDLE_BYTES)
    _context(driver)
    _check(driver, driver.cuIpcOpenMemHandle_v2(ctypes.byref(memory), handle, _LAZY_PEER_ACCESS))
    _check(driver, driver.cuMemcpyDtoH_v2(words, memory, ctypes.c_size_t(4 * WORDS)))
    _check(driver, driver.cuIpcCloseMemHandle(memory))
    return None if set(words) == {_PATTERN} else "the memory holds something else than was written"


def _main() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        error = _import(driver, sys.argv[1]) if len(sys.argv) > 1 else _export(driver)
    except (OSError, AttributeError, subprocess.TimeoutExpired) as reason:
        error = str(reason)
    sys.stdout.write(json.dumps({"error": error}))


if __name__ == "__main__":
    _main()
