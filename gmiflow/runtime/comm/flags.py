"""Flags in shared memory: who is there, how far each member is, and how to wait for the others."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable

from gmiflow.runtime.comm.shared_memory import make_fence
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, LAUNCH_FAILED, PEER_LOST, error
from gmiflow.runtime.gmi.process import ProcessIdentity

# Words of 8 bytes in a member's block. What changes at every call has a pair of cache lines (128
# bytes) of its own, because processors fetch lines in pairs.
_BLOCK = 64
_SEQUENCE, _CALLS = 0, 1
_ATTACHED, _PID, _START_TICKS, _LEFT = 16, 17, 18, 19
_CPUS, _CPU_WORDS = 32, 16
BLOCK_BYTES = _BLOCK * 8

SPINS = 3000
"""Looks at a flag before the core is offered to others; about 0.1 ms."""
YIELDS = 100
"""Times the core is offered to others before sleeping."""
SHORT_SLEEP_S = 50e-6
LONG_SLEEP_S = 1e-3
LIVENESS_S = 0.1
"""How often a waiting member looks whether the one it waits for is alive."""


class Flags:
    """One block of words per member, written by that member only.

    A member publishes a rising sequence number when its data is in place, and waits until the
    others' numbers are as high. Aligned 8-byte loads and stores are atomic on every machine that we
    know; `shared_memory.make_fence` orders them against the data.

    Waiting spins first, when every member can have a core of its own; then it yields the core; then
    it sleeps, briefly. So a wait costs little when members come together, and little processor time
    when they do not.
    """

    def __init__(self, name: str, members: tuple[int, ...], rank: int, memory: mmap.mmap, timeout_s: float) -> None:
        """Announce this member in ``memory``, whose first ``len(members) * BLOCK_BYTES`` bytes are the flags.

        Raises:
            GMIError: E0711 when this member's block is in use.
        """
        self._name = name
        self._members = members
        self._rank = rank
        self._timeout_s = timeout_s
        self._view = memoryview(memory)[: len(members) * BLOCK_BYTES]
        self._words = self._view.cast("q")
        self._own = rank * _BLOCK
        self._others = [i * _BLOCK for i in range(len(members)) if i != rank]
        self._fence: Callable[[], None] = make_fence()
        self._sequence = 0
        self._spins = 0
        self._announce()

    def _announce(self) -> None:
        words, own = self._words, self._own
        if words[own + _ATTACHED]:
            raise error(
                LAUNCH_FAILED,
                f"GMI {self._members[self._rank]} is in the collective {self._name} already",
                "use a fresh rendezvous directory for each run",
            )
        identity = ProcessIdentity.own()
        words[own + _PID], words[own + _START_TICKS] = identity.pid, identity.start_ticks
        for cpu in os.sched_getaffinity(0):
            if cpu < _CPU_WORDS * 32:
                words[own + _CPUS + cpu // 32] |= 1 << (cpu % 32)
        self._fence()
        words[own + _ATTACHED] = 1

    def wait_attached(self) -> None:
        """Return when all members have announced themselves.

        Raises:
            GMIError: E0705 when one does not within the time-out.
        """
        deadline = time.monotonic() + self._timeout_s
        while missing := [o // _BLOCK for o in self._others if not self._words[o + _ATTACHED]]:
            if time.monotonic() > deadline:
                names = ", ".join(f"GMI {self._members[rank]}" for rank in missing)
                raise error(COLLECTIVE_TIMED_OUT, f"{names} did not join {self._name} within {self._timeout_s:g} s")
            time.sleep(SHORT_SLEEP_S)
        self._fence()
        blocks = [self._own, *self._others]
        cpus = [self._words[b + _CPUS + i] for i in range(_CPU_WORDS) for b in blocks]
        together = [0] * _CPU_WORDS
        for i in range(_CPU_WORDS):
            for word in cpus[i * len(blocks) : (i + 1) * len(blocks)]:
                together[i] |= word
        # Spinning on a core that another member needs would only delay it.
        self._spins = SPINS if sum(word.bit_count() for word in together) >= len(blocks) else 0

    def exchange(self, call: int, parity: int) -> None:
        """Publish that this member's data for ``call`` is in place, and wait for the others'.

        Args:
            call: describes the operation; all members must make the same.
            parity: alternates from operation to operation, so that a member that is one operation
                ahead does not overwrite what a slower one still compares.

        Raises:
            ValueError: when another member makes a different call.
            GMIError: E0704, E0705 as `Collective.all_reduce`.
        """
        words = self._words
        words[self._own + _CALLS + parity] = call
        self.publish_and_wait()
        for other in self._others:
            if words[other + _CALLS + parity] != call:
                gmi = self._members[other // _BLOCK]
                raise ValueError(f"GMI {gmi} made another call on {self._name}: type, size or operation differ")

    def publish_and_wait(self) -> None:
        """One step of all members: everything written before it is seen by everybody after it."""
        self._sequence += 1
        target = self._sequence
        words = self._words
        self._fence()
        words[self._own] = target
        for other in self._others:
            if words[other] < target:
                self._wait(other, target)
        self._fence()

    def _wait(self, other: int, target: int) -> None:
        words = self._words
        for _ in range(self._spins):
            if words[other] >= target:
                return
        for _ in range(YIELDS):
            os.sched_yield()
            if words[other] >= target:
                return
        start = next_look = time.monotonic()
        while words[other] < target:
            now = time.monotonic()
            if now >= next_look:
                self._look_for(other, target, now - start)
                next_look = now + LIVENESS_S
            time.sleep(SHORT_SLEEP_S if now - start < 0.02 else LONG_SLEEP_S)

    def _look_for(self, other: int, target: int, waited_s: float) -> None:
        """Raise when the member at ``other`` is gone, has left, or is late."""
        words = self._words
        gmi = self._members[other // _BLOCK]
        gone = "left" if words[other + _LEFT] else "" if self._identity(other).alive else "died"
        if gone and words[other] < target:
            raise error(PEER_LOST, f"GMI {gmi} {gone} while the collective {self._name} waited for it")
        if waited_s > self._timeout_s:
            raise error(
                COLLECTIVE_TIMED_OUT,
                f"GMI {gmi} did not come to the collective {self._name} within {self._timeout_s:g} s",
            )

    def lost(self) -> int | None:
        """Rank of the first other member whose process has ended without leaving, or None."""
        for other in self._others:
            identity = self._identity(other)
            if self._words[other + _ATTACHED] and not self._words[other + _LEFT] and not identity.alive:
                return other // _BLOCK
        return None

    def _identity(self, other: int) -> ProcessIdentity:
        return ProcessIdentity(pid=self._words[other + _PID], start_ticks=self._words[other + _START_TICKS])

    def close(self) -> None:
        """Tell the others that this member makes no further calls, and release the memory."""
        self._words[self._own + _LEFT] = 1
        self._words.release()
        self._view.release()
