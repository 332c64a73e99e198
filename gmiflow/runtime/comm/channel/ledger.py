"""The ledger of asynchronous updates: which rollouts are under way, and who may apply its gradient when.

Version v of the parameters becomes v + 1 when one trainer applies one gradient. A rollout that begins with version v is
promised to be applied while the version is at most v + max_staleness: that is its deadline. So that the promise can be
kept whatever anybody's speed, two rules are followed, each checked and acted on under one lock:

- a rollout begins only when at most ``max_staleness`` others are under way (begun, and not applied yet); where few may
  begin, trainers with nothing under way come first, and of these the one that has begun the fewest;
- a trainer applies only when the others could still come in time after it: with their deadlines d_0 <= d_1 <= ... it
  must hold that d_i >= v + 1 + i, where v is the version before.

By the first rule the deadlines under way are in time when all are applied one by one, the earliest first (a new one has
the latest deadline, and at most ``max_staleness`` before it); by the second they stay so. The rollout with the earliest
deadline may always be applied, so nobody waits in a circle; the others need not wait for it before the bound is near.

The lock is that of a file, so it dies with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator

from gmiflow.runtime.comm.channel.packer import PAGE_BYTES
from gmiflow.runtime.comm.channel.presence import BLOCK_WORDS, Presence, Watch
from gmiflow.runtime.comm.shared_memory import Segment

__all__ = ["Ledger"]

_LIMIT, _GATE, _STOPPED = 0, 16, 17  # of the header
_APPLIED, _BEGUN = 0, 16  # of a trainer; 128 bytes apart
_WORD_BYTES = 8


class Ledger:
    """One member's view. Trainers are numbered by their place in ``trainers``, their rollouts from 0.

    Attributes:
        watch: looks after the trainers that somebody waits for.
    """

    def __init__(
        self, name: str, path: str, trainers: tuple[int, ...], *, slots: int, max_staleness: int, timeout_s: float
    ) -> None:
        """Open the shared memory; does not wait.

        Args:
            name: of the training, for messages.
            path: name of the shared memory.
            trainers: GMI ids.
            slots: rollouts of one trainer that may be under way.
            max_staleness: bound on the versions between the beginning of a rollout and its application.
            timeout_s: how long any wait may last.

        Raises:
            GMIError: E0711 when there is too little shared memory.
        """
        self._trainers = trainers
        self._slots, self._staleness = slots, max_staleness
        blocks = 1 + len(trainers)
        words = blocks * BLOCK_WORDS + len(trainers) * slots
        self._segment = Segment(path, -(-words * _WORD_BYTES // PAGE_BYTES) * PAGE_BYTES)
        self._lock = os.open(self._segment.path, os.O_RDWR | os.O_CLOEXEC)
        self._view = memoryview(self._segment.memory)[: words * _WORD_BYTES]
        self._words = self._view.cast("q")
        self._header = Presence(self._words, 0)
        self._blocks = tuple(Presence(self._words, 1 + index) for index in range(len(trainers)))
        self._deadlines = blocks * BLOCK_WORDS
        self.watch = Watch(f"the shared parameters of {name}", timeout_s)
        self._own: Presence | None = None

    def join(self, trainer: int) -> None:
        """Announce a trainer, by GMI id, and look after the others."""
        for gmi, presence in zip(self._trainers, self._blocks, strict=True):
            if gmi == trainer:
                self._own = presence
                presence.announce()
            else:
                self.watch.add(gmi, presence)

    def follow(self) -> None:
        """Look after all trainers, as an agent does."""
        for gmi, presence in zip(self._trainers, self._blocks, strict=True):
            self.watch.add(gmi, presence)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Nobody else begins, applies or reads what is shared meanwhile."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    @property
    def version(self) -> int:
        """Gradients applied so far, by all trainers."""
        return sum(block.words[_APPLIED] for block in self._blocks)

    # ---- beginning and end ------------------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """Rollouts that each trainer takes before the training ends."""
        return self._header.words[_LIMIT]

    @property
    def stopped(self) -> bool:
        """Whether the limit was lowered by `stop`."""
        return self._header.words[_STOPPED] != 0

    def open(self, limit: int, gate: int) -> None:
        """Set the limit, and the gate: rollouts of each trainer that may begin before it is opened again."""
        with self.locked():
            self._header.words[_LIMIT] = limit
            self._header.words[_GATE] = gate

    def open_gate(self, gate: int) -> None:
        """Let rollouts begin up to number ``gate``."""
        self._header.words[_GATE] = gate

    def stop(self) -> None:
        """End the training as soon as every trainer has taken as many rollouts; those that have begun are taken."""
        with self.locked():
            words = self._header.words
            words[_LIMIT] = min(words[_LIMIT], max(block.words[_BEGUN] for block in self._blocks))
            words[_STOPPED] = 1

    # ---- agents -----------------------------------------------------------------------------------------------

    def begin(self, trainer: int, rollout: int) -> bool:
        """Whether rollout number ``rollout`` for a trainer, by GMI id, may begin; if so it is promised its place.

        The agents of one trainer share a rollout: the first that asks begins it.
        """
        index = self._trainers.index(trainer)
        block = self._blocks[index]
        if rollout < block.words[_BEGUN]:
            return True
        if not self._may_begin(index, rollout):  # look before locking: this is asked again and again
            return False
        with self.locked():
            if rollout < block.words[_BEGUN]:
                return True
            if not self._may_begin(index, rollout):
                return False
            self._words[self._deadline_word(index, rollout)] = self.version + self._staleness
            block.words[_BEGUN] = rollout + 1
            return True

    def _may_begin(self, index: int, rollout: int) -> bool:
        open_until = min(self._header.words[_LIMIT], self._header.words[_GATE])
        begun = [block.words[_BEGUN] for block in self._blocks]
        under_way = [count - block.words[_APPLIED] for count, block in zip(begun, self._blocks, strict=True)]
        waiting = [other for other, count in enumerate(begun) if not under_way[other] and count < open_until]
        first = [other for other in waiting if under_way[index] or (begun[other], other) < (begun[index], index)]
        return rollout < open_until and sum(under_way) + len(first) <= self._staleness

    # ---- trainers ---------------------------------------------------------------------------------------------

    def may_apply(self) -> bool:
        """Whether this trainer may apply the gradient of its oldest rollout under way."""
        assert self._own is not None
        after = self.version + 1
        others: list[int] = []
        for index, block in enumerate(self._blocks):
            first = block.words[_APPLIED] + (block is self._own)
            others += [self._words[self._deadline_word(index, n)] for n in range(first, block.words[_BEGUN])]
        return all(deadline >= after + place for place, deadline in enumerate(sorted(others)))

    @contextlib.contextmanager
    def applying(self) -> Generator[int | None]:
        """The version that a gradient is to be applied to now, which then counts; None when it has to wait."""
        assert self._own is not None
        with self.locked():
            if not self.may_apply():
                yield None
                return
            yield self.version
            self._own.words[_APPLIED] += 1

    def look(self, waited_s: float) -> None:
        """Raise when a trainer whose rollout is under way is gone; see `Watch.look`."""
        self.watch.look(waited_s, lambda presence: presence.words[_BEGUN] > presence.words[_APPLIED])

    def _deadline_word(self, trainer: int, rollout: int) -> int:
        return self._deadlines + trainer * self._slots + rollout % self._slots

    def close(self) -> None:
        """Leave; the first trainer removes the name of the memory."""
        if self._own is not None:
            if self._own is self._blocks[0]:
                self._segment.unlink()
            self._own.leave()
        for presence in (self._header, *self._blocks):
            presence.release()
        self._words.release()
        self._view.release()
        os.close(self._lock)
        self._segment.memory.close()
