"""`local`: GMIs of one process, each driven by a thread of its own; and the group of one."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives.base import Collective, combine, shard
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, PEER_LOST, GMIError, error

TIMEOUT_S = 300.0


class LocalCollective(Collective):
    """A member of a `LocalGroup`; members read each other's tensors, nothing is copied out.

    On a GPU the members' threads meet on the host, and their streams wait for each other by events; the
    GPU is never waited for.
    """

    def __init__(self, group: LocalGroup, rank: int) -> None:
        super().__init__(group.name, group.members, rank)
        self._group = group
        self._meetings = 0
        self._events: tuple[torch.cuda.Event, ...] = ()

    @classmethod
    def alone(cls, name: str, gmi: int) -> LocalCollective:
        """The group that has no other member: every call returns at once."""
        return LocalGroup(name, (gmi,)).member(0)

    def close(self) -> None:
        """Leave the group; members that still wait for this one fail at once instead of timing out."""
        self._group.leave(self.rank)

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        tensors = self._exchange(flat)
        first, last = shard(self.rank, self.size, flat.numel())
        result = torch.empty_like(flat[first:last])
        combine(op, tensors[0][first:last], tensors[1][first:last], result)
        for tensor in tensors[2:]:
            combine(op, result, tensor[first:last], result)
        self._meet(flat)  # now nobody reads inputs any more
        for tensor in tensors:
            tensor[first:last].copy_(result)
        self._meet(flat)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        tensors = self._exchange(flat)
        if self.rank != root:
            flat.copy_(tensors[root])
        self._meet(flat)

    def _barrier(self) -> None:
        self._group.wait(self.rank)

    def _exchange(self, flat: Tensor) -> list[Tensor]:
        """All members' tensors in rank order."""
        slots = self._group.slots
        slots[self.rank] = flat
        self._meet(flat)
        tensors = [tensor for tensor in slots if tensor is not None]
        if any(tensor.dtype != flat.dtype or tensor.shape != flat.shape for tensor in tensors):
            raise ValueError(f"the members of {self.name} passed tensors of different type or size")
        return tensors

    def _meet(self, flat: Tensor) -> None:
        """Let what is enqueued from now on see what all members have enqueued so far."""
        if flat.device.type != "cuda":
            self._group.wait(self.rank)
            return
        # Two events in turn: a member can be one meeting ahead of a slower one, never two.
        self._events = self._events or (torch.cuda.Event(), torch.cuda.Event())
        parity, self._meetings = self._meetings % 2, self._meetings + 1
        stream = torch.cuda.current_stream(flat.device)
        self._events[parity].record(stream)
        published = self._group.events[parity]
        published[self.rank] = self._events[parity]
        self._group.wait(self.rank)
        for rank, event in enumerate(published):
            if event is not None and rank != self.rank:
                stream.wait_event(event)


class LocalGroup:
    """What the members of one process share: a barrier and one slot per member.

    Attributes:
        slots: the tensor that each member passed to the current call.
        events: two rows of one CUDA event per member, used in turn.
    """

    def __init__(self, name: str, members: tuple[int, ...], timeout_s: float = TIMEOUT_S) -> None:
        """Make a group of the GMIs ``members`` in rank order."""
        self.name = name
        self.members = members
        self.slots: list[Tensor | None] = [None] * len(members)
        self.events: tuple[list[torch.cuda.Event | None], ...] = ([None] * len(members), [None] * len(members))
        self._timeout_s = timeout_s
        self._condition = threading.Condition()
        self._arrived = [0] * len(members)
        self._left: list[int] = []

    def member(self, rank: int) -> LocalCollective:
        """The collective that the thread of ``rank`` uses."""
        return LocalCollective(self, rank)

    def leave(self, rank: int) -> None:
        """``rank`` makes no further calls."""
        with self._condition:
            self._left.append(rank)
            self._condition.notify_all()

    def wait(self, rank: int) -> None:
        """Return when all members have called this as often as ``rank`` has.

        Raises:
            GMIError: E0704 when a missing member has left, E0705 after the time-out.
        """
        with self._condition:
            self._arrived[rank] += 1
            target = self._arrived[rank]
            self._condition.notify_all()
            complete = self._condition.wait_for(lambda: self._complete(target), self._timeout_s)
            if not complete or self._missing(target):
                raise self._failure(target)

    def _missing(self, target: int) -> list[int]:
        return [rank for rank, arrived in enumerate(self._arrived) if arrived < target]

    def _complete(self, target: int) -> bool:
        missing = self._missing(target)
        return not missing or any(rank in self._left for rank in missing)

    def _failure(self, target: int) -> GMIError:
        missing = self._missing(target)
        # Whoever left first is the cause; the others left because of it.
        left = next((rank for rank in self._left if rank in missing), None)
        if left is not None:
            gmi = self.members[left]
            return error(PEER_LOST, f"GMI {gmi} left while the collective {self.name} waited for it")
        names = ", ".join(f"GMI {self.members[rank]}" for rank in missing)
        return error(
            COLLECTIVE_TIMED_OUT,
            f"{names} did not come to the collective {self.name} within {self._timeout_s:g} s",
        )
