"""Latencies in fixed memory, however long a server runs."""

from __future__ import annotations

import math

_PER_DECADE = 100
_LOWEST_S = 1e-6
_BUCKETS = 8 * _PER_DECADE


class Latencies:
    """A histogram with buckets 2.3 % wide, from a microsecond to 100 seconds."""

    def __init__(self) -> None:
        """Empty."""
        self._counts = [0] * _BUCKETS
        self._highest_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        bucket = int(math.log10(max(seconds, _LOWEST_S) / _LOWEST_S) * _PER_DECADE)
        self._counts[min(bucket, _BUCKETS - 1)] += 1
        self._highest_s = max(self._highest_s, seconds)

    def quantile_s(self, part: float) -> float | None:
        """Upper end of the bucket that holds the quantile ``part``, 0 to 1; None when nothing was counted."""
        total = sum(self._counts)
        wanted = max(1, math.ceil(part * total))
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(self._highest_s, _LOWEST_S * 10 ** ((bucket + 1) / _PER_DECADE))
        return None

    def summary_ms(self) -> dict[str, float | None]:
        """Median, 95 %, 99 % and the highest, in milliseconds."""
        values = {"p50": self.quantile_s(0.5), "p95": self.quantile_s(0.95), "p99": self.quantile_s(0.99)}
        values["max"] = self._highest_s or None
        return {name: None if value is None else round(1e3 * value, 3) for name, value in values.items()}
