"""`ip`: collectives between processes of one host, through shared memory.

Each member has two slots in a shared segment, used in turn, and there is one common result. An
all-reduce is

- in one step (two members, or little data): every member puts its tensor into its slot; all meet;
  everyone adds up all slots itself;
- in two steps otherwise: after meeting, each member reduces its shard over all slots into the
  result (reduce-scatter), all meet again, and everyone takes the whole result (all-gather).

Either way slots are added in rank order, so all members get the same bits. Two slots suffice
without a further meeting: a member writes slot k mod 2 for operation k + 2 only after it met the
others in operation k + 1, which they enter after their last read for operation k. For the same
reason one result suffices: it is written after the first meeting of the next operation.

Tensors larger than a slot go in chunks. Device tensors are copied through the slots.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives.base import DTYPES, OPERATIONS, Collective, combine, shard
from gmiflow.runtime.comm.flags import BLOCK_BYTES, Flags
from gmiflow.runtime.comm.shared_memory import Segment

SLOT_BYTES = 1 << 20
CONTROL_SLOT_BYTES = 4096
"""Slot size of a group that only exchanges small tensors."""
ONE_STEP_BYTES = 16 * 1024
"""Data of all members together up to which adding it up everywhere beats a second meeting."""
TIMEOUT_S = 300.0
_PAGE = 4096
_KEPT_VIEWS = 64
_BARRIER, _ALL_REDUCE, _BROADCAST = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Views:
    """The segment as tensors of one type and size: slots[parity][rank], the result, own shards."""

    slots: tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
    result: Tensor
    shards: tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
    result_shard: Tensor


class IPCollective(Collective):
    """A member of a group of processes. After the constructor, call `connect` once."""

    def __init__(
        self,
        name: str,
        members: tuple[int, ...],
        rank: int,
        segment_name: str,
        *,
        slot_bytes: int = SLOT_BYTES,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Open the segment and announce this member; does not wait.

        Args:
            name: name in the plan.
            members: GMI ids in rank order.
            rank: index of this member.
            segment_name: name of the shared memory; unique to the run and the group.
            slot_bytes: size of a slot, a multiple of 4096, the same on all members.
            timeout_s: how long any call waits for the others.

        Raises:
            GMIError: E0711 when there is too little shared memory or the member is there already.
        """
        super().__init__(name, members, rank)
        self._slot_bytes = slot_bytes
        self._data_offset = -(-self.size * BLOCK_BYTES // _PAGE) * _PAGE
        self._segment = Segment(segment_name, self._data_offset + (2 * self.size + 1) * slot_bytes)
        self._flags = Flags(name, members, rank, self._segment.memory, timeout_s)
        self._views: dict[tuple[torch.dtype, int], _Views] = {}
        self._operations = 0

    def connect(self) -> None:
        """Wait for the other members. From here on nothing is left behind, however the processes end.

        Raises:
            GMIError: E0705 when a member does not come.
        """
        self._flags.wait_attached()
        if self.rank == 0:
            self._segment.unlink()

    def lost_peer(self) -> int | None:
        """As the base class: the segment knows the members' processes."""
        rank = self._flags.lost()
        return None if rank is None else self.members[rank]

    def close(self) -> None:
        """Leave the group and release the memory."""
        self._views.clear()
        self._flags.close()
        self._segment.unlink()
        with contextlib.suppress(BufferError):  # a tensor view still exists: then the process's end unmaps it
            self._segment.memory.close()

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        for chunk in self._chunks(flat):
            if self.size == 2 or chunk.numel() * chunk.element_size() * self.size <= ONE_STEP_BYTES:
                self._reduce_in_one_step(chunk, op)
            else:
                self._reduce_in_two_steps(chunk, op)

    def _reduce_in_one_step(self, chunk: Tensor, op: str) -> None:
        views, parity = self._deposit(chunk, _ALL_REDUCE, OPERATIONS.index(op))
        slots = views.slots[parity]
        total = chunk if chunk.device.type == "cpu" else torch.empty_like(slots[0])
        combine(op, slots[0], slots[1], total)
        for slot in slots[2:]:
            combine(op, total, slot, total)
        if total is not chunk:
            chunk.copy_(total)

    def _reduce_in_two_steps(self, chunk: Tensor, op: str) -> None:
        views, parity = self._deposit(chunk, _ALL_REDUCE, OPERATIONS.index(op))
        shards, total = views.shards[parity], views.result_shard
        if total.numel():
            combine(op, shards[0], shards[1], total)
            for piece in shards[2:]:
                combine(op, total, piece, total)
        self._flags.publish_and_wait()
        chunk.copy_(views.result)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        for chunk in self._chunks(flat):
            views, parity = self._deposit(chunk, _BROADCAST, root, write=self.rank == root)
            if self.rank != root:
                chunk.copy_(views.slots[parity][root])

    def _barrier(self) -> None:
        self._meet(_BARRIER)

    def _chunks(self, flat: Tensor) -> tuple[Tensor, ...]:
        return flat.split(self._slot_bytes // flat.element_size())

    def _deposit(self, chunk: Tensor, kind: int, argument: int, *, write: bool = True) -> tuple[_Views, int]:
        """Put a chunk into the own slot and meet the others; the views and which slots are in use."""
        views = self._views_of(chunk)
        if write:
            views.slots[self._operations % 2][self.rank].copy_(chunk)
        call = ((chunk.numel() << 8 | DTYPES.index(chunk.dtype)) << 16 | argument) << 4 | kind
        return views, self._meet(call)

    def _meet(self, call: int) -> int:
        parity = self._operations % 2
        self._operations += 1
        self._flags.exchange(call, parity)
        return parity

    def _views_of(self, chunk: Tensor) -> _Views:
        key = (chunk.dtype, chunk.numel())
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= _KEPT_VIEWS:
                self._views.clear()
            views = self._views[key] = self._make_views(*key)
        return views

    def _make_views(self, dtype: torch.dtype, count: int) -> _Views:
        def view(slot: int) -> Tensor:
            offset = self._data_offset + slot * self._slot_bytes
            return torch.frombuffer(self._segment.memory, dtype=dtype, count=count, offset=offset)

        first, last = shard(self.rank, self.size, count)
        even, odd = (tuple(view(rank * 2 + parity) for rank in range(self.size)) for parity in (0, 1))
        result = view(2 * self.size)
        return _Views(
            slots=(even, odd),
            result=result,
            shards=(tuple(slot[first:last] for slot in even), tuple(slot[first:last] for slot in odd)),
            result_shard=result[first:last],
        )
