"""How fast points are once the drift of the machine is taken out of what was measured.

The speed of a machine that others use changes by half within minutes, so two numbers that were taken one after the
other cannot be compared. Points are therefore looked at several times, in turns, and every look knows its time: the
logarithm of a rate is that of its point, plus the drift of the machine at that time, which changes little from one
look to the next, plus noise (`local_level`). Looks that lie far off, as when somebody else's work fell upon them,
count less: the weights are those of Student's t distribution, refined in turns with the fit (Lange, Little and
Taylor, 1989). A profile of few looks says little about noise and drift, so both start from an expectation.

What a whole run measured (a look with `run`, from `gmiflow profile --recalibrate`) was compared with nothing, so it
moves all points alike: by the median of what the runs say about the level.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gmiflow.ir.search import Point
from gmiflow.profiles.local_level import Fit, Observation, solve
from gmiflow.profiles.workload import Measurement

NOISE = {"cpu": 0.05, "cuda": 0.02}
"""Expected relative standard deviation of one look, by device."""

DRIFT = {"cpu": 0.02, "cuda": 0.001}
"""Expected relative standard deviation of the machine's change of speed in one second, by device."""

ALONE = {"cpu": 0.6, "cuda": 0.0}
"""Relative error of a point that was looked at once: somebody else's burst of work may have fallen upon it."""

CONFIDENCE = 1.64
"""Standard errors of an error bar: nine of ten true values are within."""

_EXPECTATION_COUNTS = 4
"""Looks that the expected noise counts as."""

_RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Drift over noise that are tried, in units of what is expected; a factor of e of them costs half a log likelihood."""

_TAILS = 4.0
"""Degrees of freedom of Student's t."""

_REFINEMENTS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """The fit.

    Attributes:
        rates: steps per second at the machine's usual speed, of every point that has looks.
        errors: their relative standard errors, against the point with the most looks.
        noise: relative standard deviation of one look.
        drift: relative speed of the machine at every look, in the order of time; the median is 1.
    """

    rates: dict[Point, float] = field(default_factory=dict[Point, float])
    errors: dict[Point, float] = field(default_factory=dict[Point, float])
    noise: float = 0.0
    drift: tuple[float, ...] = ()
    _between: dict[tuple[Point, Point], float] = field(default_factory=dict["tuple[Point, Point]", float])

    def error_between(self, first: Point, second: Point) -> float:
        """Relative standard error of the ratio of two points; 0 for points without looks."""
        return self._between.get((first, second), 0.0)

    @property
    def spread(self) -> float:
        """How far the machine's speed went up and down: half of the range of nine in ten looks, relative."""
        if len(self.drift) < 3:
            return 0.0
        cuts = statistics.quantiles(self.drift, n=20, method="inclusive")
        return (cuts[-1] - cuts[0]) / 2


def level(measurements: Sequence[Measurement], device: str) -> Levels:
    """Fit what was measured.

    Args:
        measurements: those without looks are left out.
        device: "cpu" or "cuda", for what is expected.
    """
    looks = {m.point: [look for look in m.looks if look.steps_per_s > 0 and not look.run] for m in measurements}
    points = sorted(point for point, found in looks.items() if found)
    if not points:
        return Levels()
    observations = sorted(
        (
            Observation(group=group, at_s=look.at_s, value=math.log(look.steps_per_s))
            for group, point in enumerate(points)
            for look in looks[point]
        ),
        key=lambda item: (item.at_s, item.group),
    )
    fit, noise = _robust(observations, NOISE[device], DRIFT[device] / NOISE[device])
    usual = statistics.median(fit.drift)
    rates = {point: fit.effects[group] + usual for group, point in enumerate(points)}
    shift = _level_of_runs(measurements, rates)
    between = _errors(points, observations, fit, noise, ALONE[device])
    most = max(points, key=lambda point: (len(looks[point]), point))
    errors = {point: between.get((point, most), 0.0) for point in points}
    errors[most] = min((error for error in errors.values() if error), default=noise) / math.sqrt(2)
    return Levels(
        rates={point: math.exp(value + shift) for point, value in rates.items()},
        errors=errors,
        noise=noise,
        drift=tuple(math.exp(value - usual) for value in fit.drift),
        _between=between,
    )


