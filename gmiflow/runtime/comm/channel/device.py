"""Slots in the memory of a GPU: allocated by the consumer, mapped by the producers with CUDA IPC.

It is the slab of the collective `ipc` (see `collectives.cuda_driver`), here without kernels: the counters stay in
shared memory of the host, and who publishes or releases has waited for its stream before.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.ring import Ring
from gmiflow.runtime.comm.collectives.ipc import load_driver
from gmiflow.runtime.failure import GMIError

__all__ = ["DeviceSlots"]

logger = logging.getLogger(__name__)

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
    """The memory of a ring's slots on a GPU, for any of its members."""

    def __init__(self, ring: Ring, size: int, device: torch.device, *, consumer: bool) -> None:
        """Allocate and show, or wait for the consumer and map.

        Raises:
            GMIError: E0710 when cuda-bindings is missing or the driver refuses; E0704, E0705 as `Ring.shown_handle`.
        """
        cuda = load_driver()
        cuda.make_current(device)
        self._ring, self._device, self._consumer = ring, device, consumer
        self._slab: Any = cuda.Slab(size) if consumer else cuda.ImportedSlab(ring.shown_handle())
        if consumer:
            torch.cuda.synchronize(device)  # its zeros, before anybody writes into it from another stream
            ring.show_handle(self._slab.export())

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A view of the bytes from ``offset`` on."""
        count = torch.Size(shape).numel()
        if dtype not in _CODES:  # bfloat16 has no code
            return self.tensor(offset, torch.uint8, (count * dtype.itemsize,)).view(dtype).view(shape)
        return torch.as_tensor(_Array(self._slab.address + offset, _CODES[dtype], shape), device=self._device)

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


class _Array:
    """Device memory as the CUDA array interface describes it; torch makes a view of it."""

    def __init__(self, address: int, code: str, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": code, "data": (address, False), "version": 3}
