"""Running mean and variance that every replica merges from the same all-reduced moments."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RunningNormalizer"]


class RunningNormalizer(nn.Module):
    """Normalises by the mean and variance of all samples merged so far.

    ``normalised = x * scale + shift`` and back ``x = normalised * deviation + center``. The four
    are f32 buffers that `merge` refreshes in place, so hot paths (and CUDA graphs) hold them for
    good. The statistics themselves are f64: they are tiny, and a long run adds millions of samples.
    Before the first merge it is the identity.

    Attributes:
        mean, variance: f64 of ``shape``; the population variance.
        count: f64 scalar, samples merged.
        scale, shift, deviation, center: f32 of ``shape``, derived.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device | str = "cpu", epsilon: float = 1e-5) -> None:
        """Make an identity; ``epsilon`` is added to the variance under the root."""
        super().__init__()
        self.epsilon = epsilon
        for name, value, dtype in (
            ("mean", 0.0, torch.float64),
            ("variance", 1.0, torch.float64),
            ("scale", 1.0, torch.float32),
            ("shift", 0.0, torch.float32),
            ("deviation", 1.0, torch.float32),
            ("center", 0.0, torch.float32),
        ):
            self.register_buffer(name, torch.full(shape, value, dtype=dtype, device=device))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64, device=device))

    mean: Tensor
    variance: Tensor
    count: Tensor
    scale: Tensor
    shift: Tensor
    deviation: Tensor
    center: Tensor

    def normalize(self, value: Tensor) -> Tensor:
        """``value`` in units of the running deviation around the running mean."""
        return torch.addcmul(self.shift, value, self.scale)

    def denormalize(self, value: Tensor) -> Tensor:
        """The inverse of `normalize`."""
        return torch.addcmul(self.center, value, self.deviation)

    def merge(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Take in the moments of a batch (Chan, Golub and LeVeque 1983), in place.

        Args:
            mean: f64 of the normaliser's shape.
            variance: likewise; the population variance.
            count: samples in the batch, over all replicas.
        """
        self.count.add_(count)
        weight = self.count.reciprocal().mul_(count)
        delta = mean - self.mean
        self.mean.addcmul_(delta, weight)
        between = delta.square_().mul_(1.0 - weight).add_(variance)
        self.variance.add_(between.sub_(self.variance).mul_(weight))
        self._derive()

    def _derive(self) -> None:
        """Refresh the f32 buffers from the statistics."""
        deviation = (self.variance + self.epsilon).sqrt_()
        scale = deviation.reciprocal()
        self.deviation.copy_(deviation)
        self.center.copy_(self.mean)
        self.scale.copy_(scale)
        self.shift.copy_(scale.mul_(self.mean).neg_())
