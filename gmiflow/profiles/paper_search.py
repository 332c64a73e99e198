"""Algorithm 1 of the paper as published, with its faults; `improved_search` is what is used by default.

For GMIs per GPU from 10 down to 1, an even cut, and environments per GMI from 128 doubling to 32,768: from 512 on,
a row ends when the memory that Eq. 4 projects exceeds the GMI's part of the GPU. Then the point is profiled. The
first point of a row is only remembered. Of each further one, Sat = (relative increase of throughput) / (relative
increase of memory) since the point before; a row ends where Sat falls below a threshold. What is left is projected
to the machine, throughput x GMIs x GPUs, and the best is kept.

So 128 environments never win, a saturated point is dropped before it is compared, communication is not projected,
and more GMIs have more environments: a larger batch. The paper does not publish the threshold, and says nothing of
points that fail; here they end their row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gmiflow.ir.search import Point, Search, Term, Verdict
from gmiflow.profiles.memory import project_memory
from gmiflow.profiles.ranking import ranked
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.walls import gib
from gmiflow.profiles.workload import Measurement

THRESHOLD = 0.1
"""Sat below which a row ends; the paper does not publish its value."""

NUM_ENV_PER_GMI = tuple(2**power for power in range(7, 16))
"""128 to 32,768."""

PROJECTED_FROM = 512
"""Environments per GMI from which the memory is projected."""


@dataclass(slots=True)
class _Walk:
    """A replay of the algorithm on what was measured.

    Attributes:
        visited: verdict on each point in the order of the algorithm: term and reason.
        best: the point kept so far and its projected steps per second on one GPU.
        missing: first point that the algorithm would profile and that was not measured.
    """

    visited: dict[Point, tuple[Term, str]] = field(default_factory=dict[Point, "tuple[Term, str]"])
    best: tuple[Point, float] | None = None
    missing: Point | None = None


def propose(space: Space, measurements: Sequence[Measurement], threshold: float = THRESHOLD) -> Point | None:
    """The next point that Algorithm 1 profiles, or None when it has ended."""
    return _walk(space, measurements, threshold, stop_at_missing=True).missing


def choose(space: Space, measurements: Sequence[Measurement], threshold: float = THRESHOLD) -> Search:
    """What Algorithm 1 keeps.

    Raises:
        ValueError: when it compares no point, as when every row ends at its second one.
    """
    walk = _walk(space, measurements, threshold, stop_at_missing=False)
    if walk.best is None:
        raise ValueError("Algorithm 1 compared no point: every row ended before its third")
    surface = Surface(space, measurements)
    chosen = surface.candidate(walk.best[0])
    verdicts: list[Verdict] = []
    for point in (point for gmis in _gmis(space) for point in _row(space, gmis)):
        term, reason = walk.visited.get(point, ("not_visited", "its row had ended"))
        won = point == chosen.point
        verdicts.append(Verdict(candidate=surface.candidate(point), chosen=won, term=term, reason=reason))
    alone = Point(
        template=chosen.point.template,
        gmis=1,
        num_env=chosen.point.num_env,
        execution=chosen.point.execution,
        backend=space.backends[0][0],
    )
    return Search(
        algorithm="paper",
        objective="throughput",
        chosen=chosen,
        verdicts=ranked(verdicts),
        unsliced=surface.candidate(alone) if 1 in space.gmis else None,
        notes=_notes(walk, threshold),
    )


def _walk(space: Space, measurements: Sequence[Measurement], threshold: float, *, stop_at_missing: bool) -> _Walk:
    known = {m.point: m for m in measurements}
    walk = _Walk()
    for gmis in _gmis(space):
        before: list[tuple[int, Measurement]] = []
        for point in _row(space, gmis):
            per_gmi = point.num_env // gmis
            projected = _projected(before, per_gmi, gmis)
            if space.memory_bytes and projected > space.memory_bytes / gmis:
                room = gib(space.memory_bytes / gmis)
                walk.visited[point] = "memory", f"a GMI is projected to need {gib(projected)}, and has {room}"
                break
            found = known.get(point)
            if found is None:
                walk.missing = walk.missing or point
                walk.visited[point] = "unmeasured", "it was not measured"
                if stop_at_missing:
                    return walk
                break
            if not usable(found):
                failed = found.status == "out_of_memory"
                walk.visited[point] = "memory" if failed else "failed", found.message or found.status.replace("_", " ")
                break
            if not _compare(walk, before[-1][1] if before else None, found, threshold):
                break
            before.append((per_gmi, found))
    return walk


def _compare(walk: _Walk, before: Measurement | None, found: Measurement, threshold: float) -> bool:
    """Judge a profiled point; whether its row goes on."""
    point = found.point
    if before is None:
        walk.visited[point] = "first_of_row", "the first point of a row is never compared"
        return True
    saturation = _saturation(before, found)
    if saturation < threshold:
        walk.visited[point] = "saturation", f"Sat = {saturation:.3g} is below {threshold:g}: dropped, uncompared"
        return False
    walk.visited[point] = "throughput", f"{found.steps_per_s:,.0f} steps/s per GPU, Sat = {saturation:.3g}"
    if walk.best is None or found.steps_per_s > walk.best[1]:
        walk.best = point, found.steps_per_s
    return True


def _saturation(before: Measurement, after: Measurement) -> float:
    """Sat = R_top / R_mem; without a growth of memory, infinite if the throughput grew and negative if not."""
    r_top = after.steps_per_s / before.steps_per_s - 1
    first, second = _memory(before), _memory(after)
    r_mem = second / first - 1 if first > 0 else 0.0
    if r_mem <= 0:
        return float("inf") if r_top > 0 else float("-inf")
    return r_top / r_mem


def _projected(before: Sequence[tuple[int, Measurement]], per_gmi: int, gmis: int) -> float:
    """Eq. 4 for one GMI, 0 below 512 environments and with fewer than two points to go by."""
    if per_gmi < PROJECTED_FROM or len(before) < 2:
        return 0.0
    (e1, first), (e2, second) = before[-2:]
    return project_memory((e1, _memory(first) / gmis), (e2, _memory(second) / gmis), per_gmi)


def _memory(measurement: Measurement) -> float:
    return float(measurement.device_memory_bytes or measurement.host_memory_bytes)


def _gmis(space: Space) -> Iterator[int]:
    """Most GMIs first: 10 down to 1 on a GPU, unless the user said how many."""
    yield from sorted(space.gmis, reverse=True)


def _row(space: Space, gmis: int) -> Iterator[Point]:
    """Algorithm 1 has its own numbers of environments, and no other axis."""
    for per_gmi in NUM_ENV_PER_GMI:
        yield Point(
            template=space.templates[0],
            gmis=gmis,
            num_env=per_gmi * gmis,
            execution=space.executions[0],
            backend=space.backends[0 if gmis == 1 else 1][0],
        )


def _notes(walk: _Walk, threshold: float) -> tuple[str, ...]:
    notes = [f"Algorithm 1 as published; its threshold of saturation is not published, taken as {threshold:g}"]
    if walk.missing is not None:
        notes.append(f"the algorithm did not end: it would profile {walk.missing} next")
    return tuple(notes)
