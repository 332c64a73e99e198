"""What is made of the curves of several seeds: means with confidence intervals, times to a return. No torch.

A curve is a list of points (seconds of training, environment steps, mean return of the latest 100 or more episodes).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from gmiflow.runtime.outcome import confidence_half_width

Point = tuple[float, int, float]

GRID = 200
"""Places at which the mean of several curves is worked out."""

SHARE_OF_COMMON = 0.95
"""Part of the way from the first return to what all sides reach, whose time is compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: of the values.
        half_width: half the width of its 95 % confidence interval (Student's t); None for one value.
        count: values.
    """

    mean: float
    half_width: float | None
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Curves of several seeds as one: the mean, and its confidence interval where there are two curves or more."""

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and interval; None without values."""
    if not values:
        return None
    return Estimate(mean=sum(values) / len(values), half_width=confidence_half_width(values), count=len(values))


def band(curves: Sequence[Sequence[tuple[float, float]]]) -> Band | None:
    """Mean and 95 % interval of curves (x, y), where all of them have values; None where there is no such place.

    Between two points a curve is a straight line.
    """
    curves = [curve for curve in curves if curve]
    if not curves:
        return None
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    if last < first:
        return None
    grid = [first + (last - first) * step / (GRID - 1) for step in range(GRID)] if last > first else [first]
    columns = [[_at(curve, x) for curve in curves] for x in grid]
    means = [sum(values) / len(values) for values in columns]
    widths = [confidence_half_width(values) or 0.0 for values in columns]
    return Band(
        x=tuple(grid),
        mean=tuple(means),
        low=tuple(mean - width for mean, width in zip(means, widths, strict=True)),
        high=tuple(mean + width for mean, width in zip(means, widths, strict=True)),
    )


def _at(curve: Sequence[tuple[float, float]], x: float) -> float:
    """The curve's value at ``x``, which lies between its first and its last point."""
    right = bisect.bisect_left(curve, x, key=lambda point: point[0])
    if right == 0:
        return curve[0][1]
    if right == len(curve):
        return curve[-1][1]
    (x0, y0), (x1, y1) = curve[right - 1], curve[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1


def first_reached(curve: Sequence[Point], goal: float) -> Point | None:
    """The first point of a curve with a return of ``goal`` or more."""
    return next((point for point in curve if point[2] >= goal), None)


def common_return(sides: Sequence[Sequence[Sequence[Point]]]) -> float | None:
    """A return that every seed of every side reaches: `SHARE_OF_COMMON` of the way to the lowest best one."""
    curves = [curve for seeds in sides for curve in seeds]
    if not curves or not all(curves):
        return None
    best = min(max(value for _, _, value in curve) for curve in curves)
    first = max(curve[0][2] for curve in curves)
    return first + SHARE_OF_COMMON * (best - first) if best > first else None


def thinned(points: Sequence[Point], most: int = 400) -> list[Point]:
    """At most ``most`` points of a curve, evenly chosen, the last one included."""
    if len(points) <= most:
        return list(points)
    return [points[round(index * (len(points) - 1) / (most - 1))] for index in range(most)]
