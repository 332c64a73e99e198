"""The cost model of a training on one device: the time of any point, fitted to the measured ones.

Time of an iteration of E environments over g GMIs of one device:

    T(g, E) = communicate(g) + a + b E/g + c E + d (g - 1)

a is what does not depend on the environments (launch gaps, the latency of a step), b E/g the work that GMIs divide
among them (on the CPU at most the cores do: more GMIs than cores take turns), c E the work for which they share the
device, d what each further GMI costs. ``communicate`` comes from
the calibration of the collectives. Coefficients are not negative. Each part of an iteration is fitted alike. What
the line leaves over is taken from the nearest measurements, and another lowering is a factor that its own
measurements give.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from gmiflow.ir.search import Candidate, Estimate, Point
from gmiflow.profiles.defaults import PRIOR
from gmiflow.profiles.drift import level, levelled
from gmiflow.profiles.estimate import Bar, exactly, row_of
from gmiflow.profiles.memory import Memory
from gmiflow.profiles.objective import score
from gmiflow.profiles.regression import fit
from gmiflow.profiles.space import Space
from gmiflow.profiles.workload import Measurement

PARTS = ("simulate", "infer", "collect", "update", "communicate")

Lowering: TypeAlias = "tuple[str, str, str]"
"""(template, execution, backend where it is not the usual one)."""

_NOISE = 0.03
"""Relative error of one measured point, as windows of a second differ on an idle machine."""

_FACTOR = {"eager": 1.5, "graph": 1.0, "overlap": 0.85}
"""Time in relation to a graph before a lowering is measured (DESIGN, section 8)."""

_STEP_IN_ROW, _BEYOND, _STEP_IN_GMIS, _UNKNOWN = 0.03, 0.07, 0.04, 0.3
"""What the error grows by: per doubling between measured environments, per doubling beyond them, per doubling of
GMIs, and for a lowering that was never measured."""


class Surface:
    """The model of one space after some measurements.

    Attributes:
        levels: the measurements without the drift of the machine.

    Args:
        space: for the horizon, devices and priors.
        measurements: of any points; those that failed are left out.
    """

    def __init__(self, space: Space, measurements: Sequence[Measurement]) -> None:
        """Fit; a few milliseconds."""
        self._space = space
        self.levels = level(measurements, space.device)
        good = sorted((m for m in measurements if usable(m)), key=lambda m: m.point)
        self._good = levelled(good, self.levels)
        self._candidates: dict[Point, Candidate] = {}
        self._measured = {m.point: m for m in self._good}
        self._time = _Series(space, [(m.point, iteration_s(m, space.horizon)) for m in self._good], whole=True)
        self._parts = {
            part: _Series(space, seen)
            for part in PARTS
            if (seen := [(m.point, m.stage_s[part]) for m in self._good if m.stage_s.get(part, 0.0) > 0.0])
        }

        device = [(m.point, float(m.device_memory_bytes)) for m in self._good if m.device_memory_bytes]
        host = [(m.point, float(m.host_memory_bytes)) for m in self._good if m.host_memory_bytes]
        self._device_memory = Memory(space, device, "cuda")
        self._host_memory = Memory(space, host, "cpu")

    @property
    def fitted(self) -> bool:
        """Whether anything was measured."""
        return bool(self._good)

    def candidate(self, point: Point) -> Candidate:
        """All that is known about a point, measured where it was."""
        if point not in self._candidates:
            self._candidates[point] = self._make(point)
        return self._candidates[point]

    def memory(self, point: Point) -> Estimate:
        """Bytes that decide whether a point fits: of the device, on the CPU of the host."""
        return (self._device_memory if self._space.device == "cuda" else self._host_memory).at(point)

    def _make(self, point: Point) -> Candidate:
        rate = self._rate(point)
        space = self._space
        batch = point.num_env * space.devices * space.horizon
        return Candidate(
            point=point,
            steps_per_s=rate,
            device_memory=self._device_memory.at(point) if space.device == "cuda" else exactly(0.0),
            host_memory=self._host_memory.at(point),
            iteration=_seconds_of(batch, rate),
            terms=self._terms(point),
            score=score(rate.value, batch, space.objective, space.critical_batch),
        )

    def best_score(self, candidate: Candidate) -> float:
        """The score at the upper end of the error bar."""
        return candidate.score * candidate.steps_per_s.high / candidate.steps_per_s.value

    def _rate(self, point: Point) -> Estimate:
        """Steps per second over all devices; other devices add their steps, and a longer all-reduce."""
        space = self._space
        steps = point.num_env * space.devices * space.horizon
        apart = self._apart_s(point.gmis)
        found = self._measured.get(point)
        if found is None:
            bar = self._time.at(point)
            return Bar(steps / (bar.value + apart), bar.error).estimate()
        rates = (
            found.steps_per_s,
            found.steps_per_s_low or found.steps_per_s,
            found.steps_per_s_high or found.steps_per_s,
        )
        if space.devices == 1:
            return Estimate(value=rates[0], low=min(rates), high=max(rates), origin="measured")
        value, low, high = (steps / (point.num_env * space.horizon / rate + apart) for rate in rates)
        return Estimate(value=value, low=min(value, low), high=max(value, high), origin="modelled")

    def _apart_s(self, gmis: int) -> float:
        """What all-reduces take longer over all devices than inside of one, per iteration."""
        one, every = communicate_s(self._space, gmis)
        return max(0.0, every - one)

    def _terms(self, point: Point) -> dict[str, Estimate]:
        found = self._measured.get(point)
        if found is not None:
            parts = {part: found.stage_s[part] for part in PARTS if part in found.stage_s}
            parts = parts or {"iteration": iteration_s(found, self._space.horizon)}
            return {part: exactly(s) for part, s in parts.items()}
        names = self._told_apart(point.execution)
        if point.gmis * self._space.devices == 1:
            names.discard("communicate")  # one GMI has nobody to reduce gradients with
        if not names:
            return {"iteration": self._time.at(point).estimate()}
        return {part: series.at(point).estimate() for part, series in self._parts.items() if part in names}

    def _told_apart(self, execution: str) -> set[str]:
        """The parts that measurements of an execution show: a CUDA graph hides two of them in "collect"."""
        return {part for m in self._good if m.point.execution == execution for part in m.stage_s}


class _Series:
    """One quantity in seconds over all points.

    Args:
        space: of the points.
        seen: its measurements.
        whole: whether it is the time of the whole iteration, of which the all-reduces are a known part.
    """

    def __init__(self, space: Space, seen: Sequence[tuple[Point, float]], *, whole: bool = False) -> None:
        self._space = space
        self._seen = seen
        self._whole = whole
        self._lowerings = [lowering_of(space, point) for point, _ in seen]
        self._main = _most_measured(space, [point for point, _ in seen])
        main = [(point, value) for point, value in seen if lowering_of(space, point) == self._main]
        self._coefficients = self._fit(main)
        self._factors = self._lowering_factors()
        self._left_over = [math.log(value / (self._line(point) * self._factor(point))) for point, value in seen]

    def at(self, point: Point) -> Bar:
        """The modelled value and its relative error."""
        value = self._line(point) * self._factor(point) * math.exp(self._correction(point))
        return Bar(value, self._error(point))

    def _fit(self, main: Sequence[tuple[Point, float]]) -> tuple[float, ...]:
        expected = [self._space.horizon * item for item in PRIOR[self._space.device]]
        if not main:
            return tuple(expected)
        rows = [_features(self._space, point) for point, _ in main]
        left = [max(value / 2, value - self._known_s(point)) for point, value in main]
        guess = [sum(c * f for c, f in zip(expected, row, strict=True)) for row in rows]
        scale = math.exp(_mean([math.log(value / g) for value, g in zip(left, guess, strict=True)]))
        return fit(rows, left, [scale * item for item in expected], noise=_NOISE)

    def _line(self, point: Point) -> float:
        line = sum(c * f for c, f in zip(self._coefficients, _features(self._space, point), strict=True))
        return line + self._known_s(point)

    def _known_s(self, point: Point) -> float:
        return communicate_s(self._space, point.gmis)[0] if self._whole else 0.0

    def _lowering_factors(self) -> dict[Lowering, float]:
        ratios: dict[Lowering, list[float]] = {}
        for point, value in self._seen:
            ratios.setdefault(lowering_of(self._space, point), []).append(math.log(value / self._line(point)))
        return {key: 1.0 if key == self._main else math.exp(_mean(logs)) for key, logs in ratios.items()}

    def _factor(self, point: Point) -> float:
        known = self._factors.get(lowering_of(self._space, point))
        if known is not None:
            return known
        return _FACTOR[point.execution] / _FACTOR[self._main[1]]

    def _correction(self, point: Point) -> float:
        """What the measurements say about the line, in logarithms.

        Along a row it runs from point to point; a row without measurements takes that of the nearest others, and
        0 far from all of them.
        """
        row = [
            (math.log2(other.num_env), left_over)
            for (other, _), left_over in zip(self._seen, self._left_over, strict=True)
            if row_of(other) == row_of(point)
        ]
        if row:
            return _between(sorted(row), math.log2(point.num_env))
        total, weights = 0.0, 0.2
        own = lowering_of(self._space, point)
        for (other, _), lowering, left_over in zip(self._seen, self._lowerings, self._left_over, strict=True):
            closeness = math.exp(-(_distance(point, other, same=own == lowering) ** 2))
            total += closeness * left_over
            weights += closeness
        return total / weights

    def _error(self, point: Point) -> float:
        row = [other.num_env for other, _ in self._seen if row_of(other) == row_of(point)]
        if row:
            beyond = point.num_env < min(row) or point.num_env > max(row)
            doublings = min(abs(math.log2(point.num_env / other)) for other in row)
            return min(0.6, _NOISE + (_BEYOND if beyond else _STEP_IN_ROW) * doublings)
        own = lowering_of(self._space, point)
        known = [other for (other, _), lowering in zip(self._seen, self._lowerings, strict=True) if lowering == own]
        others = known or [other for other, _ in self._seen]
        nearest = min((_distance(point, other, same=bool(known)) for other in others), default=3.0)
        return min(0.6, _NOISE + 0.02 + _STEP_IN_GMIS * nearest + (0.0 if known else _UNKNOWN))


def _seconds_of(steps: int, rate: Estimate) -> Estimate:
    """How long so many steps take: the slowest rate is the longest time."""
    return Estimate(value=steps / rate.value, low=steps / rate.high, high=steps / rate.low, origin=rate.origin)


def usable(measurement: Measurement) -> bool:
    """Whether a measurement has a rate."""
    return measurement.status == "ok" and measurement.steps_per_s > 0.0


def iteration_s(measurement: Measurement, horizon: int) -> float:
    """Seconds of one iteration, from its rate, which is what is compared."""
    return measurement.point.num_env * horizon / measurement.steps_per_s


def communicate_s(space: Space, gmis: int) -> tuple[float, float]:
    """Seconds of all-reduces per iteration: (inside of one device, over all devices); 0 when not known."""
    return next(((one, every) for count, one, every in space.communicate_s if count == gmis), (0.0, 0.0))


def _features(space: Space, point: Point) -> tuple[float, float, float, float]:
    at_once = point.gmis if space.device == "cuda" else min(point.gmis, space.own_cores)
    return 1.0, point.num_env / at_once, float(point.num_env), float(point.gmis - 1)


def lowering_of(space: Space, point: Point) -> Lowering:
    """What may change the time by a factor; a backend does only where several GMIs share the device."""
    usual = point.gmis == 1 or point.backend == space.backends[1][0]
    return point.template, point.execution, "" if usual else point.backend


def _most_measured(space: Space, points: Sequence[Point]) -> Lowering:
    """The lowering with the most points; the one that is tried first when several have as many."""
    counts = Counter(lowering_of(space, point) for point in points)
    if not counts:
        return space.templates[0], space.executions[0], ""
    order = {execution: place for place, execution in enumerate(space.executions)}
    return min(counts, key=lambda key: (-counts[key], order.get(key[1], len(order)), key))


def _distance(a: Point, b: Point, *, same: bool) -> float:
    """In doublings of GMIs; environments count half, another lowering is two more."""
    environments = abs(math.log2(a.num_env / b.num_env)) / 2
    return math.hypot(environments, math.log2(a.gmis / b.gmis)) + (0.0 if same else 2.0)


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Piecewise linear through points of rising x, constant outside of them."""
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        if x1 <= at <= x2:
            return y1 + (y2 - y1) * (at - x1) / (x2 - x1)
    return points[0][1] if at < points[0][0] else points[-1][1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
