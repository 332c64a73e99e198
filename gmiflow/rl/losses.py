"""The PPO loss and its gradient in closed form, over minibatch rows packed in one matrix.

Per sample, with z = (a - mu) / sigma and the sums below divided by the *global* number of samples::

    policy = max(-A ratio, -A clamp(ratio, 1 - clip, 1 + clip))          ratio = exp(log p - log p_old)
    value  = 1/2 max((v - R)^2, (v_old + clamp(v - v_old, -clip, clip) - R)^2)
    bounds = sum_a max(mu - 1.1, 0)^2 + min(mu + 1.1, 0)^2
    loss   = policy + value_coef * value - entropy * H + bounds_loss * bounds

and the Kullback-Leibler divergence of the old from the new policy, which drives the learning rate.
Clipped terms as in Schulman et al. 2017 and rl_games, whose bound on the mean this is too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.rl.network import ACTOR, CRITIC
from gmiflow.rl.samples import Rows

__all__ = ["MEAN_BOUND", "STATISTICS", "LossSettings", "LossWorkspace"]

MEAN_BOUND = 1.1
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)

STATISTICS = ("kl", "policy_loss", "value_loss", "bounds_loss", "entropy", "clip_fraction")
"""What follows the gradient in the all-reduced buffer: means over the global minibatch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSettings:
    """Coefficients of the loss; see the formulas at the top of the module."""

    clip: float = 0.2
    value_coef: float = 2.0
    entropy: float = 0.0
    bounds_loss: float = 1e-4


class LossWorkspace:
    """Reference implementation of the loss gradient in torch operations, for batches of one size."""

    def __init__(self, settings: LossSettings, action: int, batch: int, like: Tensor) -> None:
        """Allocate buffers of the dtype and device of ``like`` for ``batch`` rows."""
        self._settings = settings
        self._action = action
        self._scaled, self._squared, self._scratch = (like.new_empty((batch, action)) for _ in range(3))
        self._sample = [like.new_empty(batch) for _ in range(5)]
        self._std, self._inverse_std = (like.new_empty(action) for _ in range(2))

    def gradient(
        self,
        *,
        rows: Rows,
        output: Tensor,
        log_std: Tensor,
        weight: float,
        output_gradient: Tensor,
        log_std_gradient: Tensor,
        statistics: Tensor,
    ) -> None:
        """Gradient of the loss with respect to what the networks put out, and the statistics.

        Args:
            rows: the minibatch.
            output: [2, batch, action] of `NetworkPass`.
            log_std: [action].
            weight: one over the global number of samples of this minibatch.
            output_gradient: written, [2, batch, action].
            log_std_gradient: written, [action].
            statistics: written, [len(STATISTICS)]; this replica's share of the global means.
        """
        torch.exp(log_std, out=self._std)
        torch.reciprocal(self._std, out=self._inverse_std)
        total_log_std = log_std.sum()
        self._policy(rows, output[ACTOR], total_log_std, weight, output_gradient[ACTOR], log_std_gradient, statistics)
        self._divergence(rows, output[ACTOR], total_log_std, weight, statistics)
        self._value(rows, output[CRITIC, :, 0], weight, output_gradient[CRITIC, :, 0], statistics)

    def _policy(
        self,
        rows: Rows,
        mean: Tensor,
        total_log_std: Tensor,
        weight: float,
        mean_gradient: Tensor,
        log_std_gradient: Tensor,
        statistics: Tensor,
    ) -> None:
        """Clipped surrogate, bounds loss and entropy."""
        settings = self._settings
        ratio, surrogate, clipped, slope, _ = self._sample
        scaled, squared, scratch = self._scaled, self._squared, self._scratch
        torch.sub(rows.action, mean, out=scaled).mul_(self._inverse_std)
        torch.mul(scaled, scaled, out=squared)
        torch.sum(squared, dim=1, out=ratio).mul_(-0.5).sub_(rows.log_prob)
        ratio.sub_(total_log_std + self._action * _HALF_LOG_TWO_PI).exp_()
        torch.mul(ratio, rows.advantage, out=surrogate)
        torch.clamp(ratio, 1.0 - settings.clip, 1.0 + settings.clip, out=clipped)
        statistics[5] = (clipped != ratio).sum() * weight
        clipped.mul_(rows.advantage)
        # The gradient flows where the unclipped term is the smaller one (or both are the same).
        torch.mul(surrogate, surrogate <= clipped, out=slope).mul_(-weight)
        statistics[1] = torch.minimum(surrogate, clipped, out=surrogate).sum() * -weight
        torch.mul(scaled, slope.unsqueeze(1), out=mean_gradient).mul_(self._inverse_std)
        torch.mv(squared.T, slope, out=log_std_gradient)
        log_std_gradient.sub_(slope.sum() + settings.entropy * weight * slope.shape[0])
        # Distance outside of the bounds, with sign.
        torch.clamp(mean, -MEAN_BOUND, MEAN_BOUND, out=scratch)
        torch.sub(mean, scratch, out=scratch)
        mean_gradient.add_(scratch, alpha=2.0 * settings.bounds_loss * weight)
        statistics[3] = scratch.square_().sum() * weight
        entropy = total_log_std + self._action * (0.5 + _HALF_LOG_TWO_PI)
        statistics[4] = entropy * (weight * slope.shape[0])

    def _divergence(self, rows: Rows, mean: Tensor, total_log_std: Tensor, weight: float, statistics: Tensor) -> None:
        """Mean KL(old || new) = log(new/old) + (old^2 + (mean_old - mean)^2) / (2 new^2) - 1/2 over dimensions."""
        spread, scratch = self._scaled, self._scratch
        torch.sub(rows.mean, mean, out=spread).square_().addcmul_(rows.std, rows.std)
        spread.mul_(self._inverse_std).mul_(self._inverse_std).mul_(0.5)
        spread.sub_(torch.log(rows.std, out=scratch))
        count = spread.shape[0]
        statistics[0] = (spread.sum() + count * (total_log_std - 0.5 * self._action)) * weight

    def _value(self, rows: Rows, value: Tensor, weight: float, gradient: Tensor, statistics: Tensor) -> None:
        """Clipped squared error of the value."""
        settings = self._settings
        error, clipped_error, moved, inside, larger = self._sample
        torch.sub(value, rows.returns, out=error)
        torch.sub(value, rows.value, out=moved)
        torch.clamp(moved, -settings.clip, settings.clip, out=clipped_error)
        torch.eq(clipped_error, moved, out=inside)
        clipped_error.add_(rows.value).sub_(rows.returns)
        inside.mul_(clipped_error)
        torch.gt(clipped_error.square_(), torch.mul(error, error, out=moved), out=larger)
        # Where the clipped error is larger, only samples inside the clip range move it.
        torch.lerp(error, inside, larger, out=error)
        torch.mul(error, settings.value_coef * weight, out=gradient)
        statistics[2] = torch.maximum(clipped_error, moved, out=moved).sum() * (0.5 * weight)
