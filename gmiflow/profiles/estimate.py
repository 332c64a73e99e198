"""Small things that the time and the memory model share: rows of points, error bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gmiflow.ir.search import Estimate, Point

Row: TypeAlias = "tuple[str, int, str, str]"
"""Points that differ in the environments only: (template, gmis, execution, backend)."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A modelled number and its relative error."""

    value: float
    error: float

    def estimate(self) -> Estimate:
        """With its bar."""
        low, high = self.value * max(0.0, 1 - self.error), self.value * (1 + self.error)
        return Estimate(value=self.value, low=low, high=high, origin="modelled")


def exactly(value: float) -> Estimate:
    """A measured number without windows."""
    return Estimate(value=value, low=value, high=value, origin="measured")


def row_of(point: Point) -> Row:
    """The row of a point."""
    return point.template, point.gmis, point.execution, point.backend
