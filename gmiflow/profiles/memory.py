"""Projected memory of a point: M(g, E) = p g + q E, or Eq. 4 of the paper along a row.

p is what the process of a GMI needs, q what an environment needs with its simulator, contact buffers and
experience. Where two points of a row were measured, their line continues (Eq. 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.ir.search import Estimate, Point
from gmiflow.profiles.estimate import Bar, exactly, row_of
from gmiflow.profiles.regression import fit
from gmiflow.profiles.space import Space

_PRIOR = {"cpu": (400e6, 20e3), "cuda": (600e6, 200e3)}
"""Bytes of p and q before anything is measured, by whose memory it is."""

_NOISE = 0.02
_ERROR_OF_LINE, _ERROR_OF_FIT, _ERROR_OF_FEW, _ERROR_OF_PRIOR = 0.05, 0.1, 0.3, 0.6
"""Relative errors: of Eq. 4, of p and q from three points or more, from fewer, and from none."""


class Memory:
    """The memory of one device, or of the host.

    Args:
        space: for what the stages state under `needs`.
        seen: what was measured, in bytes.
        device: "cuda" for device memory, "cpu" for the host's.
    """

    def __init__(self, space: Space, seen: Sequence[tuple[Point, float]], device: str) -> None:
        """Fit p and q."""
        self._seen = dict(seen)
        per_gmi, per_env = _PRIOR[device]
        self._coefficients = (space.memory_fixed or per_gmi, space.memory_per_env or per_env)
        if seen:
            rows = [(point.gmis, point.num_env) for point, _ in seen]
            values = [value for _, value in seen]
            first, second = fit(rows, values, self._coefficients, noise=_NOISE)
            self._coefficients = first, second

    def at(self, point: Point) -> Estimate:
        """Bytes: what was measured, else the projection."""
        exact = self._seen.get(point)
        if exact is not None:
            return exactly(exact)
        row = sorted((other.num_env, value) for other, value in self._seen.items() if row_of(other) == row_of(point))
        below = [item for item in row if item[0] < point.num_env]
        pair = below[-2:] if len(below) >= 2 else row[:2]
        if len(pair) == 2:
            # Below the smaller of the two the line may fall to nothing, which a process never does.
            return Bar(max(project_memory(pair[0], pair[1], point.num_env), pair[0][1] / 2), _ERROR_OF_LINE).estimate()
        value = self._coefficients[0] * point.gmis + self._coefficients[1] * point.num_env
        few = _ERROR_OF_FEW if self._seen else _ERROR_OF_PRIOR
        return Bar(value, _ERROR_OF_FIT if len(self._seen) > 2 else few).estimate()


def project_memory(first: tuple[float, float], second: tuple[float, float], num_env: float) -> float:
    """Eq. 4 of the paper: m_p = (e - e2) / (e2 - e1) (m2 - m1) + m2, from two measured (environments, bytes)."""
    (e1, m1), (e2, m2) = first, second
    return (num_env - e2) / (e2 - e1) * (m2 - m1) + m2
