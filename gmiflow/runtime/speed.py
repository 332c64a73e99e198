"""How fast a training runs: its iterations after the warm-up, and what they say together. No torch."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import pairwise

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.events import Iteration

WARM_UP = 2
"""First iterations that do not count: libraries load and caches fill."""

UNTIL_REPLAYED = 3
"""Iterations of a set of buffers until its CUDA graphs are replayed: two plain ones, and that of the capture."""

WINDOWS = 5
"""Parts that the iterations are cut into, whose spread is told."""


def warm_up_of(training: TrainingPlan, *, on_gpu: bool) -> int:
    """First iterations of a training that do not count, because the rest will not be like them.

    On a GPU every set of buffers has graphs of its own, and the sets take turns: two rollouts where they overlap with
    updates or are timed step by step, and the slots of a channel where agents and trainers are apart.
    """
    if not on_gpu:
        return WARM_UP
    sets = 1
    if training.execution == "overlap" or training.mode == "serve":
        sets = 2
    elif training.mapping in ("ea_t", "dp_mp"):
        sets = min(max(edge.depth for edge in training.edges), training.max_staleness) + 1
    return WARM_UP + UNTIL_REPLAYED * sets


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What was measured of a training.

    Attributes:
        steps_per_s: environment steps per second, median of the windows.
        steps_per_s_low, steps_per_s_high: the slowest and the fastest window.
        iteration_s: median.
        stage_s: median seconds of an iteration by term; see `Iteration.stage_s`.
        iterations: how many were measured.
    """

    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    iteration_s: float
    stage_s: dict[str, float]
    iterations: int


@dataclass
class Speed:
    """Collects the iterations of one training.

    Attributes:
        warm_up: iterations to leave out.
        patience_s: a warm-up that takes longer is over after the iteration in which it did.
        measured_s: seconds of the iterations that count.
    """

    warm_up: int
    patience_s: float = float("inf")
    measured_s: float = 0.0
    _skipped: int = 0
    _skipped_s: float = 0.0
    _steps: list[int] = field(default_factory=list[int])
    _seconds: list[float] = field(default_factory=list[float])
    _terms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    @property
    def iterations(self) -> int:
        """How many count."""
        return len(self._seconds)

    @property
    def warm(self) -> bool:
        """Whether the next iteration counts."""
        return self._skipped >= self.warm_up or (self._skipped > 0 and self._skipped_s >= self.patience_s)

    def add(self, event: Iteration) -> None:
        """Count an iteration."""
        if not self.warm:
            self._skipped += 1
            self._skipped_s += event.seconds
            return
        self.measured_s += event.seconds
        self._steps.append(event.env_steps)
        self._seconds.append(event.seconds)
        for term, seconds in event.stage_s.items():
            self._terms.setdefault(term, []).append(seconds)

    def rates(self) -> Rates | None:
        """What the iterations say; None before one counts."""
        if not self._seconds or self.measured_s <= 0.0:
            return None
        windows = self._windows()
        return Rates(
            steps_per_s=statistics.median(windows),
            steps_per_s_low=min(windows),
            steps_per_s_high=max(windows),
            iteration_s=statistics.median(self._seconds),
            stage_s={term: statistics.median(seconds) for term, seconds in self._terms.items()},
            iterations=len(self._seconds),
        )

    def _windows(self) -> list[float]:
        """Steps per second of consecutive parts with equal numbers of iterations."""
        count = len(self._seconds)
        cuts = [count * part // min(WINDOWS, count) for part in range(min(WINDOWS, count) + 1)]
        spans = [slice(start, end) for start, end in pairwise(cuts)]
        return [sum(self._steps[span]) / max(sum(self._seconds[span]), 1e-9) for span in spans]
