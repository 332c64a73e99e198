"""Optimizers whose parameters and statistics several learners share (Mnih et al. 2016, section 4 and supplement 8).

Each learner brings a gradient of its own and makes one step on what all of them share; whoever calls sees to it that
one does at a time. What is shared lies in memory of the host, and the step is made there, also beside a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["OPTIMIZERS", "SharedAdam", "SharedOptimizer", "SharedRMSprop"]

_LEAST_NORM = 1e-12
"""Keeps the division by a norm of 0 finite."""


class SharedOptimizer(ABC):
    """One step at a time on shared parameters.

    Attributes:
        state: the statistics by name; other learners use the same memory after `adopt`.
    """

    def __init__(self, flat: Tensor, *, learning_rate: float, max_grad_norm: float, epsilon: float = 1e-8) -> None:
        """Prepare to update ``flat``, f32 [n], in place.

        Args:
            flat: parameters.
            learning_rate: constant.
            max_grad_norm: longer gradients are scaled to it; above 0.
            epsilon: keeps the division by the root of the mean square finite.
        """
        self.epsilon = epsilon
        self._flat = flat
        self._learning_rate = learning_rate
        self._max_grad_norm = max_grad_norm
        self.state = self._fresh(flat)
        self._scratch, self._clipped = torch.empty_like(flat), torch.empty_like(flat)

    def adopt(self, flat: Tensor, state: Mapping[str, Tensor]) -> None:
        """Use parameters and statistics that others use too, in place of the own; they may be on another device."""
        self._flat, self.state = flat, dict(state)
        self._scratch, self._clipped = torch.empty_like(flat), torch.empty_like(flat)

    def step(self, gradient: Tensor) -> None:
        """Update parameters and statistics with ``gradient``, f32 [n] beside them, clipped; it stays as it is."""
        scale = self._max_grad_norm / (torch.linalg.vector_norm(gradient) + _LEAST_NORM)
        torch.mul(gradient, scale.clamp_(max=1.0), out=self._clipped)
        self._apply(self._clipped)

    @abstractmethod
    def _fresh(self, flat: Tensor) -> dict[str, Tensor]:
        """Statistics before the first step."""

    @abstractmethod
    def _apply(self, gradient: Tensor) -> None:
        """Update with a clipped gradient, which may be written to."""


class SharedRMSprop(SharedOptimizer):
    """RMSprop as published for A3C: ``g = a g + (1 - a) d^2``, ``theta -= lr d / sqrt(g + epsilon)``; g is shared."""

    decay = 0.99

    def _fresh(self, flat: Tensor) -> dict[str, Tensor]:
        return {"square": torch.zeros_like(flat)}

    def _apply(self, gradient: Tensor) -> None:
        square, root = self.state["square"], self._scratch
        square.mul_(self.decay).addcmul_(gradient, gradient, value=1.0 - self.decay)
        torch.add(square, self.epsilon, out=root).sqrt_()
        self._flat.addcdiv_(gradient, root, value=-self._learning_rate)


class SharedAdam(SharedOptimizer):
    """Adam (Kingma and Ba 2015) with shared moments and a shared number of steps."""

    betas = (0.9, 0.999)

    def _fresh(self, flat: Tensor) -> dict[str, Tensor]:
        return {
            "first_moment": torch.zeros_like(flat),
            "second_moment": torch.zeros_like(flat),
            "step": torch.zeros((), dtype=torch.int64),
        }

    def _apply(self, gradient: Tensor) -> None:
        first, second, root = self.state["first_moment"], self.state["second_moment"], self._scratch
        count = int(self.state["step"].add_(1))
        first.lerp_(gradient, 1.0 - self.betas[0])
        second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1.0 - self.betas[1])
        torch.div(second, 1.0 - self.betas[1] ** count, out=root).sqrt_().add_(self.epsilon)
        self._flat.addcdiv_(first, root, value=-self._learning_rate / (1.0 - self.betas[0] ** count))


OPTIMIZERS: dict[str, type[SharedOptimizer]] = {"rmsprop": SharedRMSprop, "adam": SharedAdam}
"""By the name that `std.algo.a3c` has for them."""
