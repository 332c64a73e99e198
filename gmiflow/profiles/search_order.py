"""In which order the improved search measures: every point costs seconds of the budget, so the likeliest gain first.

1. `climb`: the unsliced row in the lowering that is expected to be the best, away from the reference by factors of
   four, as long as it gains;
2. `slicing`: two GMIs where that row is best, then about four, unless two had already lost;
3. `most_promising`: whatever may still win by the model, the largest expected gain first;
4. `unseen`: the executions that nothing spoke for. On a GPU the eager loop is only ever slower than what was
   captured, but it alone tells simulation and policy apart, which the mapping asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmiflow.ir.search import Candidate, Point
from gmiflow.plan import Execution
from gmiflow.profiles.defaults import MAX_SEARCHED_GMIS
from gmiflow.profiles.estimate import Row, row_of
from gmiflow.profiles.ranking import best_of, simplicity
from gmiflow.profiles.space import Space
from gmiflow.profiles.surface import Surface, usable
from gmiflow.profiles.walls import Walls, fails
from gmiflow.profiles.workload import Measurement

PROMISE = 0.04
"""A point is measured when its score may be higher than the best one by more than this."""

STRIDE = 4
"""Factor between the environments of two steps of the climb; what lies between is left to the model."""


class State:
    """What is known so far.

    Attributes:
        done: points of the space that were measured, whatever came out of it.
        free: points of the space that may be measured, in order.
        good: points of the space with a measured rate.
        failed: points of the space that started and failed.
    """

    def __init__(self, space: Space, measurements: Sequence[Measurement]) -> None:
        """Fit the model and find the walls."""
        self.space = space
        self.surface = Surface(space, measurements)
        self.walls = Walls(space, measurements, self.surface)
        everything = tuple(space.points())
        self.done = {m.point for m in measurements} & set(everything)
        self.free = [p for p in everything if p not in self.done and self.walls.against(p) is None]
        self.good = [m.point for m in measurements if usable(m) and m.point in self.done]
        self.failed = [m.point for m in measurements if fails(m) and m.point in self.done]

    def best(self) -> Candidate | None:
        """The best of what was measured and fits into the memory."""
        candidates = [self.surface.candidate(point) for point in self.good]
        return best_of([candidate for candidate in candidates if self.walls.fits(candidate)])

    def score(self, point: Point) -> float:
        """Measured or modelled."""
        return self.surface.candidate(point).score

    def free_in(self, row: Row) -> list[Point]:
        """The points of a row that may be measured."""
        return [point for point in self.free if row_of(point) == row]


def first_point(state: State) -> Point | None:
    """Before anything worked: the least sliced plan at the reference, in the first lowering that is left.

    When that failed, with less environments, then with more: it may be the size that it does not stand.
    """
    space = state.space
    left: list[Execution] = [x for x in space.executions if any(p.execution == x for p in state.free)]
    if not left:
        return None
    row = _least_sliced(space, left[0])
    free, failed = state.free_in(row), [point.num_env for point in state.failed if row_of(point) == row]
    goal = space.reference
    if failed:
        less, more = min(failed) // STRIDE, max(failed) * STRIDE
        goal = less if len(failed) == 1 and any(p.num_env <= less for p in free) else more
    found = _nearest(free, goal)
    return found or min(state.free, key=simplicity)


def climb(state: State, best: Candidate) -> Point | None:
    """The next point of the least sliced row, in the best point's execution: towards its peak, until that is found."""
    row = _least_sliced(state.space, best.point.execution)
    free = state.free_in(row)
    known = sorted(point for point in state.good if row_of(point) == row)
    if not known:
        return _nearest(free, best.point.num_env)
    peak = max(known, key=state.score)
    found: Point | None = None
    if peak == known[-1]:
        found = _nearest((p for p in free if p.num_env > peak.num_env), STRIDE * peak.num_env)
    if found is None and peak == known[0]:
        found = _nearest((p for p in free if p.num_env < peak.num_env), peak.num_env // STRIDE)
    return found


def slicing(state: State, best: Candidate) -> Point | None:
    """Two GMIs, about four, and on the CPU one for each core, with as many environments as the best point.

    The model is convex in the GMIs: when two are slower than one, more of them are slower still, and nothing but a
    promise (`most_promising`) makes them worth a measurement. One for each core is the usual plan of a CPU, so it is
    always looked at.
    """
    space = state.space
    for gmis in _spread(space):
        if not any(point.gmis == gmis for point in state.done):
            row = space.templates[0], gmis, best.point.execution, space.backends[1][0]
            found = _nearest(state.free_in(row), best.point.num_env)
            if found is not None:
                return found
        if _lost(state, gmis) and not (space.device == "cpu" and gmis < space.own_cores):
            return None
    return None


def most_promising(state: State, best: Candidate) -> Point | None:
    """The point with the largest expected gain, of those that may beat the best one by more than `PROMISE`."""
    candidates = [state.surface.candidate(point) for point in state.free if not _hopeless(state, point)]
    promising = [c for c in candidates if state.surface.best_score(c) > best.score * (1 + PROMISE)]
    if not promising:
        return None
    return min(promising, key=lambda c: (-expected_gain(c, best), simplicity(c.point))).point


def unseen(state: State, best: Candidate) -> Point | None:
    """An execution of which no point was tried, least sliced, with as many environments as the best point."""
    for execution in state.space.executions:
        if not any(point.execution == execution for point in state.done):
            found = _nearest(state.free_in(_least_sliced(state.space, execution)), best.point.num_env)
            if found is not None:
                return found
    return None


def expected_gain(candidate: Candidate, best: Candidate) -> float:
    """Mean of max(0, score - best score) when the score is equally likely anywhere within its error bar."""
    rate = candidate.steps_per_s
    low, high = (candidate.score * end / rate.value for end in (rate.low, rate.high))
    if low >= best.score or high <= low:
        return max(0.0, (low + high) / 2 - best.score)
    return max(0.0, high - best.score) ** 2 / (2 * (high - low))


def _hopeless(state: State, point: Point) -> bool:
    """The eager loop of a GPU, once another execution works: it launches what that replays."""
    captured = any(other.execution != "eager" for other in state.good)
    return state.space.device == "cuda" and point.execution == "eager" and captured


def _lost(state: State, gmis: int) -> bool:
    """Whether so many GMIs were slower than one with as many environments, beyond doubt."""
    pairs = [
        (alone, sliced)
        for sliced in state.good
        for alone in state.good
        if (alone.gmis, sliced.gmis) == (1, gmis)
        and (alone.num_env, alone.execution) == (sliced.num_env, sliced.execution)
    ]
    return bool(pairs) and all(
        state.surface.best_score(state.surface.candidate(sliced)) < (1 - PROMISE) * state.score(alone)
        for alone, sliced in pairs
    )


def _least_sliced(space: Space, execution: Execution) -> Row:
    """The row where a search starts: one GMI, or the fewest that the user allows."""
    alone, several = space.backends
    least = space.gmis[0]
    return space.templates[0], least, execution, alone[0] if least == 1 else several[0]


def _nearest(points: Iterable[Point], num_env: int) -> Point | None:
    """The one with the most environments up to ``num_env``, else the next above."""
    return min(points, key=lambda p: (p.num_env > num_env, abs(p.num_env - num_env)), default=None)


def _spread(space: Space) -> list[int]:
    """Numbers of GMIs besides the least that are measured: the next, about four, and on the CPU one per core."""
    rest = [gmis for gmis in space.gmis if gmis > max(1, space.gmis[0])]
    if not rest:
        return []
    per_core = {gmis for gmis in rest if space.device == "cpu" and gmis == min(space.own_cores, MAX_SEARCHED_GMIS)}
    return sorted({rest[0], min(rest, key=lambda gmis: (abs(gmis - 4), gmis)), *per_core})
