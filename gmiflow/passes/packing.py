"""Which kinds of experience share a transfer (the Packer of the paper's channels).

The paper groups kinds so that what a transfer moves is large and transfers are few::

    TOP_mov = max over groupings of min over groups i of (sum of P_j, j in group i) / (g_i x groups)

with P_j the bytes of kind j and g_i the number of kinds in group i. Kinds of unaligned shapes never share a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["MAX_KINDS", "best_grouping", "score"]

MAX_KINDS = 10
"""Kinds up to which all groupings are searched, as in the paper; there are 115,975 of ten."""


def score(groups: Sequence[Sequence[int]], sizes: Sequence[float]) -> float:
    """TOP_mov of one grouping: the mean size of the group where it is least, over the number of groups."""
    return min(sum(sizes[kind] for kind in group) / (len(group) * len(groups)) for group in groups)


def best_grouping(
    sizes: Sequence[float], may_share: Callable[[int, int], bool]
) -> tuple[tuple[tuple[int, ...], ...], float]:
    """The grouping of the largest TOP_mov, and that value.

    With more than `MAX_KINDS` kinds, which are not searched, each goes into the first group that takes it.

    Args:
        sizes: of the kinds, one or more, all positive.
        may_share: whether two kinds, by index, may be in one group; symmetric.

    Returns:
        Groups of indices, in order of their first kind, kinds in order; of equal groupings the one with the
        fewest groups.
    """
    first_fit = _first_fit(len(sizes), may_share)
    if len(sizes) > MAX_KINDS:
        return first_fit, score(first_fit, sizes)
    search = _Search(sizes, may_share, first_fit)
    search.place(0, [])
    return search.best, search.best_score


class _Search:
    """All set partitions, branch by branch; a branch that cannot beat the best one is left."""

    def __init__(
        self, sizes: Sequence[float], may_share: Callable[[int, int], bool], start: tuple[tuple[int, ...], ...]
    ) -> None:
        self._sizes = sizes
        self._may_share = may_share
        self.best = start
        self.best_score: float = score(start, sizes)
        # The kinds to come can raise a group's mean no higher than the largest of them.
        self._largest_left = [max(sizes[kind:], default=0.0) for kind in range(len(sizes) + 1)]

    def place(self, kind: int, groups: list[list[int]]) -> None:
        """Try every group for ``kind`` and those after it; ``groups`` hold those before."""
        if kind == len(self._sizes):
            value = score(groups, self._sizes)
            fewer = value == self.best_score and len(groups) < len(self.best)
            if value > self.best_score or fewer:
                self.best, self.best_score = tuple(map(tuple, groups)), value
            return
        if groups and self._bound(kind, groups) < self.best_score:
            return
        for group in groups:
            if all(self._may_share(kind, other) for other in group):
                group.append(kind)
                self.place(kind + 1, groups)
                group.pop()
        groups.append([kind])
        self.place(kind + 1, groups)
        groups.pop()

    def _bound(self, kind: int, groups: list[list[int]]) -> float:
        """No completion of ``groups`` scores more than this."""
        left = self._largest_left[kind]
        means = (sum(self._sizes[member] for member in group) / len(group) for group in groups)
        return min(max(mean, left) for mean in means) / len(groups)


def _first_fit(count: int, may_share: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    for kind in range(count):
        home = next((group for group in groups if all(may_share(kind, other) for other in group)), None)
        if home is None:
            groups.append([kind])
        else:
            home.append(kind)
    return tuple(map(tuple, groups))
