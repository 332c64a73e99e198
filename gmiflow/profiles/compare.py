"""Which points are measured in turns, and when enough is known to decide between them.

The highest of several noisy numbers is likely to be too high, and numbers that were taken minutes apart say nothing
about each other on a machine that drifts. So what may be the best is measured again and again in the same rounds,
until no other point may still be better by more than `CLOSE`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gmiflow.ir.search import Point
from gmiflow.profiles.ranking import best_of, simplicity
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.walls import Walls
from gmiflow.profiles.workload import Measurement

RIVALS = 2
"""How many points are compared with the best one at the same time."""

CLOSE = 0.02
"""A point that may be better by more than this is a rival."""

CERTAINTY = 2.5
"""Standard errors that a point has to lie behind to be no rival any more."""

MAX_LOOKS = 15
"""Looks at a point; two that are still alike are a tie."""


def anchor(space: Space, measurements: Sequence[Measurement]) -> Point | None:
    """The point that is measured beside every new one, to tell the machine's drift from the point's speed.

    The unsliced one nearest to the reference, which takes little time. None on a GPU, whose speed is its own, and
    before anything worked.
    """
    if space.device != "cpu":
        return None
    good = [m.point for m in measurements if usable(m)]
    return min(good, key=lambda p: (p.gmis, abs(math.log2(p.num_env / space.reference)), simplicity(p)), default=None)


def next_round(space: Space, measurements: Sequence[Measurement]) -> tuple[Point, ...]:
    """The best point and its rivals, in the order in which they are measured; empty when the choice is clear.

    Every second round has the opposite order, so that what changes steadily cancels.

    Args:
        space: what may be chosen.
        measurements: so far.
    """
    surface = Surface(space, measurements)
    walls = Walls(space, measurements, surface)
    inside = set(space.points())
    good = [m for m in measurements if usable(m) and m.point in inside and walls.fits(surface.candidate(m.point))]
    best = best_of([surface.candidate(m.point) for m in good])
    if best is None:
        return ()
    looks = {m.point: len(m.looks) for m in good}

    def advantage(point: Point) -> float:
        """By how much it may be better than the best point, as a logarithm."""
        error = surface.levels.error_between(point, best.point)
        return math.log(surface.candidate(point).score / best.score) + CERTAINTY * error

    rivals = [
        m.point
        for m in good
        if m.point != best.point
        and min(looks[m.point], looks[best.point]) < MAX_LOOKS
        and advantage(m.point) > math.log1p(CLOSE)
    ]
    nearest = sorted(rivals, key=lambda p: (-advantage(p), simplicity(p)))[:RIVALS]
    if not nearest:
        return ()
    order = (best.point, *nearest)
    return order if looks[best.point] % 2 else order[::-1]


def combined(first: Measurement, second: Measurement) -> Measurement:
    """Two measurements of the same point as one: means of times and rates, the larger memory, the looks of both.

    One that failed does not undo one that worked.
    """
    looks = (*first.looks, *second.looks)
    if not (usable(first) and usable(second)):
        return replace(first if usable(first) else second, looks=looks)
    weight = max(1, len(first.looks)) / (max(1, len(first.looks)) + max(1, len(second.looks)))

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
        looks=looks,
    )
