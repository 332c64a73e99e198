"""V-trace: targets and advantages from experience of an older policy (Espeholt et al. 2018, IMPALA, section 4.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.rl.returns import accumulate_backwards

__all__ = ["VTraceEstimator"]


class VTraceEstimator:
    """Off-policy targets of one rollout; allocates once, then runs a fixed sequence of operations.

    With ``done = terminated or truncated`` and ``ratio = pi(a | s) / mu(a | s)`` of the policy that learns to the one
    that acted::

        rho_t   = min(1, ratio_t)             c_t = lam * min(1, ratio_t)
        r_t     = reward_scale * reward_t + gamma * V_t * truncated_t              (time-out bootstrap)
        delta_t = rho_t * (r_t + gamma * (1 - done_t) * V_{t+1} - V_t)
        v_t     = V_t + delta_t + gamma * (1 - done_t) * c_t * (v_{t+1} - V_{t+1})
        A_t     = rho_t * (r_t + gamma * (1 - done_t) * v_{t+1} - V_t)

    where ``V`` are the values of the policy that learns; ``V_{horizon}`` and ``v_{horizon}`` are the bootstrap.

    Attributes:
        advantage, returns: A and v, f32 [horizon, num_env], rewritten by `compute`.
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
        self._gamma, self._lam, self._reward_scale = gamma, lam, reward_scale
        shape = (horizon, num_env)
        self.targets = torch.empty((2, *shape), device=device)
        self.advantage, self.returns = self.targets
        self._going, self._paid, self._rho, self._next = (torch.empty(shape, device=device) for _ in range(4))

    def compute(
        self,
        *,
        reward: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        value: Tensor,
        bootstrap: Tensor,
        log_ratio: Tensor,
    ) -> None:
        """Fill `advantage` and `returns`.

        Args:
            reward: f32 [horizon, num_env], unscaled.
            terminated: bool [horizon, num_env].
            truncated: bool [horizon, num_env].
            value: f32 [horizon, num_env], by the policy that learns.
            bootstrap: f32 [num_env], the estimate after the last step.
            log_ratio: f32 [horizon, num_env], logarithm of the importance ratio.
        """
        going, paid, rho, following = self._going, self._paid, self._rho, self._next
        going.copy_(~(terminated | truncated)).mul_(self._gamma)
        torch.exp(log_ratio, out=rho).clamp_(max=1.0)
        torch.mul(reward, self._reward_scale, out=paid)
        paid.addcmul_(value, truncated, value=self._gamma).sub_(value)
        following[:-1].copy_(value[1:])
        following[-1].copy_(bootstrap)
        # What v_t has above V_t, from the last step to the first.
        above = self.returns
        torch.mul(torch.addcmul(paid, going, following), rho, out=above)
        accumulate_backwards(above, (going * rho).mul_(self._lam))
        above.add_(value)
        following[:-1].copy_(above[1:])
        torch.addcmul(paid, going, following, out=self.advantage).mul_(rho)
