"""What a search maximises: steps per second, or those of them that teach.

`time_to_reward` asks for the shortest time to a given reward. A larger batch makes steps faster, and each of them
worth less: McCandlish et al. (2018, "An Empirical Model of Large-Batch Training", section 2.2) find that the
samples which a given reward needs grow as S = S_min (1 + B / B_crit) with the batch B. So the time is S / rate, and
the score is rate / (1 + B / B_crit). Here B is what one iteration collects: environments x horizon. The default of
B_crit is ours, not measured; `critical_batch` takes it from two trainings of different batch that reached the same
reward.
"""

from __future__ import annotations

from gmiflow.ir.search import Objective


def efficiency(batch: float, critical: float) -> float:
    """What a sample of a batch of ``batch`` is worth, 1 for a small batch: 1 / (1 + batch / critical)."""
    return 1.0 / (1.0 + batch / critical)


def score(steps_per_s: float, batch: float, objective: Objective, critical: float) -> float:
    """What the search compares; higher is better.

    Args:
        steps_per_s: of the whole training.
        batch: samples of one iteration, over all devices.
        objective: of the workflow.
        critical: samples, see `efficiency`.
    """
    return steps_per_s if objective == "throughput" else steps_per_s * efficiency(batch, critical)


def critical_batch(first: tuple[float, float], second: tuple[float, float]) -> float | None:
    """B_crit from two trainings, each (batch, samples until the reward was reached).

    From S1 = S_min (1 + B1 / B_crit) and S2 likewise: B_crit = (B2 S1 - B1 S2) / (S2 - S1).

    Returns:
        None when the two do not show a critical batch: the larger batch needed no more samples, or more than in
        proportion to its size.
    """
    (small, few), (large, many) = sorted((first, second))
    if small == large or many <= few:
        return None
    found = (large * few - small * many) / (many - few)
    return found if found > 0 else None
