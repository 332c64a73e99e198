"""What the trainers of one training share: named tensors in shared memory of the host."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.tensor_table import entries_of, size_of, views_of
from gmiflow.runtime.comm.shared_memory import Segment

__all__ = ["SharedState"]


class SharedState:
    """One trainer's view.

    Attributes:
        tensors: by name; the same memory for all.
    """

    def __init__(self, path: str, own: Mapping[str, Tensor], *, first: bool) -> None:
        """Open the shared memory ``path`` for tensors like ``own``; the first trainer gives them its values.

        Raises:
            GMIError: E0711 when there is too little shared memory.
        """
        entries = entries_of(own)
        self._first = first
        self._segment = Segment(path, size_of(entries))
        self.tensors = views_of(entries, torch.frombuffer(self._segment.memory, dtype=torch.uint8))
        if first:
            for name, value in own.items():
                self.tensors[name].copy_(value)

    def close(self) -> None:
        """Let go of the memory; the first trainer removes its name.

        It is not unmapped here: the trainer may still have views, and with the last of them it goes.
        """
        if self._first:
            self._segment.unlink()
        self.tensors.clear()
