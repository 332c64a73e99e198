"""The sizing search: which point to measure next, and which to run.

Two functions carry it. `propose` looks at what was measured and names the next point, or None when nothing
promising is left; `choose` takes a profile and says what to run and why everything else was rejected. Both are
pure: no torch, no clock, no file; equal inputs give equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.ir.search import Algorithm, Candidate, Estimate, Objective, Origin, Point, Search, Term, Verdict
from gmiflow.profiles import improved_search, paper_search
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
