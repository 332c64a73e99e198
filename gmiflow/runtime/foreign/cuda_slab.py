"""Ports in the memory of a GPU, shared by two processes through the CUDA driver's IPC.

The GMI's process allocates a slab, the host of the simulator maps it. Both use the driver through ctypes, so neither
needs the other's torch, nor torch at all. Written for Python 3.8 with NumPy, as `shim.py`, which loads this file.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_NAMES = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "i64": "<i8", "u8": "|u1", "bool": "|b1"}


class _IpcHandle(ctypes.Structure):
    """`CUipcMemHandle`: passed by value, so it must be a structure."""

    _fields_ = [("reserved", ctypes.c_byte * _HANDLE_BYTES)]


class CudaError(RuntimeError):
    """The CUDA driver refused a call."""


class Driver:
    """The few calls of the CUDA driver that a slab needs, in the primary context of a device (as torch's)."""

    def __init__(self, device: int) -> None:
        """Make the context current in this thread.

        Raises:
            CudaError: without a driver, or when it refuses.
        """
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as problem:
            raise CudaError(f"there is no CUDA driver here: {problem}") from problem
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - ctypes values
        """Make a driver call; raises `CudaError` with the driver's words when it fails."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            words = (text.value or b"unknown error").decode()
            raise CudaError(f"{name}: {words} (status {status})")

    def synchronize(self) -> None:
        """Wait for everything that this process has enqueued."""
        self.call("cuCtxSynchronize")


class CudaArray:
    """A C-contiguous array in device memory that torch, Warp, CuPy and Numba take without a copy."""

    def __init__(self, address: int, kind: str, shape: list[int]) -> None:
        """Describe the array at ``address``; ``kind`` is an element type of the language."""
        self.address = address
        self.dtype = np.dtype(_NAMES[kind])
        self.shape = tuple(shape)
        self.bytes = self.dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            "typestr": _NAMES[kind],
            "data": (address, False),
            "version": 2,
        }


class Slab:
    """Device memory that another process may map; allocated by the GMI's side."""

    def __init__(self, size: int, device: int) -> None:
        """Allocate ``size`` bytes of zeros on GPU ``device``."""
        self._driver = Driver(device)
        address = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = int(address.value)
        self._driver.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        self._driver.synchronize()

    def export(self) -> str:
        """The handle that the other process opens, in hexadecimal digits."""
        handle = _IpcHandle()
        self._driver.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self.address))
        return bytes(handle).hex()

    def close(self) -> None:
        """Free the memory; the other process is gone."""
        self._driver.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class ImportedSlab:
    """The GMI's slab as the host sees it. Arrays are torch's where the simulator has loaded torch, else `CudaArray`."""

    def __init__(self, handle: str, device: int, mismatch: Callable[[str, Any, Any], Exception]) -> None:
        """Map the slab; ``mismatch`` makes the error for a value of another type."""
        self._driver = Driver(device)
        self._device = device
        self._mismatch = mismatch
        address = ctypes.c_uint64()
        opened = _IpcHandle.from_buffer_copy(bytes.fromhex(handle))
        open_handle = "cuIpcOpenMemHandle_v2"
        self._driver.call(open_handle, ctypes.byref(address), opened, ctypes.c_uint(_LAZY_PEER_ACCESS))
        self._address = int(address.value)

    def view(self, field: dict[str, Any]) -> Any:  # noqa: ANN401 - of torch, or a CudaArray
        """The array of a field of the layout."""
        array = CudaArray(self._address + field["offset"], field["dtype"], field["shape"])
        torch = sys.modules.get("torch")
        return array if torch is None else torch.as_tensor(array, device=f"cuda:{self._device}")

    def put(self, label: str, buffer: Any, value: Any) -> None:  # noqa: ANN401 - arrays of any library
        """Copy what the class returned into the array of its port, on the GPU."""
        if not isinstance(buffer, CudaArray):
            torch = sys.modules["torch"]
            tensor = torch.as_tensor(value, device=buffer.device)
            loses = tensor.is_floating_point() and not buffer.is_floating_point()
            if tensor.shape != buffer.shape or loses:
                raise self._mismatch(label, buffer, tensor)
            buffer.copy_(tensor != 0 if buffer.dtype == torch.bool else tensor)
            return
        given = getattr(value, "__cuda_array_interface__", None)
        if given is None:
            raise self._mismatch(label, buffer, np.asarray(value))
        same = given["typestr"] == buffer.dtype.str and tuple(given["shape"]) == buffer.shape
        if not same or given.get("strides") is not None:
            raise self._mismatch(label, buffer, value)
        source, target = ctypes.c_uint64(given["data"][0]), ctypes.c_uint64(buffer.address)
        self._driver.call("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(buffer.bytes))

    def settle(self) -> None:
        """Wait for the simulator's work, on whichever stream it enqueued it."""
        self._driver.synchronize()
