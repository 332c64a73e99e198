"""Slots in the memory of a GPU: allocated by the consumer, mapped by the producers with CUDA IPC.

A producer on the same GPU has tensors of torch there. For one on another GPU they are copied to and from, by NVLink or
PCIe: torch would take a view of them for memory of a GPU that this process may not even see.

It is the slab of the collective `ipc` (see `collectives.cuda_driver`), here without kernels: the counters stay in
shared memory of the host, and who publishes or releases has waited for its stream before.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.ring import Ring
from gmiflow.runtime.comm.collectives.ipc import load_driver
from gmiflow.runtime.failure import NOT_SUPPORTED, GMIError, error

__all__ = ["DeviceSlots"]

logger = logging.getLogger(__name__)

_HANDLE_BYTES = 64
"""Of CUDA IPC; the consumer shows the UUID of its GPU behind it."""

LEAVE_S = 2.0
"""How long the consumer waits for the producers to unmap the slots.

Shorter than `Limits.consequence_s`, so that a failure of its own is told before those of the producers, who miss it,
are judged.
"""


_CODES = {
    torch.float32: "<f4",
    torch.float16: "<f2",
    torch.int32: "<i4",
    torch.int64: "<i8",
    torch.uint8: "|u1",
    torch.bool: "|b1",
}
"""Element types as the CUDA array interface writes them."""


class DeviceSlots:
    """The memory of a ring's slots on a GPU, for any of its members.

    Attributes:
        near: whether it is memory of this member's own GPU; else `tensor` gives tensors of torch's device "meta",
            which have a place in the slots and nothing in them, for `copy`.
    """

    def __init__(self, ring: Ring, size: int, device: torch.device, *, consumer: bool) -> None:
        """Allocate and show, or wait for the consumer and map.

        Raises:
            GMIError: E0710 when cuda-bindings is missing or the driver refuses; E0704, E0705 as `Ring.shown_handle`.
        """
        self._cuda = cuda = load_driver()
        cuda.make_current(device)
        own = bytes.fromhex(cuda.describe(device).uuid)
        self._ring, self._device, self._consumer = ring, device, consumer
        if consumer:
            self.near = True
            self._slab: Any = cuda.Slab(size)
            torch.cuda.synchronize(device)  # its zeros, before anybody writes into it from another stream
            ring.show_handle(self._slab.export() + own)
            return
        shown = ring.shown_handle()
        self.near = shown[_HANDLE_BYTES:] == own
        self._places = torch.empty(size, dtype=torch.uint8, device="meta")
        try:
            self._slab = cuda.ImportedSlab(shown[:_HANDLE_BYTES])
        except GMIError as refused:
            if self.near:
                raise
            what = f"{ring.shape.name}: this GPU cannot reach the memory of GMI {ring.shape.consumer}'s"
            mend = "compile on this machine, which then goes through the host, or `place` the stages on one GPU"
            raise error(NOT_SUPPORTED, f"{what}: {refused.failure.message}", mend) from refused

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A view of the bytes from ``offset`` on."""
        count = torch.Size(shape).numel()
        if not self.near:
            return self._places[offset : offset + count * dtype.itemsize].view(dtype).view(shape)
        if dtype not in _CODES:  # bfloat16 has no code
            return self.tensor(offset, torch.uint8, (count * dtype.itemsize,)).view(dtype).view(shape)
        return _view(self._slab.address + offset, _CODES[dtype], shape, self._device)

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Enqueue a copy on the current stream; either may be one that `tensor` gave, or a part of it.

        Raises:
            GMIError: E0710 when the driver refuses.
        """
        if self.near:
            target.copy_(source, non_blocking=True)
            return
        rows, width, pitches = _rows(source, target)
        stream = self._cuda.current_stream(self._device)
        self._cuda.copy_rows(self._address(target), self._address(source), pitches[::-1], width, rows, stream)

    def _address(self, tensor: Tensor) -> int:
        if tensor.device.type != "meta":
            return tensor.data_ptr()
        return self._slab.address + tensor.storage_offset() * tensor.dtype.itemsize

    def close(self) -> None:
        """Unmap, or free when all producers have unmapped; before `Ring.close`.

        What cannot be released in order is left to the end of the process: memory that others still use, and
        everything after a fault of the GPU, whose own error says more than ours.
        """
        name = self._ring.shape.name
        if self._consumer and not self._ring.wait_left(LEAVE_S):
            logger.warning("the channel %s: its slots stay, for not all producers have left them", name)
            return
        try:
            torch.cuda.synchronize(self._device)
            self._slab.close()
        except (RuntimeError, GMIError) as broken:
            logger.warning("the channel %s is not closed in order: %s", name, str(broken).partition("\n")[0])


def _view(address: int, code: str, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.as_tensor(_Array(address, code, shape), device=device)


class _Array:
    """Device memory as the CUDA array interface describes it; torch makes a view of it."""

    def __init__(self, address: int, code: str, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": code, "data": (address, False), "version": 3}


def _rows(source: Tensor, target: Tensor) -> tuple[int, int, tuple[int, int]]:
    """Two tensors of one type and shape as equal rows of bytes: how many, how long, and how far apart in each.

    They are whole tensors or ranges of one axis, so what lies before that axis is evenly spaced.
    """
    shape, size = source.shape, source.dtype.itemsize
    axis = source.dim()
    while axis and (
        shape[axis - 1] == 1 or source.stride(axis - 1) == target.stride(axis - 1) == math.prod(shape[axis:])
    ):
        axis -= 1
    width = math.prod(shape[axis:]) * size
    if not axis:
        return 1, width, (width, width)
    return math.prod(shape[:axis]), width, (source.stride(axis - 1) * size, target.stride(axis - 1) * size)
