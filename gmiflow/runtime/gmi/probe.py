"""Does CUDA start, and how many SMs does a process see? Bounded in time, with nothing but the driver library.

This file is also run as a script in a process of its own, where it needs only the standard library: after a GMI was
killed, the first CUDA initialisation may hang, and then only the probe hangs, not the next launch.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

PROBE_TIMEOUT_S = 30.0
_MAJOR, _MINOR, _SM_COUNT = 75, 76, 16  # CU_DEVICE_ATTRIBUTE_*
_DRIVER = "libcuda.so.1"


@dataclass(frozen=True)
class CUDAView:
    """What one process sees of its first GPU.

    Attributes:
        ok: whether a context was made and memory could be allocated and freed.
        error: why not; "" when ok.
        code: CUDA's error number, 0 when ok or when CUDA never answered.
        name: of the GPU.
        sm_count: SMs that the process may use; smaller than the GPU's under MPS and in a MIG instance.
        capability: compute capability, for example (9, 0).
        start_s: seconds from nothing to the end of the first allocation.
    """

    ok: bool
    error: str = ""
    code: int = 0
    name: str = ""
    sm_count: int = 0
    capability: tuple[int, int] = (0, 0)
    start_s: float = 0.0


class _CallFailedError(Exception):
    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.code = code


def look() -> CUDAView:
    """Initialise CUDA in this process (its primary context is retained and released) and look."""
    start = time.perf_counter()
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        return CUDAView(ok=False, error=f"the NVIDIA driver library cannot be loaded: {error}")
    try:
        return _look(_checked(driver), start)
    except _CallFailedError as error:
        return CUDAView(ok=False, error=str(error), code=error.code)


def sm_count() -> int:
    """SMs that this process sees; CUDA must be initialised already. 0 when the driver does not say."""
    try:
        return _attribute(_checked(ctypes.CDLL(_DRIVER)), _SM_COUNT, ctypes.c_int(0))
    except (OSError, _CallFailedError):
        return 0


def probe_cuda(environment: Mapping[str, str] | None = None, timeout_s: float = PROBE_TIMEOUT_S) -> CUDAView:
    """Let a process of its own look, at most ``timeout_s`` seconds.

    Args:
        environment: variables of that process on top of this one's, for example those of a GMI.
        timeout_s: after this time the process is killed and the view says that CUDA hangs.
    """
    command = [sys.executable, "-I", os.path.abspath(__file__)]
    with tempfile.TemporaryFile() as output:  # a pipe could stay open in a process that cannot be killed
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return CUDAView(ok=False, error=f"CUDA did not start within {timeout_s:g} s")
        output.seek(0)
        said = output.read().decode(errors="replace")
    try:
        values = json.loads(said)
    except json.JSONDecodeError:
        return CUDAView(ok=False, error=f"the CUDA probe ended with status {code}")
    return CUDAView(**{**values, "capability": tuple(values["capability"])})


def _checked(driver: ctypes.CDLL) -> Callable[..., None]:
    """A caller of driver functions that raises when one fails."""

    def call(function: str, *arguments: object) -> None:
        code = int(getattr(driver, function)(*arguments))
        if code:
            text = ctypes.c_char_p()
            driver.cuGetErrorString(code, ctypes.byref(text))
            raise _CallFailedError(function, code, (text.value or b"unknown error").decode() + f" ({code})")

    return call


def _attribute(call: Callable[..., None], number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def _look(call: Callable[..., None], start: float) -> CUDAView:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    name = ctypes.create_string_buffer(128)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceGetName", name, len(name), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
    call("cuMemFree_v2", memory)
    view = CUDAView(
        ok=True,
        name=name.value.decode(errors="replace"),
        sm_count=_attribute(call, _SM_COUNT, device),
        capability=(_attribute(call, _MAJOR, device), _attribute(call, _MINOR, device)),
        start_s=time.perf_counter() - start,
    )
    call("cuCtxPopCurrent_v2", ctypes.byref(context))
    call("cuDevicePrimaryCtxRelease_v2", device)
    return view


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(look())))
