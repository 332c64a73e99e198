"""Who is at an end of a channel, and how to wait for the other end without waiting for the dead."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, PEER_LOST, error
from gmiflow.runtime.gmi.process import ProcessIdentity

BLOCK_WORDS = 64
"""Words of 8 bytes that one member writes: four pairs of cache lines, so that no two members share one."""
_ATTACHED, _PID, _START_TICKS, _LEFT = 48, 49, 50, 51

YIELDS = 50
"""Times that the core is offered to others before sleeping."""
SHORT_SLEEP_S = 50e-6
LONG_SLEEP_S = 1e-3
LIVENESS_S = 0.1
"""How often a waiting member looks whether the one it waits for is alive."""


class Presence:
    """A member's block of words: counters from word 0, and at the end who writes them."""

    def __init__(self, words: memoryview, block: int) -> None:
        """View block number ``block`` of ``words``, a view of 8-byte integers."""
        self.words = words[block * BLOCK_WORDS : (block + 1) * BLOCK_WORDS]

    @property
    def attached(self) -> bool:
        """Whether somebody has announced itself."""
        return self.words[_ATTACHED] != 0

    @property
    def left(self) -> bool:
        """Whether the member said goodbye."""
        return self.words[_LEFT] != 0

    @property
    def alive(self) -> bool:
        """Whether the process that announced itself still runs."""
        return ProcessIdentity(pid=self.words[_PID], start_ticks=self.words[_START_TICKS]).alive

    @property
    def gone(self) -> str:
        """How the member went, "left" or "died"; "" while it is there, and before it has come."""
        if not self.attached:
            return ""
        if self.left:
            return "left"
        return "" if self.alive else "died"

    def announce(self) -> None:
        """Say that this process has the block from now on; its counters stay as a lost predecessor left them."""
        identity = ProcessIdentity.own()
        self.words[_PID], self.words[_START_TICKS] = identity.pid, identity.start_ticks
        self.words[_LEFT] = 0
        self.words[_ATTACHED] = 1

    def leave(self) -> None:
        """Say that no more will come."""
        self.words[_LEFT] = 1

    def release(self) -> None:
        """Let go of the memory."""
        self.words.release()


class Watch:
    """Looks after the members that somebody waits for.

    Attributes:
        timeout_s: how long to wait for one of them.
    """

    def __init__(self, what: str, timeout_s: float) -> None:
        """Watch nobody yet; ``what`` stands in messages, for example "the channel train.experience.2"."""
        self._what = what
        self.timeout_s = timeout_s
        self._members: list[tuple[int, Presence, bool]] = []

    def add(self, gmi: int, presence: Presence, *, replaceable: bool = False) -> None:
        """Watch a GMI; one that is replaceable may die, since another takes its place."""
        self._members.append((gmi, presence, replaceable))

    def look(self, waited_s: float, late: Callable[[Presence], bool] = lambda presence: True) -> None:
        """Raise when a member that ``late`` holds for is gone, or the time is over.

        Raises:
            GMIError: E0704 for a member that died or left, E0705 after the time-out.
        """
        for gmi, presence, replaceable in self._members:
            if not late(presence):
                continue
            gone = "" if replaceable else presence.gone
            if gone and late(presence):  # it may have come just before it went
                raise error(PEER_LOST, f"GMI {gmi} {gone} while {self._what} waited for it")
            if waited_s > self.timeout_s:
                came = "did not come to" if presence.attached else "did not join"
                raise error(COLLECTIVE_TIMED_OUT, f"GMI {gmi} {came} {self._what} within {self.timeout_s:g} s")


def wait_for(ready: Callable[[], bool], look: Callable[[float], None], *, yields: int = YIELDS) -> float:
    """Return when ``ready``; the seconds that it took.

    Offers the core to others first, then sleeps briefly: a wait costs little when both ends come together,
    and little processor time when they do not.

    Args:
        ready: looked at again and again; must be cheap.
        look: called now and then with the seconds waited; raises when it is of no use to wait on.
        yields: times that the core is offered to others before sleeping.
    """
    if ready():
        return 0.0
    start = next_look = time.monotonic()
    for _ in range(yields):
        os.sched_yield()
        if ready():
            return time.monotonic() - start
    while not ready():
        now = time.monotonic()
        if now >= next_look:
            look(now - start)
            next_look = now + LIVENESS_S
        time.sleep(SHORT_SLEEP_S if now - start < 0.02 else LONG_SLEEP_S)
    return time.monotonic() - start
