"""Staging: named tensors cross between a GPU and the host as one buffer, in one asynchronous copy.

A copy for each would make the host wait for each: a policy is some fifteen tensors, most of them tiny.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.tensor_table import Entry, size_of, views_of

__all__ = ["Staging"]


class Staging:
    """A buffer on the device and one on the host, both laid out by one table; on the CPU they are the same.

    All calls are made with the same current stream.

    Attributes:
        host: u8 [n], page-locked where there is a GPU; bytes between the tensors mean nothing.
    """

    def __init__(self, entries: Sequence[Entry], device: torch.device) -> None:
        """Allocate for the tensors of ``entries`` on ``device``."""
        on_gpu = device.type == "cuda"
        self.host = torch.zeros(size_of(entries), dtype=torch.uint8, pin_memory=on_gpu)
        # Not filled: whoever makes this may do so on another stream than the one that it is used on.
        self._flat = torch.empty(self.host.shape, dtype=torch.uint8, device=device) if on_gpu else self.host
        self._tensors = views_of(entries, self._flat)
        # Whoever waits sleeps: other GMIs need the core.
        self._copied = torch.cuda.Event(blocking=True) if on_gpu else None

    def to_host(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Copy ``tensors``, which have the names, types and shapes of the table; `host`, once they are there."""
        for name, target in self._tensors.items():
            target.copy_(tensors[name], non_blocking=True)
        if self._copied is not None:
            self.host.copy_(self._flat, non_blocking=True)
            self._copied.record()
            self._copied.synchronize()
        return self.host

    def to_device(self) -> Mapping[str, Tensor]:
        """Enqueue the copy of what was written to `host`; the tensors by name, the same ones at every call."""
        if self._copied is not None:
            self._flat.copy_(self.host, non_blocking=True)
            self._copied.record()
        return self._tensors

    def wait_writable(self) -> None:
        """Return when the device has taken what `to_device` has enqueued, so that `host` may be written again."""
        if self._copied is not None:
            self._copied.synchronize()
