"""Generalised advantage estimation (Schulman et al. 2016) with time-out bootstrap."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["AdvantageEstimator", "accumulate_backwards"]


def accumulate_backwards(terms: Tensor, decay: Tensor) -> None:
    """``x_t = terms_t + decay_t * x_{t+1}`` from the last step to the first, in place of ``terms``.

    Args:
        terms: f32 [horizon, ...].
        decay: f32 [horizon, ...]; that of the last step is not used.
    """
    rows, factors = terms.unbind(0), decay.unbind(0)
    for step in range(len(rows) - 2, -1, -1):
        rows[step].addcmul_(factors[step], rows[step + 1])


class AdvantageEstimator:
    """Advantages and returns of one rollout; allocates once, then runs a fixed sequence of operations.

    With ``done = terminated or truncated``::

        r_t     = reward_scale * reward_t + gamma * value_t * truncated_t     (time-out bootstrap)
        delta_t = r_t + gamma * (1 - done_t) * value_{t+1} - value_t
        A_t     = delta_t + gamma * lam * (1 - done_t) * A_{t+1}
        R_t     = A_t + value_t

    where ``value_{horizon}`` is the bootstrap. A time-out is not the end of the task, so its reward
    gets the value of the state it was cut in; the state after it is already a reset one.

    Attributes:
        advantage, returns: f32 [horizon, num_env], rewritten by `compute`.
        targets: both as one tensor [2, horizon, num_env].
    """

    def __init__(
        self,
        *,
        horizon: int,
        num_env: int,
        gamma: float,
        lam: float,
        reward_scale: float = 1.0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate for rollouts of ``horizon`` steps of ``num_env`` environments."""
        self.gamma = gamma
        self.lam = lam
        self.reward_scale = reward_scale
        shape = (horizon, num_env)
        self.targets = torch.empty((2, *shape), device=device)
        self.advantage, self.returns = self.targets
        self._going = torch.empty(shape, device=device)
        self._next_value = torch.empty(shape, device=device)

    def compute(
        self, *, reward: Tensor, terminated: Tensor, truncated: Tensor, value: Tensor, bootstrap: Tensor
    ) -> None:
        """Fill `advantage` and `returns`.

        Args:
            reward: f32 [horizon, num_env], unscaled.
            terminated: bool [horizon, num_env].
            truncated: bool [horizon, num_env].
            value: f32 [horizon, num_env], the critic's estimate before each step.
            bootstrap: f32 [num_env], the estimate after the last step.
        """
        going, advantage = self._going, self.advantage
        going.copy_(~(terminated | truncated)).mul_(self.gamma)
        self._next_value[:-1].copy_(value[1:])
        self._next_value[-1].copy_(bootstrap)
        torch.mul(reward, self.reward_scale, out=advantage)
        advantage.addcmul_(value, truncated, value=self.gamma)
        advantage.addcmul_(self._next_value, going).sub_(value)
        accumulate_backwards(advantage, going.mul_(self.lam))
        torch.add(advantage, value, out=self.returns)
