"""The loop of a profiling session: round after round, until the search is over or the time is. No torch.

What a round measures is asked anew after each, so the loop knows nothing of points; and what measures them is
handed in, so that a machine that exists only as a formula can be profiled, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from gmiflow.ir.search import Point
from gmiflow.profiles.workload import Measurement

EXPLORE = 0.6
"""Part of the budget after which the known points are compared before new ones are tried."""

Proposer: TypeAlias = "Callable[[Sequence[Measurement], bool], tuple[Point, ...]]"
"""Says what to measure next, in turns, from what is known and whether it is late; empty when nothing is worth it."""


class Bench(Protocol):
    """What measures points, and keeps what it measured."""

    @property
    def measurements(self) -> Sequence[Measurement]:
        """What is known so far."""
        ...

    def elapsed(self) -> float:
        """Seconds since the campaign began."""
        ...

    def measure(self, point: Point) -> bool:
        """Measure a point and keep it; False when the budget ended before it showed anything."""
        ...


def conduct(bench: Bench, propose: Proposer, budget_s: float) -> Literal["complete", "budget"]:
    """Measure rounds until nothing is left to ask ("complete") or the budget is spent.

    A round is not begun when it would not end within the budget; the first one always is. Instead of a new point for
    which the time is too short, those that are known are compared.

    Args:
        bench: measures.
        propose: says what is next.
        budget_s: seconds.
    """
    costs: dict[Point, float] = {}
    late = False
    while points := propose(bench.measurements, late):
        usual = statistics.median(costs.values()) if costs else 0.0
        expected = sum(costs.get(point, usual) for point in points)
        if costs and bench.elapsed() + expected > budget_s:
            if late:
                return "budget"
            late = True
            continue
        for point in points:
            began = bench.elapsed()
            if not bench.measure(point):
                return "budget"
            costs[point] = bench.elapsed() - began
        late = bench.elapsed() > EXPLORE * budget_s
    return "complete"