def levelled(measurements: Sequence[Measurement], levels: Levels) -> list[Measurement]:
    """The measurements at the machine's usual speed, their windows replaced by what the noise leaves uncertain."""
    return [_levelled(m, levels) if m.point in levels.rates else m for m in measurements]


def _levelled(measurement: Measurement, levels: Levels) -> Measurement:
    rate = levels.rates[measurement.point]
    bar = math.exp(CONFIDENCE * levels.errors[measurement.point])
    slower = measurement.steps_per_s / rate
    return dataclasses.replace(
        measurement,
        steps_per_s=rate,
        steps_per_s_low=rate / bar,
        steps_per_s_high=rate * bar,
        iteration_s=measurement.iteration_s * slower,
        stage_s={term: seconds * slower for term, seconds in measurement.stage_s.items()},
    )


def _robust(observations: Sequence[Observation], noise: float, ratio: float) -> tuple[Fit, float]:
    """The fit with weights by how far off each look lies, and the noise; from the most likely drift."""
    weights = [1.0] * len(observations)
    tried = [(_likelihood(solve(observations, weights, ratio * times), noise, times), times) for times in _RATIOS]
    ratio *= max(tried)[1]
    expected = noise
    for _ in range(_REFINEMENTS):
        fit = solve(observations, weights, ratio)
        noise = _noise(fit, expected)
        weights = [(_TAILS + 1) / (_TAILS + (residual / noise) ** 2) for residual in fit.residuals]
    fit = solve(observations, weights, ratio)
    return fit, _noise(fit, expected)


def _noise(fit: Fit, expected: float) -> float:
    freedom = len(fit.residuals) - len(fit.effects)
    return math.sqrt((_EXPECTATION_COUNTS * expected**2 + fit.objective) / (_EXPECTATION_COUNTS + freedom))


def _likelihood(fit: Fit, expected: float, times: float) -> float:
    """Restricted log likelihood of a drift, with what is expected of it; up to a constant."""
    freedom = len(fit.residuals) - len(fit.effects) + _EXPECTATION_COUNTS
    noise = _noise(fit, expected)
    return -freedom * math.log(noise) - fit.log_determinant / 2 - math.log(times) ** 2 / 2


def _errors(
    points: Sequence[Point], observations: Sequence[Observation], fit: Fit, noise: float, alone: float
) -> dict[tuple[Point, Point], float]:
    """Relative standard error between any two points."""
    own = [
        _alone([r for item, r in zip(observations, fit.residuals, strict=True) if item.group == group], alone)
        for group in range(len(points))
    ]
    covariance = fit.covariance
    found: dict[tuple[Point, Point], float] = {}
    for i, first in enumerate(points):
        for j, second in enumerate(points):
            if i != j:
                variance = max(0.0, covariance[i][i] + covariance[j][j] - 2 * covariance[i][j])
                found[first, second] = math.sqrt(noise**2 * variance + own[i] ** 2 + own[j] ** 2)
    return found


def _alone(residuals: Sequence[float], alone: float) -> float:
    """What is uncertain beyond the noise: a single look, and two that do not agree, of which neither may be right."""
    if len(residuals) == 1:
        return alone
    return statistics.stdev(residuals) if len(residuals) == 2 else 0.0


def _level_of_runs(measurements: Sequence[Measurement], rates: dict[Point, float]) -> float:
    """How much faster runs were than the points' rates, as a logarithm; 0 without runs."""
    told = [
        math.log(look.steps_per_s) - rates[m.point]
        for m in measurements
        if m.point in rates
        for look in m.looks
        if look.run
    ]
    return statistics.median(told) if told else 0.0
