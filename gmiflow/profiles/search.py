"""The sizing search: which point to measure next, and which to run.

Three functions carry it. `propose` looks at what was measured and names the next new point, or None when nothing
promising is left; `next_round` adds which points are measured in turns with it, and afterwards compares the best
ones until one stands out; `choose` takes a profile and says what to run and why everything else was rejected. All are
pure: no torch, no clock, no file; equal inputs give equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.ir.search import Algorithm, Candidate, Estimate, Objective, Origin, Point, Search, Term, Verdict
from gmiflow.profiles import compare, improved_search, paper_search
from gmiflow.profiles.space import Space, space_of
from gmiflow.profiles.workload import Measurement, WorkloadProfile

__all__ = [
    "Algorithm",
    "Candidate",
    "Estimate",
    "Objective",
    "Origin",
    "Point",
    "Search",
    "Space",
    "Term",
    "Verdict",
    "choose",
    "next_round",
    "propose",
    "space_of",
]


def propose(space: Space, measurements: Sequence[Measurement], algorithm: Algorithm = "improved") -> Point | None:
    """The point to measure next, or None when the search is over.

    It never names a point that was measured, whatever came out of it, so a search over a finite space ends.

    Args:
        space: what may be chosen.
        measurements: so far, in any order.
        algorithm: "paper" walks Algorithm 1 as published, "improved" is ours.
    """
    if algorithm == "paper":
        return paper_search.propose(space, measurements)
    return improved_search.propose(space, measurements)


def next_round(
    space: Space, measurements: Sequence[Measurement], algorithm: Algorithm = "improved", *, late: bool = False
) -> tuple[Point, ...]:
    """The points to measure next, in turns; empty when the search is over.

    Args:
        space: what may be chosen.
        measurements: so far, in any order.
        algorithm: as for `propose`. Algorithm 1 looks at each point once, beside nothing.
        late: whether most of the time is spent: then what is known is compared before anything new is tried.
    """
    if algorithm == "paper":
        point = paper_search.propose(space, measurements)
        return () if point is None else (point,)
    if late and (known := compare.next_round(space, measurements)):
        return known
    point = improved_search.propose(space, measurements)
    if point is None:
        return compare.next_round(space, measurements)
    anchor = compare.anchor(space, measurements)
    return (point,) if anchor is None else (anchor, point)


def choose(space: Space, profile: WorkloadProfile | None, algorithm: Algorithm = "improved") -> Search:
    """What to run, and why not the others.

    Args:
        space: what may be chosen. Measurements of points outside of it only inform the model.
        profile: of this workload on this machine; None for modelled defaults.
        algorithm: as for `propose`.

    Raises:
        ValueError: when no point of the space can be run.
    """
    measurements = profile.measurements if profile is not None else ()
    if algorithm == "paper":
        return paper_search.choose(space, measurements)
    return improved_search.choose(space, measurements)
