"""How long steps take: counts by bucket, which any number of GMIs and iterations can be added up from. No torch.

Buckets are powers of 1.01, so whatever is read from the counts is within 0.5 % of what was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

__all__ = ["QUANTILES", "buckets", "quantile_s"]

RATIO = 1.01
_LOG_RATIO = math.log(RATIO)
_LEAST_S = 1e-9

QUANTILES = (50, 95, 99)
"""Percentiles that are reported."""


def buckets(seconds: Iterable[float]) -> Counter[int]:
    """How many of the times fall into which bucket."""
    return Counter(round(math.log(max(value, _LEAST_S)) / _LOG_RATIO) for value in seconds)


def quantile_s(counts: Mapping[int, int], percent: float) -> float:
    """The time, in seconds, that ``percent`` of 100 steps do not exceed (nearest rank).

    Raises:
        ValueError: when there are no counts.
    """
    total = sum(counts.values())
    if not total:
        raise ValueError("no step was timed")
    rank, seen = max(1, math.ceil(total * percent / 100.0)), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return RATIO**bucket
    raise AssertionError("the counts add up to their sum")
