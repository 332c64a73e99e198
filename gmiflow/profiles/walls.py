"""Points that need not or must not be measured: out of memory, in a failing lowering, beyond saturation."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gmiflow.ir.search import Candidate, Point, Term
from gmiflow.profiles.estimate import Row, row_of
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.workload import Measurement

SATURATION = 0.02
"""Least gain in score per doubling of the environments; a row that gains less is not followed further."""


_REFUSED = re.compile(r"E0[0-6]\d\d: ")
"""What the compiler says of a size that the file does not allow: other sizes may do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wall:
    """Why a point is out of the question; ``reason`` is one sentence without a full stop."""

    term: Term
    reason: str


class Walls:
    """What the measurements so far rule out.

    Args:
        space: with the memory.
        measurements: so far.
        surface: fitted to them.
    """

    def __init__(self, space: Space, measurements: Sequence[Measurement], surface: Surface) -> None:
        """Find the walls once."""
        self._space = space
        self._surface = surface
        self._measurements = sorted(measurements, key=lambda m: m.point)
        self._good = [m for m in self._measurements if usable(m)]
        self._out_of_memory = [m.point for m in self._measurements if m.status == "out_of_memory"]
        self._failing_sizes = {m.point.num_env for m in self._measurements if fails(m) and m.point.execution == "eager"}
        self._saturated = self._saturated_rows()
        self._wall_bytes = self._least_bytes_out_of_memory()

    def against(self, point: Point) -> Wall | None:
        """What stands against a point that was not measured, or None."""
        return self._memory(point) or self._failing(point) or self._saturation(point)

    def fits(self, candidate: Candidate) -> bool:
        """Whether a candidate fits into the memory that the target leaves it; true when nobody knows."""
        return not self._space.memory_bytes or self._surface.memory(candidate.point).value <= self._space.memory_bytes

    def _memory(self, point: Point) -> Wall | None:
        for other in self._out_of_memory:
            if point.gmis >= other.gmis and point.num_env >= other.num_env:
                return Wall(term="memory", reason=f"out of memory was already {other}")
        estimate = self._surface.memory(point)
        if self._space.memory_bytes and estimate.low > self._space.memory_bytes:
            have = gib(self._space.memory_bytes)
            return Wall(term="memory", reason=f"projected to need {gib(estimate.value)}, and there are {have}")
        if estimate.value >= self._wall_bytes:
            reason = f"projected to need {gib(estimate.value)}, as much as what ran out of memory"
            return Wall(term="memory", reason=reason)
        return None

    def _least_bytes_out_of_memory(self) -> float:
        """The smallest projection of a point that ran out of memory, but never less than what did work."""
        worked = max((self._surface.memory(m.point).value for m in self._good), default=0.0)
        least = min((self._surface.memory(point).value for point in self._out_of_memory), default=math.inf)
        return max(least, worked + 1)

    def _failing(self, point: Point) -> Wall | None:
        """A lowering that fails in one GMI fails in several; a backend may fail under several alone.

        What fails in the eager loop may work at another size: it is given up when three have failed. Other lowerings
        fail whatever the size (something cannot be captured), unless the eager loop fails there, too.
        """
        alone = [m for m in self._measurements if m.point.gmis == 1 and _execution(m.point) == _execution(point)]
        several = [m for m in self._measurements if m.point.gmis > 1 and _shared(m.point) == _shared(point)]
        for alike in (alone, several if point.gmis > 1 else []):
            failed = [m for m in alike if fails(m)]
            if point.execution != "eager":
                failed = [m for m in failed if m.point.num_env not in self._failing_sizes]
            at_any_size = _at_any_size(failed) if point.execution == "eager" else bool(failed)
            if at_any_size and not any(usable(m) for m in alike):
                return Wall(term="failed", reason=f"{failed[0].point} failed: {failed[0].message or 'no message'}")
        for other in self._measurements:
            slower = row_of(other.point) == row_of(point) and point.num_env >= other.point.num_env
            if other.status == "timed_out" and slower:
                return Wall(term="failed", reason=f"{other.point} already took too long")
        return None

    def _saturation(self, point: Point) -> Wall | None:
        found = self._saturated.get(row_of(point))
        if found is None or point.num_env <= found[0]:
            return None
        return Wall(
            term="saturation",
            reason=f"{found[0]:,} environments gained {100 * found[1]:.1f} % per doubling, "
            f"less than {100 * SATURATION:g} %",
        )

    def _saturated_rows(self) -> dict[Row, tuple[int, float]]:
        """Row to the environments at which it saturated, and the gain per doubling that it ended with."""
        rows: dict[Row, list[Candidate]] = {}
        for measurement in self._good:
            rows.setdefault(row_of(measurement.point), []).append(self._surface.candidate(measurement.point))
        ends: dict[Row, tuple[int, float]] = {}
        for row, candidates in rows.items():
            for before, after in itertools.pairwise(candidates):
                doublings = math.log2(after.point.num_env / before.point.num_env)
                gain = (self._surface.best_score(after) / before.score) ** (1 / doublings) - 1
                if gain < SATURATION:
                    ends[row] = after.point.num_env, gain
                    break
        return ends


def fails(measurement: Measurement) -> bool:
    """Whether a point started and failed; what the compiler refuses never started."""
    return measurement.status == "failed" and not _REFUSED.match(measurement.message)


def _at_any_size(failed: Sequence[Measurement]) -> bool:
    """Whether these failures do not seem to come from the number of environments: fewer and more fail, too."""
    return len({m.point.num_env for m in failed}) > 2


def _execution(point: Point) -> tuple[str, str]:
    return point.template, point.execution


def _shared(point: Point) -> tuple[str, str, str]:
    return point.template, point.execution, point.backend


def gib(count: float) -> str:
    """Bytes in GiB."""
    return f"{count / 2**30:.2f} GiB"
