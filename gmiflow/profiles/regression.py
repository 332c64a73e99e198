"""Least squares with few numbers: coefficients that cannot be negative, drawn towards what is expected."""

from __future__ import annotations

from collections.abc import Sequence

_SWEEPS = 400
_SETTLED = 1e-9


def fit(
    rows: Sequence[Sequence[float]],
    values: Sequence[float],
    prior: Sequence[float],
    *,
    noise: float,
) -> tuple[float, ...]:
    """Coefficients c >= 0 that minimise sum(((row . c) / value - 1) / noise)^2 + sum(c / prior - 1)^2.

    Errors count in relation to the value, so that a fast point weighs as much as a slow one. The prior decides
    only what the rows leave open, as when all of them have one GMI. Coordinate descent from the prior; the problem
    is convex, so the order does not matter.

    Args:
        rows: features of each observation.
        values: what was observed, positive.
        prior: expected coefficients, positive.
        noise: relative error of an observation.
    """
    scaled = [
        [feature * expected / (value * noise) for feature, expected in zip(row, prior, strict=True)]
        for row, value in zip(rows, values, strict=True)
    ]
    target = 1.0 / noise
    size = len(prior)
    # Of the prior there is a one on the diagonal, and on the right.
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    right = [target * sum(row[i] for row in scaled) + 1.0 for i in range(size)]
    found = [1.0] * size  # in units of the prior
    for _ in range(_SWEEPS):
        before = list(found)
        for i in range(size):
            others = sum(gram[i][j] * found[j] for j in range(size) if j != i)
            found[i] = max(0.0, (right[i] - others) / (gram[i][i] + 1.0))
        if all(abs(new - old) <= _SETTLED * old for new, old in zip(found, before, strict=True)):
            break
    return tuple(coefficient * expected for coefficient, expected in zip(found, prior, strict=True))
