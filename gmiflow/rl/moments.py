"""Mean and variance of advantages, returns and observations over all replicas, from one all-reduce."""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.api import Communicator
from gmiflow.rl.normalizer import RunningNormalizer

__all__ = ["RolloutMoments", "explained_variance"]

_VARIANCE_EPSILON = 1e-8
"""Keeps the quotient finite when all returns are equal."""


class RolloutMoments:
    """Sums of a rollout and of its squares, then moments; allocates once.

    Column 0 is the advantage, column 1 the return, the rest are the observations. Observations are
    summed relative to the running mean, which is the same on every replica: so f32 sums suffice.
    """

    def __init__(self, normalizer: RunningNormalizer, samples: int, samples_total: int) -> None:
        """Prepare for ``samples`` samples here and ``samples_total`` over all replicas."""
        self._center = normalizer.center
        self._samples = samples
        self._samples_total = samples_total
        columns = 2 + self._center.numel()
        self._sums = torch.zeros(2 * columns, dtype=torch.float64, device=self._center.device)
        self._allocate()

    def _allocate(self) -> None:
        """Buffers that only this implementation needs."""
        self._centered = self._center.new_empty((self._samples, self._center.numel()))

    def compute(self, obs: Tensor, targets: Tensor, communicator: Communicator) -> tuple[Tensor, Tensor]:
        """Moments over all replicas.

        Args:
            obs: raw observations [samples, observation].
            targets: advantages and returns, [2, samples].
            communicator: adds the sums of the replicas.

        Returns:
            Mean and population variance, f64 [2 + observation].
        """
        self._add(obs, targets, self._sums.view(2, -1))
        communicator.all_reduce(self._sums)
        mean, square = self._sums.view(2, -1) / self._samples_total
        variance = square.sub_(mean.square()).clamp_(min=0.0)
        mean[2:].add_(self._center)
        return mean, variance

    def _add(self, obs: Tensor, targets: Tensor, sums: Tensor) -> None:
        """Write this replica's sums and sums of squares, [2, 2 + observation]."""
        centered = torch.sub(obs, self._center, out=self._centered)
        sums[0, :2], sums[0, 2:] = targets.sum(dim=1), centered.sum(dim=0)
        sums[1, :2], sums[1, 2:] = targets.square().sum(dim=1), centered.square_().sum(dim=0)


def explained_variance(variance: Tensor) -> Tensor:
    """The share of the returns' variance that the values explain, f64 scalar, from `RolloutMoments.compute`.

    The advantage is what the value missed of the return: so it is 1 - Var(advantage) / Var(return).
    """
    return 1.0 - variance[0] / (variance[1] + _VARIANCE_EPSILON)
