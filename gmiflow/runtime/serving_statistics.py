"""What the GMIs of a training that only serves did: steps per second, time of a step, and how alike they fared.

The GMIs start together and go on without each other, so they end at different times. They are compared over the time
in which all of them ran: from the end of the longest warm-up to the end of the first GMI. No torch.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence

from gmiflow.plan import GMIPlan
from gmiflow.runtime.events import GMIServing, ServingSummary
from gmiflow.runtime.latency import QUANTILES, quantile_s
from gmiflow.runtime.messages import Progress

__all__ = ["ServingStatistics", "jain_index"]


class ServingStatistics:
    """Collects the reports of the GMIs that simulate."""

    def __init__(self, members: Sequence[GMIPlan], warm_up: int) -> None:
        """Watch ``members``, and leave out their first ``warm_up`` iterations when there are more."""
        self._num_env = {gmi.id: gmi.num_env for gmi in members}
        self._warm_up = warm_up
        self._ends_s: dict[int, list[float]] = {gmi.id: [] for gmi in members}
        self._steps: dict[int, int] = {}
        self._warm: dict[int, Counter[int]] = {gmi.id: Counter() for gmi in members}
        self._cold: dict[int, Counter[int]] = {gmi.id: Counter() for gmi in members}

    def add(self, report: Progress) -> None:
        """Count one iteration of one GMI."""
        ends = self._ends_s[report.gmi]
        warm = len(ends) >= self._warm_up
        ends.append((ends[-1] if ends else 0.0) + report.iteration_s)
        self._steps[report.gmi] = report.env_steps
        (self._warm if warm else self._cold)[report.gmi].update(_counted(report.latencies))

    def of_iteration(self, reports: Sequence[Progress]) -> dict[str, float]:
        """Numbers of one iteration, of all GMIs and of each of several; the fairness is that of the run so far."""
        latencies: Counter[int] = Counter()
        each: dict[str, float] = {}
        for report in sorted(reports, key=lambda report: report.gmi):
            own = _counted(report.latencies)
            latencies.update(own)
            each |= {f"gmi_{report.gmi}/latency_{name}_ms": value for name, value in _quantiles_ms(own).items()}
            each[f"gmi_{report.gmi}/steps_per_s"] = report.env_steps / max(report.iteration_s, 1e-9)
        longest = max(report.iteration_s for report in reports)
        values = {f"latency_{name}_ms": value for name, value in _quantiles_ms(latencies).items()}
        values["predictions_per_s"] = sum(report.env_steps for report in reports) / max(longest, 1e-9)
        if len(reports) > 1:
            values |= each
        if rates := self._rates():
            values["fairness"] = self._fairness(rates)
        return values

    def summary(self) -> ServingSummary | None:
        """Of the whole run; None before every GMI has reported."""
        rates = self._rates()
        if not rates:
            return None
        kept = {gmi: self._warm[gmi] or self._cold[gmi] for gmi in rates}
        together: Counter[int] = Counter()
        for counts in kept.values():
            together.update(counts)
        return ServingSummary(
            steps_per_s=sum(rates.values()),
            latency_ms=_quantiles_ms(together),
            fairness=self._fairness(rates),
            slowest_steps_per_s=min(rates.values()),
            fastest_steps_per_s=max(rates.values()),
            gmis={
                gmi: GMIServing(
                    steps_per_s=rate, latency_ms=_quantiles_ms(kept[gmi]), timed_steps=sum(kept[gmi].values())
                )
                for gmi, rate in rates.items()
            },
        )

    def _rates(self) -> dict[int, float]:
        """Environment steps per second of every GMI while all ran; empty before each has reported."""
        if not all(self._ends_s.values()):
            return {}
        end_s = min(ends[-1] for ends in self._ends_s.values())
        start_s = 0.0
        if self._warm_up and all(len(ends) > self._warm_up for ends in self._ends_s.values()):
            warm_s = max(ends[self._warm_up - 1] for ends in self._ends_s.values())
            start_s = warm_s if warm_s < end_s else 0.0
        seconds = max(end_s - start_s, 1e-9)
        return {
            gmi: self._steps[gmi] * (_iterations_at(ends, end_s) - _iterations_at(ends, start_s)) / seconds
            for gmi, ends in self._ends_s.items()
        }

    def _fairness(self, rates: Mapping[int, float]) -> float:
        """Jain's index of what every environment got: an uneven cut is not unfair."""
        return jain_index([rate / self._num_env[gmi] for gmi, rate in rates.items()])


def jain_index(shares: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 when all get the same, 1/n when one gets everything (Jain, Chiu and Hawe, 1984)."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares > 0 else 1.0


def _iterations_at(ends_s: Sequence[float], moment_s: float) -> float:
    """How many iterations, and what part of the next, a GMI had made by then."""
    done = bisect.bisect_right(ends_s, moment_s)
    if done == len(ends_s):
        return float(done)
    start_s = ends_s[done - 1] if done else 0.0
    return done + (moment_s - start_s) / max(ends_s[done] - start_s, 1e-9)


def _counted(latencies: Mapping[str, int]) -> Counter[int]:
    return Counter({int(bucket): count for bucket, count in latencies.items()})


def _quantiles_ms(counts: Mapping[int, int]) -> dict[str, float]:
    """Milliseconds by "p50", "p95", "p99"; empty without counts."""
    if not counts:
        return {}
    return {f"p{percent}": 1e3 * quantile_s(counts, percent) for percent in QUANTILES}
