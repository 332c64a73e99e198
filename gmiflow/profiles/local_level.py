"""Effects of groups under a drift: y_k = p_g(k) + d_k + e_k, where d is a random walk in time and e is noise.

The local level model (Harvey, 1989, "Forecasting, Structural Time Series Models and the Kalman Filter", section 2.3)
with group effects, solved as the least squares problem that it is. With w_k the weight of observation k and r the
drift of a second in units of the noise,

    sum w_k (y_k - p_g(k) - d_k)^2 + sum (d_k+1 - d_k)^2 / (r^2 dt_k)

is smallest. Its matrix is tridiagonal in d, so d is eliminated first, and what is left has the size of the groups.
Noise and r are those of the highest restricted likelihood (Patterson and Thompson, 1971). No torch, no numpy: a
compilation does this with at most a few hundred numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_GAUGE = 0.03
"""Weight that all d together have towards 0: nothing else tells a constant in d from one in p."""

_LEAST_STEP_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One number.

    Attributes:
        group: whose effect it shows, from 0.
        at_s: when; observations come in this order.
    """

    group: int
    at_s: float
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The solution for given weights and drift.

    Attributes:
        effects: p of every group.
        drift: d of every observation.
        residuals: e of every observation.
        covariance: of the effects, in units of the squared noise.
        objective: the smallest sum, (observations - groups) squared noises in the mean.
        log_determinant: log |V| + log |X' V^-1 X| of the restricted likelihood.
    """

    effects: list[float]
    drift: list[float]
    residuals: list[float]
    covariance: list[list[float]]
    objective: float
    log_determinant: float


def solve(observations: Sequence[Observation], weights: Sequence[float], ratio: float) -> Fit:
    """Fit with known weights.

    Args:
        observations: in the order of time; every group has at least one.
        weights: of the observations, above 0.
        ratio: standard deviation of the drift of one second over that of the noise, above 0.
    """
    groups = max(item.group for item in observations) + 1
    prior, between = _walk(observations, ratio)
    factor = _factored([w + q for w, q in zip(weights, prior, strict=True)], between)
    values = [w * item.value for w, item in zip(weights, observations, strict=True)]
    smooth = _back(factor, between, values)
    shapes = [
        _back(factor, between, [w if item.group == g else 0.0 for w, item in zip(weights, observations, strict=True)])
        for g in range(groups)
    ]
    matrix = [[0.0] * groups for _ in range(groups)]
    right = [0.0] * groups
    for k, (weight, item) in enumerate(zip(weights, observations, strict=True)):
        matrix[item.group][item.group] += weight
        right[item.group] += weight * (item.value - smooth[k])
        for g in range(groups):
            matrix[item.group][g] -= weight * shapes[g][k]
    covariance, log_of_matrix = inverted(matrix)
    effects = [sum(c * b for c, b in zip(row, right, strict=True)) for row in covariance]
    drift = [
        smooth[k] - sum(p * shape[k] for p, shape in zip(effects, shapes, strict=True)) for k in range(len(values))
    ]
    residuals = [item.value - effects[item.group] - d for item, d in zip(observations, drift, strict=True)]
    return Fit(
        effects=effects,
        drift=drift,
        residuals=residuals,
        covariance=covariance,
        objective=sum(w * e**2 for w, e in zip(weights, residuals, strict=True)) + _roughness(drift, prior, between),
        log_determinant=sum(map(math.log, factor))
        - sum(map(math.log, _factored(prior, between)))
        - sum(map(math.log, weights))
        + log_of_matrix,
    )


def inverted(matrix: Sequence[Sequence[float]]) -> tuple[list[list[float]], float]:
    """Inverse and logarithm of the determinant of a symmetric positive definite matrix."""
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    logarithm = 0.0
    for i in range(size):
        pivot = rows[i][i]
        logarithm += math.log(pivot)
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i and rows[j][i]:
                part = rows[j][i]
                rows[j] = [value - part * own for value, own in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows], logarithm


def _walk(observations: Sequence[Observation], ratio: float) -> tuple[list[float], list[float]]:
    """Diagonal and off-diagonal of the random walk's precision matrix, in units of the noise."""
    diagonal = [_GAUGE / len(observations)] * len(observations)
    between: list[float] = []
    for k, (first, second) in enumerate(itertools.pairwise(observations)):
        stiffness = 1.0 / (ratio**2 * max(second.at_s - first.at_s, _LEAST_STEP_S))
        diagonal[k] += stiffness
        diagonal[k + 1] += stiffness
        between.append(-stiffness)
    return diagonal, between


def _factored(diagonal: Sequence[float], between: Sequence[float]) -> list[float]:
    """D of the L D L' of a tridiagonal matrix."""
    factor = [diagonal[0]]
    for value, off in zip(diagonal[1:], between, strict=True):
        factor.append(value - off * off / factor[-1])
    return factor


def _back(factor: Sequence[float], between: Sequence[float], right: Sequence[float]) -> list[float]:
    """Solve with a factored tridiagonal matrix."""
    found = [right[0]]
    for k in range(1, len(right)):
        found.append(right[k] - between[k - 1] / factor[k - 1] * found[-1])
    found[-1] /= factor[-1]
    for k in range(len(right) - 2, -1, -1):
        found[k] = (found[k] - between[k] * found[k + 1]) / factor[k]
    return found


def _roughness(drift: Sequence[float], diagonal: Sequence[float], between: Sequence[float]) -> float:
    """The random walk's d' Q d."""
    own = sum(q * d * d for q, d in zip(diagonal, drift, strict=True))
    return own + 2 * sum(q * a * b for q, (a, b) in zip(between, itertools.pairwise(drift), strict=True))
