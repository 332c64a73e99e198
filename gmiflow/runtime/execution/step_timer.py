"""The time of every step of a rollout, by the host's clock or by events on the stream."""

from __future__ import annotations

import logging
import time

import torch

logger = logging.getLogger(__name__)


class StepTimer:
    """Marks around the steps of one rollout; the same marks at every rollout.

    On a GPU the marks are CUDA events, which a graph records each time that it is replayed (`external` makes event
    nodes of them). They must be read before the rollout runs again.
    """

    def __init__(self, steps: int, stream: torch.cuda.Stream | None) -> None:
        """Prepare for ``steps`` steps on ``stream``; None without a GPU."""
        self._stream = stream
        self._marks_s = [0.0] * (steps + 1)
        self._events = (
            [torch.cuda.Event(enable_timing=True, external=True) for _ in range(steps + 1)]
            if stream is not None
            else []
        )
        self._unreadable = False

    def mark(self, step: int) -> None:
        """Note that ``step`` steps are done; 0 at the start."""
        if self._stream is None:
            self._marks_s[step] = time.perf_counter()
        else:
            self._events[step].record(torch.cuda.current_stream())

    def seconds(self, rollout_s: float) -> list[float]:
        """Every step's time; on a GPU after the rollout's end has been waited for.

        Args:
            rollout_s: time of the whole rollout. Where the driver does not tell the events of a graph apart, each
                step gets its share of this.
        """
        if self._stream is None:
            return [end - start for start, end in zip(self._marks_s, self._marks_s[1:], strict=False)]
        steps = len(self._events) - 1
        if not self._unreadable:
            try:
                pairs = zip(self._events, self._events[1:], strict=False)
                return [start.elapsed_time(end) / 1000.0 for start, end in pairs]
            except RuntimeError as problem:
                self._unreadable = True
                logger.warning("steps are timed together, not one by one: %s", str(problem).partition("\n")[0])
        return [rollout_s / steps] * steps
