"""Returns and lengths of episodes, counted on the device without host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor


class EpisodeStatistics:
    """Sums over the episodes that ended, from rollouts of [horizon, num_env].

    Only sums leave the device: the episodes of one environment within a rollout telescope, so the
    sum of their returns is what the environment carried in plus all rewards up to its last end. No
    loop over time is needed.

    Attributes:
        totals: f64 [3] = episodes ended, sum of their returns, sum of their lengths in steps; running sums.
    """

    def __init__(self, num_env: int, device: torch.device) -> None:
        self.totals = torch.zeros(3, dtype=torch.float64, device=device)
        self._carried_return = torch.zeros(num_env, dtype=torch.float64, device=device)
        self._carried_length = torch.zeros(num_env, dtype=torch.int64, device=device)

    def add(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Count one rollout; arguments are [horizon, num_env] f32, bool, bool and are only read."""
        done = terminated | truncated
        # ends_later[t]: the episode that step t belongs to ends within this rollout, at t or after.
        ends_later = done.flip(0).cumsum(0).flip(0) > 0
        any_end = ends_later[0]
        total = reward.sum(0, dtype=torch.float64)
        ended = torch.where(ends_later, reward, 0.0).sum(0, dtype=torch.float64)
        ended_length = ends_later.sum(0)
        self.totals[0] += done.sum()
        self.totals[1] += torch.where(any_end, self._carried_return + ended, 0.0).sum()
        self.totals[2] += torch.where(any_end, self._carried_length + ended_length, 0).sum()
        self._carried_return.copy_(torch.where(any_end, 0.0, self._carried_return) + total - ended)
        self._carried_length.copy_(torch.where(any_end, 0, self._carried_length) + (reward.shape[0] - ended_length))

    def state_dict(self) -> dict[str, Tensor]:
        """What the running episodes have gathered, [num_env] each."""
        return {"return": self._carried_return, "length": self._carried_length}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        self._carried_return.copy_(state["return"])
        self._carried_length.copy_(state["length"])
