"""Rollouts between two machines: a ring on the agent's machine, the trainer's ring on the other, and what joins them.

The agent's GMI fills a ring of its own, which has the shape of the trainer's and holds just its environments. In that
ring `RolloutsOut` stands in for the trainer: it sends every rollout once, from the memory of the slot, and gives the
slot back when the trainer has given back its own and the weights that it had shown before are here. `RolloutsIn` stands
in for the agent in the trainer's ring. So both sides follow the rules of `Ring`, with counters that may be late. A late
counter shows more rollouts under way than there are: an agent waits longer then, and never collects what would be too
old.

Where the oldest may be dropped, a rollout leaves the agent's machine when the trainer has taken the one before. Until
then it can be dropped; the one that is sent early counts as taken, so the next one is dated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.far_end import FarEnd
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.packer import TensorMemory
from gmiflow.runtime.comm.channel.post import Bytes, Post, bytes_of

__all__ = ["RolloutsIn", "RolloutsOut"]


class RolloutsOut(FarEnd):
    """On the agent's machine: stands in for the trainer."""

    def __init__(
        self, post: Post, open_link: Callable[[], Link], env_offset: int, num_env: int, version: Callable[[], int]
    ) -> None:
        """Send what comes into the ring of ``open_link``, which joins it as the consumer.

        It holds ``num_env`` environments from ``env_offset`` on; ``version`` is that of the weights on this machine.
        """
        super().__init__(post)
        self._version = version
        self._range = (env_offset, num_env)
        self._open_link = open_link
        self._link: Link | None = None
        self._sent = self._returned = self._released = 0

    def step(self) -> bool:
        """As `FarEnd.step`; also gives back what may be given back by now."""
        moved = super().step()
        if self._released < self._returned:
            self._release()
        return moved

    def _release(self) -> None:
        """Give back what the trainer has returned; it does so for the n-th time after showing version n.

        So nobody has room before the weights, and `depth` bounds the lag, too. Where rollouts may be dropped, a slot is
        returned before the update.
        """
        assert self._link is not None
        ring = self._link.ring
        returned = self._returned if ring.shape.drop else min(self._returned, self._version())
        while self._released < returned:
            ring.release()
            self._released += 1

    def _greeting(self) -> Sequence[int]:
        return self._range

    def _open(self, greeting: Sequence[int]) -> None:
        self._link = link = self._open_link()
        size = link.layout.slot_bytes
        self._slots = [bytes_of(link.memory.tensor(n * size, torch.uint8, (size,))) for n in range(len(link.slots))]
        self._copy = bytearray(size) if link.ring.shape.drop else b""

    def _news(self) -> tuple[Sequence[int], Bytes | None] | None:
        assert self._link is not None
        ring = self._link.ring
        if ring.shape.drop:
            if self._returned < self._sent or not ring.ready():
                return None
            with ring.reading() as slot:  # gives it back at the end
                if slot is None:
                    return None
                (version,) = ring.versions()
                body = memoryview(self._copy)
                body[:] = self._slots[slot]
        else:
            if ring.arrived <= self._sent:
                return None
            version, body = ring.version_at(self._sent), self._slots[self._sent % len(self._slots)]
        self._sent += 1
        return (self._sent, version, ring.dropped), body

    def _hear(self, words: Sequence[int]) -> None:
        self._returned = words[0]

    def _take(self) -> None:
        """Nothing follows the numbers."""

    def _peer_left(self, *, in_order: bool) -> None:
        # A trainer that ends in order has told so with the weights: the agent shall not learn it here first.
        if not in_order and self._link is not None:
            self._link.ring.leave()

    def close(self) -> None:
        """Leave, and remove the name of the ring."""
        self._slots = []
        if self._link is not None:
            self._link.close()


class RolloutsIn(FarEnd):
    """On the trainer's machine: stands in for one agent."""

    def __init__(self, post: Post, open_link: Callable[[], Link]) -> None:
        """Bring rollouts into the trainer's ring; ``open_link`` joins it as the agent that sends them."""
        super().__init__(post)
        self._open_link = open_link
        self._link: Link | None = None
        self._told = self._version = self._dropped = 0

    def _open(self, greeting: Sequence[int]) -> None:
        env_offset, num_env = greeting[:2]
        self._link = link = self._open_link()
        count = link.overlap(env_offset, num_env)[1]
        sent = link.layout.resized(count)  # as in the agent's ring
        size = sent.slot_bytes
        self._parts: list[list[tuple[np.ndarray, np.ndarray]]] = []
        if count == link.plan.num_env:
            views = [link.memory.tensor(slot * size, torch.uint8, (size,)) for slot in range(len(link.slots))]
            self._bodies = [bytes_of(view) for view in views]
            return
        memory = TensorMemory(size, torch.device("cpu"))
        self._bodies = [bytes_of(memory.tensor(0, torch.uint8, (size,)))]
        sources = sent.tensors(memory)
        for slot in range(len(link.slots)):
            targets = link.part(slot, env_offset, num_env)
            self._parts.append([(_array(target), _array(sources[name])) for name, target in targets.items()])

    def _news(self) -> tuple[Sequence[int], Bytes | None] | None:
        assert self._link is not None
        ring = self._link.ring
        released = ring.published - ring.pending
        if released == self._told:
            return None
        self._told = released
        return (released,), None

    def _hear(self, words: Sequence[int]) -> Bytes:
        assert self._link is not None
        _, self._version, self._dropped = words[:3]
        return self._bodies[0 if self._parts else self._link.ring.slot_to_fill()]

    def _take(self) -> None:
        assert self._link is not None
        ring = self._link.ring
        if self._parts:
            for target, source in self._parts[ring.slot_to_fill()]:
                np.copyto(target, source)
        ring.count_dropped(self._dropped)
        ring.publish(self._version)

    def _peer_left(self, *, in_order: bool) -> None:
        del in_order  # whoever waits for it waits in vain
        if self._link is not None:
            self._link.ring.leave()

    def close(self) -> None:
        """Leave."""
        self._bodies, self._parts = [], []
        if self._link is not None:
            self._link.close()


def _array(value: Tensor) -> np.ndarray:
    """The bytes of a tensor whose last axis is contiguous; numpy copies them in this thread alone."""
    return value.view(torch.uint8).numpy()
