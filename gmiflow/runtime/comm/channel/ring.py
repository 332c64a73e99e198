"""A ring of slots in shared memory: producers fill a slot each with their environments, one consumer reads it whole.

What is sent is a number: a producer that has filled slot ``n mod slots`` for the n-th time publishes ``n + 1``, and
the consumer that is done with it releases ``n + 1``. The data lie where they were written. Aligned 8-byte loads and
stores are atomic on every machine that we know; `shared_memory.make_fence` orders them against the data.

When the oldest rollout may be dropped there is one producer. Then the consumer copies a slot out at once instead of
holding it, and both do what moves the released number under a lock (of the file, so that it dies with its holder).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.packer import PAGE_BYTES, SlotLayout
from gmiflow.runtime.comm.channel.presence import BLOCK_WORDS, Presence, Watch, wait_for
from gmiflow.runtime.comm.shared_memory import Segment, make_fence
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.gmi.process import wait_until

__all__ = ["Ring", "RingShape"]

_RELEASED, _TAKEN = 0, 16  # of the consumer; 128 bytes apart
_HANDLE, _HANDLE_WORDS, _SHOWN = 32, 10, 42  # of the consumer of a ring on a device
_COMMAND = 43  # of a consumer that asks
_PUBLISHED, _DROPPED = 0, 16  # of a producer
WORD = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class RingShape:
    """What all members of a ring agree on.

    Attributes:
        name: of the channel, for messages.
        producers: GMI ids.
        consumer: GMI id.
        slots: rollouts that fit in.
        drop: the oldest is dropped when none is free (one producer only); else a producer waits.
        replaceable: a producer that dies is started again.
        where: "host", or "device" when the slots are in the memory of a GPU.
    """

    name: str
    producers: tuple[int, ...]
    consumer: int
    slots: int
    drop: bool = False
    replaceable: bool = False
    where: Literal["host", "device"] = "host"

    @property
    def words(self) -> int:
        """Of the counters and of the versions of every slot's parts."""
        return (1 + len(self.producers)) * BLOCK_WORDS + self.slots * len(self.producers)


