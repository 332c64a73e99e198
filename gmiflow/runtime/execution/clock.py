"""Where the host's time goes: one counter per stage, and the stage that is at work now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gmiflow.runtime.messages import RUNTIME_NAME

RUNTIME = 0
"""Index of the time that belongs to no stage: copies, statistics, checkpoints."""


class ProgressSlot(Protocol):
    """Where the stage at work is written, so that others can read it when this process is gone."""

    def __setitem__(self, index: int, value: int, /) -> None:
        """Store ``value`` at ``index``."""
        ...


class StageClock:
    """Charges host time to stages; entering one costs well under a microsecond.

    Attributes:
        names: "runtime", then the stages in the order of the plan.
        seconds: time charged to each since the last `take`.
        current: index of the stage at work.
        is_waiting: whether that stage waits for other GMIs just now.
    """

    def __init__(self, stages: Sequence[str], slot: ProgressSlot | None = None) -> None:
        """Count for ``stages``; ``slot[0]`` receives the current index and ``slot[1]`` the number of changes."""
        self.names = (RUNTIME_NAME, *stages)
        self.seconds = [0.0] * len(self.names)
        self.current = RUNTIME
        self._slot: ProgressSlot = slot if slot is not None else [0, 0]
        self.is_waiting: Callable[[], bool] = lambda: False
        self._changes = 0
        self._since = time.perf_counter()

    def enter(self, stage: int) -> None:
        """Charge the time since the last call to the current stage and make ``stage`` the current one."""
        now = time.perf_counter()
        self.seconds[self.current] += now - self._since
        self._since = now
        self.current = stage
        self._changes += 1
        self._slot[0] = stage
        self._slot[1] = self._changes

    def index(self, stage: str) -> int:
        """Index of the stage called ``stage``."""
        return self.names.index(stage)

    def since_entered(self) -> float:
        """Seconds since the current stage was entered; may be called from another thread."""
        return time.perf_counter() - self._since

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call, and start again from zero."""
        self.enter(self.current)
        taken = dict(zip(self.names, self.seconds, strict=True))
        self.seconds = [0.0] * len(self.names)
        return taken
