"""Operands that are made once: numbers and views.

A task's step is a few dozen operations on small tensors, and on the CPU each costs more to start than to
carry out. So what an operation needs besides its own work is not made anew in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

__all__ = ["FirstRows", "Kept", "number"]

Views = TypeVar("Views")

ROOM = 64
"""Sets of views kept at most. A step needs one; restarts of k environments need one per k."""


def number(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """A number as the operand of an elementwise operation with tensors of the same ``dtype``: a tensor without axes.

    Torch turns a Python number into a float64 or int64 tensor and casts it in every call, which doubles the cost of
    a short operation on the CPU. Like a Python number it may stay on the CPU beside operands on a GPU: the
    kernel gets its value, also in a CUDA graph.
    """
    return torch.tensor(value, dtype=dtype)


class Kept(Generic[Views]):
    """Views of some arguments, cut once and kept for later calls with the same arguments.

    In a step they are always the same: an engine's and a task's tensors keep their place for life.
    """

    def __init__(self, cut: Callable[..., Views]) -> None:
        """``cut`` makes the views from the arguments."""
        self._cut = cut
        # With the arguments themselves, so that no later object can have the identity of one of them.
        self._kept: dict[tuple[int, ...], tuple[Views, tuple[object, ...]]] = {}

    def __call__(self, *arguments: object) -> Views:
        """The views of ``arguments``, which are told apart by identity."""
        identities = tuple(map(id, arguments))
        found = self._kept.get(identities)
        if found is None:
            if len(self._kept) == ROOM:
                self._kept.clear()
            found = self._kept[identities] = self._cut(*arguments), arguments
        return found[0]


class FirstRows:
    """The first rows of some tensors, cut once per number of rows."""

    def __init__(self, *tensors: Tensor) -> None:
        """``tensors`` have one row per environment."""
        self._tensors = tensors
        self._kept: dict[int, tuple[Tensor, ...]] = {}

    def __call__(self, count: int) -> tuple[Tensor, ...]:
        """The first ``count`` rows of each tensor; the same objects as in an earlier call, for `Kept`."""
        found = self._kept.get(count)
        if found is None:
            if len(self._kept) == ROOM:
                self._kept.clear()
            found = self._kept[count] = tuple(tensor[:count] for tensor in self._tensors)
        return found