class Ring:
    """One member's view of a ring.

    Attributes:
        shape: as given.
        watch: looks after the members that this one waits for.
    """

    def __init__(self, shape: RingShape, member: int, segment: str, layout: SlotLayout, *, timeout_s: float) -> None:
        """Open the shared memory and announce this member; does not wait.

        Args:
            shape: the same on all members.
            member: GMI id of this one: a producer, or the consumer.
            segment: name of the shared memory, unique to the run and the channel.
            layout: of a slot, the same on all members.
            timeout_s: how long any wait may last.

        Raises:
            GMIError: E0711 when there is too little shared memory, or the member is there, or was in another run.
        """
        if shape.drop and len(shape.producers) > 1:
            raise ValueError(f"{shape.name}: dropping needs a ring for each producer")
        self.shape = shape
        self._layout = layout
        self._data_offset = -(-shape.words * WORD // PAGE_BYTES) * PAGE_BYTES
        data_bytes = shape.slots * layout.slot_bytes if shape.where == "host" else 0
        self._segment = Segment(segment, self._data_offset + data_bytes)
        self._lock = os.open(self._segment.path, os.O_RDWR | os.O_CLOEXEC) if shape.drop else None
        self._view = memoryview(self._segment.memory)[: shape.words * WORD]
        self._words = self._view.cast("q")
        self.consumer = Presence(self._words, 0)
        self.producers = tuple(Presence(self._words, 1 + index) for index in range(len(shape.producers)))
        self._versions = (1 + len(shape.producers)) * BLOCK_WORDS
        self._fence = make_fence()
        self.watch = Watch(f"the channel {shape.name}", timeout_s)
        self._announce(member)

    def _announce(self, member: int) -> None:
        shape = self.shape
        self._index = shape.producers.index(member) if member != shape.consumer else -1
        own = self.consumer if member == shape.consumer else self.producers[self._index]
        # A dead one's counters go on only where the launcher puts another in its place; else they are of another run.
        if own.attached and (own.alive or member == shape.consumer or not shape.replaceable):
            raise error(
                LAUNCH_FAILED,
                f"GMI {member} {'is' if own.alive else 'was'} in the channel {shape.name} already",
                "use a fresh rendezvous directory for each run",
            )
        own.announce()
        self._own = own
        if member == shape.consumer:
            for gmi, presence in zip(shape.producers, self.producers, strict=True):
                self.watch.add(gmi, presence, replaceable=shape.replaceable)
        else:
            self.watch.add(shape.consumer, self.consumer)

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """A view of the slots' bytes from ``offset`` on, in host memory."""
        count = torch.Size(shape).numel()
        flat = torch.frombuffer(self._segment.memory, dtype=dtype, count=count, offset=self._data_offset + offset)
        return flat.view(shape)

    def show_handle(self, handle: bytes) -> None:
        """On the consumer of a ring on a device: tell the producers where the slots are; 80 bytes."""
        for index in range(_HANDLE_WORDS):
            word = handle[8 * index : 8 * index + 8].ljust(8, b"\0")
            self.consumer.words[_HANDLE + index] = int.from_bytes(word, "little", signed=True)
        self._fence()
        self.consumer.words[_SHOWN] = 1

    def shown_handle(self) -> bytes:
        """What the consumer shows; waits for it. Raises as `Watch.look`."""
        wait_for(lambda: self.consumer.words[_SHOWN] != 0, self.watch.look)
        self._fence()
        words = (self.consumer.words[_HANDLE + index] for index in range(_HANDLE_WORDS))
        return b"".join(word.to_bytes(8, "little", signed=True) for word in words)

    # ---- producer ---------------------------------------------------------------------------------------------

    @property
    def published(self) -> int:
        """Rollouts that this producer has put in so far, those of a lost predecessor included."""
        return self._own.words[_PUBLISHED]

    @property
    def pending(self) -> int:
        """This producer's rollouts that the consumer has not released."""
        return self._own.words[_PUBLISHED] - self.consumer.words[_RELEASED]

    @property
    def next_update(self) -> int:
        """Number of the update, from 0, that the next rollout is for unless something is dropped before."""
        if self.shape.drop:
            return self.consumer.words[_TAKEN] + self.pending
        return self._own.words[_PUBLISHED]

    @property
    def dropped(self) -> int:
        """Rollouts that were dropped."""
        return sum(producer.words[_DROPPED] for producer in self.producers)

    def make_room(self, limit: int, newest: int) -> bool:
        """Whether at most ``limit`` rollouts are pending, after dropping what may be dropped.

        Where dropping is allowed, so much is dropped that the next rollout is for update number ``newest`` or before.
        """
        if not self.shape.drop:
            return self.pending <= limit
        taken = self.consumer.words[_TAKEN]
        limit = max(0, min(limit, newest - taken))
        if self.pending > limit:
            with self._locked():
                while self.pending > limit:
                    self.consumer.words[_RELEASED] += 1
                    self._own.words[_DROPPED] += 1
        return True

    def slot_to_fill(self) -> int:
        """The slot for the next rollout; free when fewer than all are pending."""
        return self._own.words[_PUBLISHED] % self.shape.slots

    def publish(self, version: int) -> None:
        """Hand over the slot that was filled, with the version of the policy that collected it."""
        position = self._own.words[_PUBLISHED]
        self._words[self._version_word(position, self._index)] = version
        self._fence()
        self._own.words[_PUBLISHED] = position + 1

    def count_dropped(self, count: int) -> None:
        """Say how many rollouts were dropped before they were published here."""
        self._own.words[_DROPPED] = count

    @property
    def answered(self) -> bool:
        """Whether the consumer has given back all that this producer has put in, and what it wrote there is seen."""
        if self.pending:
            return False
        self._fence()
        return True

    @property
    def command(self) -> int:
        """What the consumer asks for with the slot that it has given back."""
        return self.consumer.words[_COMMAND]

    def beside(self, suffix: str) -> Path:
        """Where a file of this ring's members may lie, in shared memory; the consumer removes it."""
        return self._segment.path.with_name(self._segment.path.name + suffix)

    # ---- consumer ---------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether a rollout of all producers is there."""
        released = self.consumer.words[_RELEASED]
        return all(producer.words[_PUBLISHED] > released for producer in self.producers)

    @property
    def asked(self) -> bool:
        """As `ready`; what the producers wrote is seen."""
        if not self.ready():
            return False
        self._fence()
        return True

    @property
    def arrived(self) -> int:
        """Rollouts of all producers that have been put in so far; what they wrote is seen."""
        count = min(producer.words[_PUBLISHED] for producer in self.producers)
        self._fence()
        return count

    def look(self, waited_s: float) -> None:
        """Raise when a member that has not put in the next rollout will not; see `Watch.look`."""
        released = self.consumer.words[_RELEASED]
        self.watch.look(waited_s, lambda presence: presence.words[_PUBLISHED] <= released)

    @contextlib.contextmanager
    def reading(self) -> Generator[int | None]:
        """The slot to read, in drop mode safe from being dropped; None when what was there was dropped just now."""
        with self._locked() if self.shape.drop else contextlib.nullcontext():
            if not self.ready():
                yield None
                return
            self._fence()
            yield self.consumer.words[_RELEASED] % self.shape.slots
            if self.shape.drop:
                self._release()

    def versions(self) -> list[int]:
        """Versions of the policies that filled the slot to read, in order of producer."""
        released = self.consumer.words[_RELEASED]
        return [self._words[self._version_word(released, index)] for index in range(len(self.producers))]

    def version_at(self, position: int) -> int:
        """Version of the policy that the first producer's rollout number ``position`` was filled with."""
        return self._words[self._version_word(position, 0)]

    def wait_left(self, timeout_s: float) -> bool:
        """Say goodbye, and wait until no producer uses the slots any more; False after ``timeout_s`` seconds."""
        self._own.leave()  # who waits for this consumer learns of it, and goes, too
        users = self.producers
        return wait_until(lambda: all(p.gone or not p.attached for p in users), timeout_s)

    def ask(self, command: int) -> None:
        """Give back the slot, and say what to do with it."""
        self.consumer.words[_COMMAND] = command
        self._release()

    def release(self) -> None:
        """Give back the slot that was read; in drop mode it was given back when it was copied."""
        if not self.shape.drop:
            self._release()

    def _release(self) -> None:
        self._fence()
        self.consumer.words[_TAKEN] += 1
        self.consumer.words[_RELEASED] += 1

    # ---- both -------------------------------------------------------------------------------------------------

    def _version_word(self, position: int, producer: int) -> int:
        return self._versions + position % self.shape.slots * len(self.producers) + producer

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        assert self._lock is not None
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def leave(self) -> None:
        """Say goodbye, and go on using the memory."""
        self._own.leave()

    def close(self) -> None:
        """Leave; the consumer removes the name of the memory, which lives until its last user is gone."""
        if self._own is self.consumer:
            self._segment.unlink()
        self._own.leave()
        for presence in (self.consumer, *self.producers):
            presence.release()
        self._words.release()
        self._view.release()
        if self._lock is not None:
            os.close(self._lock)
        with contextlib.suppress(BufferError):  # a tensor view still exists: then the process's end unmaps it
            self._segment.memory.close()
