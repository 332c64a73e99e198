"""Which of several candidates is best, and what is said about each of the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gmiflow.ir.search import Candidate, Point, Term, Verdict
from gmiflow.profiles.drift import CONFIDENCE
from gmiflow.profiles.space import BACKENDS, EXECUTIONS, Space
from gmiflow.profiles.surface import Surface
from gmiflow.profiles.walls import Walls, gib
from gmiflow.profiles.workload import Measurement

TIE = 0.01
"""Scores that differ by less are as good as equal; the simpler plan wins."""

MAX_TIE = 0.025
"""Scores that differ by more never are, however noisy: it would give away too much."""


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """The highest score; the simplest plan among those that reach it within `tie`."""
    if not candidates:
        return None
    best = min(candidates, key=lambda c: (-c.score, simplicity(c.point)))
    return min((c for c in candidates if c.score >= best.score * (1 - tie(best, c))), key=lambda c: simplicity(c.point))


def tie(first: Candidate, second: Candidate) -> float:
    """Relative difference within which two are as good as equal.

    What noise leaves uncertain goes, within limits, to the one with fewer GMIs: slicing has to earn its keep.
    """
    if first.point.gmis == second.point.gmis:
        return TIE
    return min(MAX_TIE, max(TIE, 2 * math.hypot(_standard_error(first), _standard_error(second))))


def _standard_error(candidate: Candidate) -> float:
    rate = candidate.steps_per_s
    return math.log(rate.high / rate.value) / CONFIDENCE if rate.origin == "measured" else 0.0


def simplicity(point: Point) -> tuple[int, int, int, int, str]:
    """Order of preference among equals: fewer GMIs, fewer environments, the simpler lowering."""
    execution, backend = EXECUTIONS.index(point.execution), BACKENDS.index(point.backend)
    return point.gmis, point.num_env, execution, backend, point.template


def measured(candidate: Candidate) -> bool:
    """Whether this very point was measured (on one device; more devices are projected from it)."""
    return all(term.origin == "measured" for term in candidate.terms.values())


def judge(
    space: Space,
    surface: Surface,
    walls: Walls,
    measurements: Sequence[Measurement],
    point: Point,
    chosen: Candidate,
) -> Verdict:
    """What became of a point."""
    candidate = surface.candidate(point)
    if point == chosen.point:
        return Verdict(candidate=chosen, chosen=True, term=space.objective, reason=_praise(chosen, space, surface))
    found = next((m for m in measurements if m.point == point), None)

    def verdict(term: Term, reason: str) -> Verdict:
        return Verdict(candidate=candidate, chosen=False, term=term, reason=reason)

    if found is not None and found.status == "out_of_memory":
        return verdict("memory", "it ran out of memory")
    if found is not None and found.status != "ok":
        return verdict("failed", found.message or f"it {found.status.replace('_', ' ')}")
    wall = walls.against(point) if found is None else None
    if wall is not None:
        return verdict(wall.term, wall.reason)
    if not walls.fits(candidate):
        needs = candidate.host_memory if space.device == "cpu" else candidate.device_memory
        return verdict("memory", f"it needs {gib(needs.value)}, and there are {gib(space.memory_bytes)}")
    ratio = candidate.score / chosen.score
    if found is None:
        return verdict("unmeasured", f"modelled at {_rate(candidate)}, {ratio:.2f} times the chosen one")
    if ratio >= 1 - tie(chosen, candidate):
        return verdict("tie", f"{ratio:.3f} times the chosen one, which is {_simpler(chosen.point, point)}")
    return verdict(space.objective, f"{_rate(candidate)}, {ratio:.2f} times the chosen one")


def ranked(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The chosen one first, then by falling score, then what cannot run."""
    cannot = ("memory", "failed", "illegal")
    return tuple(
        sorted(
            verdicts,
            key=lambda v: (not v.chosen, v.term in cannot, -v.candidate.score, simplicity(v.candidate.point)),
        )
    )


def _praise(chosen: Candidate, space: Space, surface: Surface) -> str:
    if not surface.fitted:
        return "the default while nothing is measured"
    what = "the most steps per second" if space.objective == "throughput" else "the shortest time to a reward"
    return f"{what} of the points that were measured" if measured(chosen) else f"{what} by the model"


def _rate(candidate: Candidate) -> str:
    return f"{candidate.steps_per_s.value:,.0f} steps/s"


def _simpler(chosen: Point, point: Point) -> str:
    """In what the chosen one of two equals is simpler."""
    if chosen.gmis != point.gmis:
        return "less sliced"
    if chosen.num_env != point.num_env:
        return "smaller"
    return "simpler to run"
