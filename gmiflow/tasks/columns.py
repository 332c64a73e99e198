"""Sums over an environment's numbers whose bits do not depend on how many environments there are.

`torch.sum` over the columns of a tensor adds in another order for the last few rows of a batch than for the
rest, so the same environment could get another reward in another slice. Adding columns pairwise gives
every environment the same order, and on preallocated views it costs no more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.sim.base import by_column

__all__ = ["ColumnSum"]


class ColumnSum:
    """A buffer of terms, f32 [num_env, width], and their sum per environment."""

    def __init__(self, num_env: int, width: int, device: torch.device) -> None:
        """Allocate the terms."""
        self.terms = by_column(num_env, width, device)
        self._folds: list[tuple[Tensor, Tensor]] = []
        while width > 1:
            half = width // 2
            self._folds.append((self.terms[:, :half], self.terms[:, width - half : width]))
            width -= half
        self._total = self.terms[:, 0]

    def total(self) -> Tensor:
        """Sum of the terms, f32 [num_env]; a view that overwrites the terms."""
        for into, other in self._folds:
            into.add_(other)
        return self._total
