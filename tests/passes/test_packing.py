"""The Packer's grouping against hand-computed values and against every set partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmiflow.passes.packing import best_grouping, score


def always(i: int, j: int) -> bool:
    return True


def test_scores_by_hand() -> None:
    # Means 6 and 2 over two groups: the lesser one counts, 2 / 2.
    assert score([[0, 1], [2]], [8.0, 4.0, 2.0]) == 1.0
    assert score([[0, 1, 2]], [8.0, 4.0, 3.0]) == 5.0


def test_all_in_one_where_all_may_share() -> None:
    # One group: (10 + 2) / 2 / 1 = 6; two groups: min(10, 2) / 2 = 1.
    assert best_grouping([10.0, 2.0], always) == (((0, 1),), 6.0)


def test_unaligned_kinds_are_apart() -> None:
    # {0, 1} | {2}: min((100 + 20) / 2, 30) / 2 = 15.
    assert best_grouping([100.0, 20.0, 30.0], lambda i, j: 2 not in (i, j)) == (((0, 1), (2,)), 15.0)


def test_a_choice_that_is_not_the_first_fit() -> None:
    # 1 may join 0 or 2, which may not share.
    # With 0: min((90 + 6) / 2, 10) / 2 = 5; with 2: min(90, (10 + 6) / 2) / 2 = 4.
    assert best_grouping([90.0, 6.0, 10.0], lambda i, j: {i, j} != {0, 2}) == (((0, 1), (2,)), 5.0)
    # With 4 in place of 10: with 0, 4 / 2 = 2; with 2, (4 + 6) / 2 / 2 = 2.5, which the first fit misses.
    assert best_grouping([90.0, 6.0, 4.0], lambda i, j: {i, j} != {0, 2}) == (((0,), (1, 2)), 2.5)


def test_many_kinds_go_where_they_first_fit() -> None:
    groups, value = best_grouping([float(i + 1) for i in range(12)], lambda i, j: i % 2 == j % 2)
    assert groups == (tuple(range(0, 12, 2)), tuple(range(1, 12, 2)))
    assert value == 3.0  # the mean of 1, 3, .. 11 is 6


def partitions(count: int) -> Iterator[list[list[int]]]:
    if count == 0:
        yield []
        return
    for smaller in partitions(count - 1):
        for index in range(len(smaller)):
            yield [[*group, count - 1] if i == index else group for i, group in enumerate(smaller)]
        yield [*smaller, [count - 1]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 2**15 - 1))
def test_the_search_finds_what_brute_force_finds(sizes: list[int], bits: int) -> None:
    def may_share(i: int, j: int) -> bool:
        low, high = min(i, j), max(i, j)
        return bool(bits >> (high * (high - 1) // 2 + low) & 1)

    legal = [
        groups
        for groups in partitions(len(sizes))
        if all(may_share(i, j) for group in groups for i in group for j in group if i < j)
    ]
    groups, value = best_grouping(list(map(float, sizes)), may_share)
    assert [list(group) for group in sorted(groups)] in [sorted(map(sorted, g)) for g in legal]
    assert value == pytest.approx(max(score(g, list(map(float, sizes))) for g in legal), rel=1e-12)
