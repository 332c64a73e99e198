"""Our search: climb the unsliced row, look at slicing where it is best, then at what may still win.

It mends what Algorithm 1 (`paper_search` has it as published) gets wrong: the smallest point of a row can win, a
saturated point is compared before its row ends, communication is in the projection, lowerings and backends are
axes, and slicing never changes the number of environments of a training. A given `num_env` is the total whatever
the slicing. With `num_env = auto` the search may choose it, and then measures the unsliced plan with as many
environments, too (`batch = fixed`), so that what slicing gains is not confused with what a larger batch gains. With
`batch = free` the choice is compared with the best unsliced plan, whatever its environments.
"""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.ir.search import Candidate, Point, Search
from gmiflow.profiles.ranking import best_of, judge, measured, ranked, simplicity
from gmiflow.profiles.search_order import State, climb, first_point, most_promising, slicing, unseen
from gmiflow.profiles.space import Space
from gmiflow.profiles.workload import Measurement


def propose(space: Space, measurements: Sequence[Measurement]) -> Point | None:
    """The next point to measure; see `search.propose`."""
    state = State(space, measurements)
    left = space.max_points - len(state.done)
    if left <= 0:
        return None
    best = state.best()
    if best is None:
        return first_point(state)
    equal = _equal(state, best) if space.batch_fixed else None
    if left == 1 and equal is not None:
        return equal
    return (
        _per_core(state, space.reference, once=True)
        or climb(state, best)
        or slicing(state, best)
        or most_promising(state, best)
        or equal
        or _per_core(state, best.point.num_env)
        or unseen(state, best)
    )


def _compared(state: State, chosen: Point) -> list[Point]:
    """The unsliced points that a choice is compared with."""
    if state.space.batch_fixed:
        return unsliced_points(state.space, chosen)
    alone = [point for point in state.good if point.gmis == 1]
    return alone or unsliced_points(state.space, chosen)


def _equal(state: State, best: Candidate) -> Point | None:
    """One GMI with as many environments as the best point, if that was not measured and can be.

    It is measured even where its row had saturated: it is what slicing is compared with.
    """
    point = next(iter(unsliced_points(state.space, best.point)), None)
    if point is None or point in state.done:
        return None
    wall = state.walls.against(point)
    return point if wall is None or wall.term == "saturation" else None


def _per_core(state: State, num_env: int, *, once: bool = False) -> Point | None:
    """On the CPU one GMI for each core, the usual plan there, unless it was measured.

    Args:
        state: so far.
        num_env: of the point.
        once: whether it was measured when it was with any number of environments.
    """
    space = state.space
    if space.device != "cpu" or (once and any(point.gmis == space.own_cores for point in state.done)):
        return None
    wanted = (p for p in state.free if (p.gmis, p.num_env) == (space.own_cores, num_env))
    return min(wanted, key=simplicity, default=None)


def choose(space: Space, measurements: Sequence[Measurement]) -> Search:
    """What to run; see `search.choose`."""
    state = State(space, measurements)
    chosen = state.best() or _modelled_choice(state)
    verdicts = [judge(state.space, state.surface, state.walls, measurements, point, chosen) for point in space.points()]
    unsliced = [state.surface.candidate(point) for point in _compared(state, chosen.point)]
    return Search(
        algorithm="improved",
        objective=space.objective,
        chosen=chosen,
        verdicts=ranked(verdicts),
        unsliced=best_of([c for c in unsliced if measured(c)] or unsliced),
        notes=_notes(state, chosen),
    )


def unsliced_points(space: Space, point: Point) -> list[Point]:
    """The points of one GMI with as many environments, those that resemble ``point`` first."""
    found = [other for other in space.points() if other.gmis == 1 and other.num_env == point.num_env]
    return sorted(found, key=lambda p: (p.execution != point.execution, p.template != point.template, simplicity(p)))


def _modelled_choice(state: State) -> Candidate:
    """Without a measured point that can run: by the model, or by default when it knows nothing either."""
    space = state.space
    candidates = [state.surface.candidate(point) for point in space.points() if state.walls.against(point) is None]
    candidates = [candidate for candidate in candidates if state.walls.fits(candidate)]
    if not state.surface.fitted:
        candidates = _defaults(space, candidates)
    found = best_of(candidates)
    if found is None:
        raise ValueError("no point of the space can be run")
    return found


def _defaults(space: Space, candidates: list[Candidate]) -> list[Candidate]:
    """What the compiler takes without a profile: a GMI per core on the CPU, one on a GPU; the usual environments."""
    wanted = space.own_cores if space.device == "cpu" else 1
    best = min(
        candidates,
        key=lambda c: (
            abs(c.point.num_env - space.reference),
            abs(c.point.gmis - wanted),
            space.executions.index(c.point.execution),
            simplicity(c.point),
        ),
        default=None,
    )
    return [] if best is None else [best]


def _notes(state: State, chosen: Candidate) -> tuple[str, ...]:
    space = state.space
    notes: list[str] = []
    if not state.surface.fitted:
        notes.append("nothing was measured: numbers are modelled from built-in defaults")
    elif not measured(chosen):
        notes.append("no point that the settings allow was measured: the choice is modelled from the others")
    if space.objective == "time_to_reward":
        notes.append(
            f"a step counts 1 / (1 + batch / {space.critical_batch:,}): the critical batch is a default, not measured"
        )
    return tuple(notes)
