"""Our search: measure the unsliced plan, a few points that span the space, then what may still win.

It differs from Algorithm 1 in what PAPER-faithful `paper_search` keeps: the smallest point of a row can win, a
saturated point is compared before its row ends, communication is in the projection, lowerings and backends are
axes, and slicing never changes the number of environments of a training. A given `num_env` is the total whatever
the slicing. With `num_env = auto` the search may choose it, and then measures the unsliced plan with as many
environments, too (`batch = fixed`), so that what slicing gains is not confused with what a larger batch gains. With
`batch = free` the choice is compared with the best unsliced plan, whatever its environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gmiflow.ir.search import Candidate, Point, Search
from gmiflow.plan import Backend, Execution
from gmiflow.profiles.estimate import row_of
from gmiflow.profiles.ranking import best_of, judge, measured, ranked, simplicity
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.walls import Walls
from gmiflow.profiles.workload import Measurement

PROMISE = 0.04
"""A point is measured when its score may be higher than the best one by more than this."""


def propose(space: Space, measurements: Sequence[Measurement]) -> Point | None:
    """The next point to measure; see `search.propose`."""
    state = _State(space, measurements)
    left = space.max_points - len(state.done)
    if left <= 0:
        return None
    best = state.best()
    equal = _equal(state, best) if best is not None and space.batch_fixed else None
    if left == 1 and equal is not None:
        return equal
    seed = next((point for point in _seeds(state, best) if point in state.free), None)
    if seed is not None:
        return seed
    if best is None:
        return min(state.free, key=simplicity, default=None)
    score = {point: state.surface.best_score(state.surface.candidate(point)) for point in state.free}
    promising = min(state.free, key=lambda point: (-score[point], simplicity(point)), default=None)
    if promising is not None and score[promising] > best.score * (1 + PROMISE):
        return promising
    return equal


def _compared(state: _State, chosen: Point) -> list[Point]:
    """The unsliced points that a choice is compared with."""
    if state.space.batch_fixed:
        return unsliced_points(state.space, chosen)
    alone = [point for point in state.good if point.gmis == 1]
    return alone or unsliced_points(state.space, chosen)


def _equal(state: _State, best: Candidate) -> Point | None:
    """One GMI with as many environments as the best point, if that was not measured and can be.

    It is measured even where its row had saturated: it is what slicing is compared with.
    """
    point = next(iter(unsliced_points(state.space, best.point)), None)
    if point is None or point in state.done:
        return None
    wall = state.walls.against(point)
    return point if wall is None or wall.term == "saturation" else None


def choose(space: Space, measurements: Sequence[Measurement]) -> Search:
    """What to run; see `search.choose`."""
    state = _State(space, measurements)
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


class _State:
    """What is known so far.

    Attributes:
        done: points of the space that were measured, whatever came out of it.
        free: points of the space that may be measured, in order.
    """

    def __init__(self, space: Space, measurements: Sequence[Measurement]) -> None:
        self.space = space
        self.surface = Surface(space, measurements)
        self.walls = Walls(space, measurements, self.surface)
        everything = tuple(space.points())
        self.done = {m.point for m in measurements} & set(everything)
        self.free = [p for p in everything if p not in self.done and self.walls.against(p) is None]
        self.good = [m.point for m in measurements if usable(m) and m.point in self.done]

    def best(self) -> Candidate | None:
        """The best of what was measured and fits into the memory."""
        candidates = [self.surface.candidate(point) for point in self.good]
        return best_of([candidate for candidate in candidates if self.walls.fits(candidate)])


def unsliced_points(space: Space, point: Point) -> list[Point]:
    """The points of one GMI with as many environments, those that resemble ``point`` first."""
    found = [other for other in space.points() if other.gmis == 1 and other.num_env == point.num_env]
    return sorted(found, key=lambda p: (p.execution != point.execution, p.template != point.template, simplicity(p)))


def _seeds(state: _State, best: Candidate | None) -> Iterator[Point]:
    """Points that span the space: three numbers of environments unsliced, then each other axis once."""
    space, done = state.space, state.done
    alive: list[Execution] = [x for x in space.executions if any(p.execution == x for p in state.free)]
    if not alive:
        return
    execution = best.point.execution if best is not None else alive[0]
    template, least = space.templates[0], space.gmis[0]
    base = best.point.num_env if best is not None else space.reference

    def at(gmis: int, num_env: int, execution: Execution, backend: Backend) -> Iterator[Point]:
        """The free point with these values and the most environments up to ``num_env``, else the next above."""
        row = template, gmis, execution, backend
        found = [point for point in state.free if row_of(point) == row]
        yield from sorted(found, key=lambda p: (p.num_env > num_env, abs(p.num_env - num_env)))[:1]

    alone, several = space.backends
    own = alone[0] if least == 1 else several[0]
    for num_env in (space.reference, 4 * space.reference, space.reference // 4):
        nearest = min(space.num_env, key=lambda n: abs(n - num_env))
        if not any(p.gmis == least and p.num_env == nearest for p in done):
            yield from at(least, nearest, execution, own)
    others = _spread(space)
    for gmis in others:
        if not any(p.gmis == gmis for p in done):
            yield from at(gmis, base, execution, several[0])
    for other in space.executions:
        if not any(p.execution == other for p in done):
            yield from at(least, base, other, own)
    for backend in several[1:]:
        if others and not any(p.backend == backend and p.gmis > 1 for p in done):
            yield from at(others[0], base, execution, backend)


def _spread(space: Space) -> list[int]:
    """Numbers of GMIs besides the least that are measured in any case: the next, and about four."""
    rest = [gmis for gmis in space.gmis if gmis > max(1, space.gmis[0])]
    return sorted({rest[0], min(rest, key=lambda gmis: (abs(gmis - 4), gmis))}) if rest else []


def _modelled_choice(state: _State) -> Candidate:
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
    wanted = space.cores // space.trainings if space.device == "cpu" else 1
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


def _notes(state: _State, chosen: Candidate) -> tuple[str, ...]:
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
