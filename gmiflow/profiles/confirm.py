"""Measuring the best points a second time: the highest of several noisy numbers is likely to be too high."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gmiflow.ir.search import Point
from gmiflow.profiles.ranking import simplicity
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.walls import Walls
from gmiflow.profiles.workload import Measurement

RIVALS = 3
"""How many points are looked at again at most."""

CLOSE = 0.05
"""A point is a rival of the best when its score may come this near to it."""


def shortlist(space: Space, measurements: Sequence[Measurement]) -> tuple[Point, ...]:
    """The best point and those close to it, best first, without those that were looked at twice already.

    Args:
        space: what may be chosen.
        measurements: when `propose` has no more to ask.
    """
    surface = Surface(space, measurements)
    walls = Walls(space, measurements, surface)
    inside = set(space.points())
    good = [m for m in measurements if usable(m) and m.point in inside and walls.fits(surface.candidate(m.point))]
    ranking = sorted(good, key=lambda m: (-surface.candidate(m.point).score, simplicity(m.point)))
    if not ranking:
        return ()
    least = surface.candidate(ranking[0].point).score * (1 - CLOSE)
    rivals = [m for m in ranking[:RIVALS] if surface.best_score(surface.candidate(m.point)) >= least]
    return tuple(m.point for m in rivals if m.looks < 2)


def combined(first: Measurement, second: Measurement) -> Measurement:
    """Two looks at the same point as one: means of the times and rates, the wider bars, the larger memory.

    A look that failed does not undo one that worked.
    """
    if not usable(second):
        return replace(first, looks=first.looks + 1)
    if not usable(first):
        return replace(second, looks=first.looks + 1)
    weight = first.looks / (first.looks + 1)

    def mean(a: float, b: float) -> float:
        return weight * a + (1 - weight) * b

    parts = [part for part in first.stage_s if part in second.stage_s]
    return replace(
        second,
        steps_per_s=mean(first.steps_per_s, second.steps_per_s),
        steps_per_s_low=min(first.steps_per_s_low, second.steps_per_s_low),
        steps_per_s_high=max(first.steps_per_s_high, second.steps_per_s_high),
        iteration_s=mean(first.iteration_s, second.iteration_s),
        stage_s={part: mean(first.stage_s[part], second.stage_s[part]) for part in parts},
        device_memory_bytes=max(first.device_memory_bytes, second.device_memory_bytes),
        host_memory_bytes=max(first.host_memory_bytes, second.host_memory_bytes),
        iterations=first.iterations + second.iterations,
        looks=first.looks + 1,
    )
