"""Packer: where each kind lies in a slot, so that the kinds of one group move as one piece.

Which kinds share a group is decided by the compiler (`gmiflow.passes.packing`) and stands in the plan. A group is
contiguous, and inside of it every kind is a contiguous [time, env, ...] tensor: whoever reads the slot has
ordinary tensors and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.dispenser import Kind
from gmiflow.runtime.failure import NOT_SUPPORTED, error

__all__ = ["Group", "Memory", "SlotLayout", "TensorMemory"]

ALIGNMENT_BYTES = 128
"""Of every kind: a pair of cache lines, and what copies on a GPU like."""
PAGE_BYTES = 4096


class Memory(Protocol):
    """Bytes that tensors are laid over."""

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A view of the bytes from ``offset`` on."""
        ...


class TensorMemory:
    """Memory of this process's own, on any device."""

    def __init__(self, size: int, device: torch.device) -> None:
        """Allocate ``size`` bytes of zeros."""
        self._bytes = torch.zeros(size, dtype=torch.uint8, device=device)
        if device.type == "cuda":  # whoever writes into it may do so on another stream
            torch.cuda.current_stream(device).synchronize()

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A view of the bytes from ``offset`` on."""
        count = torch.Size(shape).numel()
        return self._bytes[offset : offset + count * dtype.itemsize].view(dtype).view(shape)


@dataclass(frozen=True, slots=True)
class Group:
    """A contiguous range of a slot, [start, end) in bytes, and the names of the kinds in it."""

    start: int
    end: int
    kinds: tuple[str, ...]


class SlotLayout:
    """A slot for rollouts of ``num_env`` environments.

    Attributes:
        kinds: in the order of memory.
        groups: in the order of memory.
        slot_bytes: a multiple of the page size.
        payload_bytes: of all kinds, without what alignment adds.
    """

    def __init__(self, kinds: Sequence[Kind], groups: Sequence[Sequence[str]], *, horizon: int, num_env: int) -> None:
        """Lay out.

        Raises:
            GMIError: E0710 when the groups do not name every kind once.
        """
        by_name = {kind.name: kind for kind in kinds}
        named = [name for group in groups for name in group]
        if sorted(named) != sorted(by_name):
            raise error(NOT_SUPPORTED, f"the channel's groups name {', '.join(named)}, not {', '.join(by_name)}")
        self.horizon, self.num_env = horizon, num_env
        self.kinds = tuple(by_name[name] for name in named)
        self._offsets: dict[str, int] = {}
        found: list[Group] = []
        end = 0
        for group in groups:
            start = end
            for name in group:
                self._offsets[name] = end
                end += _aligned(by_name[name].size_bytes(horizon, num_env), ALIGNMENT_BYTES)
            found.append(Group(start, end, tuple(group)))
        self.groups = tuple(found)
        self.slot_bytes = _aligned(end, PAGE_BYTES)
        self.payload_bytes = sum(kind.size_bytes(horizon, num_env) for kind in kinds)

    def resized(self, num_env: int) -> SlotLayout:
        """The same kinds in the same groups, for another number of environments."""
        return SlotLayout(self.kinds, [group.kinds for group in self.groups], horizon=self.horizon, num_env=num_env)

    def tensors(self, memory: Memory, start: int = 0) -> dict[str, Tensor]:
        """Every kind by name, as a view of a slot that begins at byte ``start``."""
        return {
            kind.name: memory.tensor(
                start + self._offsets[kind.name], kind.dtype, kind.shape(self.horizon, self.num_env)
            )
            for kind in self.kinds
        }

    def packed(self, memory: Memory, start: int = 0) -> list[Tensor]:
        """Every group as bytes, u8 [n]."""
        return [memory.tensor(start + group.start, torch.uint8, (group.end - group.start,)) for group in self.groups]

    def part(self, tensors: dict[str, Tensor], env_offset: int, num_env: int) -> dict[str, Tensor]:
        """The same tensors, narrowed to ``num_env`` environments from ``env_offset`` of this slot on."""
        found: dict[str, Tensor] = {}
        for kind in self.kinds:
            axis = kind.env_axis
            value = tensors[kind.name]
            found[kind.name] = value if axis is None else value.narrow(axis, env_offset, num_env)
        return found


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit
