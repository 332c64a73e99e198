"""The policy that an update starts from, and what it says of experience that an older policy has made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.rl.backend import Backend
from gmiflow.rl.models import ActorCritic

__all__ = ["Reference", "policy_of"]


def policy_of(context: StageContext) -> ActorCritic:
    """The policy of a context.

    Raises:
        TypeError: when it is not what `Actor.make_policy` makes.
    """
    if not isinstance(context.policy, ActorCritic):
        raise TypeError(
            f"stage {context.stage}: the policy must be an ActorCritic, not {type(context.policy).__name__}"
        )
    return context.policy


class Reference:
    """The policy that an update starts from, evaluated on experience that an older policy has made.

    An old policy has two roles in PPO: the update stays close to one, and experience is weighed against one (Hilton,
    Cobbe and Schulman 2022, "Batch size-invariance for policy optimization"). It stays close to the policy that it
    starts from: around an older one a third of the samples would be clipped before the first step, and the learning
    rate, which follows the divergence, would swing between its bounds. Experience is weighed against who acted.
    """

    def __init__(self, backend: Backend, policy: ActorCritic, horizon: int, num_env: int, precision: str) -> None:
        """Allocate for rollouts of ``horizon`` steps."""
        actions = policy.layout.action
        self._inference = backend.inference(policy, horizon * num_env, precision)
        self._log_std = policy.layout.log_std(policy.flat.detach())
        self._no_noise = policy.flat.new_zeros((horizon * num_env, actions))
        self._mean, self._std = (policy.flat.new_zeros((horizon, num_env, actions)) for _ in range(2))
        self._value, self._log_prob = (policy.flat.new_zeros((horizon, num_env)) for _ in range(2))

    def replace(self, experience: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The record with mean, standard deviation, value and log-probability of the policy as it is now."""
        self._inference.act(experience["obs"].flatten(0, 1), self._no_noise)
        now = self._inference.experience
        self._mean.view_as(now["mean"]).copy_(now["mean"])
        self._std.view_as(now["mean"]).copy_(now["std"])
        self._value.view(-1).copy_(now["value"])
        scaled = (experience["action"] - self._mean).div_(self._std)
        constant = self._log_std.sum() + self._mean.shape[-1] * 0.5 * math.log(2.0 * math.pi)
        torch.sum(scaled.square_(), dim=-1, out=self._log_prob).mul_(-0.5).sub_(constant)
        return {
            **experience,
            "mean": self._mean,
            "std": self._std,
            "value": self._value,
            "log_prob": self._log_prob,
        }
