"""Acting: from raw observations to a sampled action and the record that the learner needs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gmiflow.rl.models import ActorCritic
from gmiflow.rl.network import ACTOR, CRITIC, NetworkPass
from gmiflow.rl.samples import NetworkInput

__all__ = ["PolicyInference"]

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class PolicyInference:
    """Evaluates and samples a policy for a fixed number of environments, in its own buffers.

    Attributes:
        experience: the record of the last `act`, by field name.
        bootstrap: values of the last `evaluate`, [num_env].
    """

    def __init__(self, policy: ActorCritic, num_env: int, precision: str = "f32") -> None:
        """Allocate; on this path ``precision`` is whatever torch is set to for matrix products."""
        layout = policy.layout
        self._policy, self._num_env, self._precision = policy, num_env, precision
        self._flat = policy.flat.detach()
        self._log_std = layout.log_std(self._flat)
        self._std = self._flat.new_empty(layout.action)
        self._action, self._mean = (self._flat.new_empty((num_env, layout.action)) for _ in range(2))
        self._obs = self._flat.new_empty((num_env, layout.observation))
        self._log_prob, self._value, self.bootstrap = (self._flat.new_empty(num_env) for _ in range(3))
        self.experience: dict[str, Tensor] = {
            "obs": self._obs,
            "action": self._action,
            "log_prob": self._log_prob,
            "mean": self._mean,
            "std": self._std.expand(num_env, -1),
            "value": self._value,
        }
        self._allocate()

    def _allocate(self) -> None:
        """Buffers that only this implementation needs."""
        policy = self._policy
        self._network = NetworkPass(policy.layout, policy.activation, self._flat, self._num_env)
        self._input = NetworkInput(policy, self._flat.new_empty((self._num_env, policy.layout.layers[0].rows)))
        self._squared = torch.empty_like(self._action)

    def act(self, obs: Tensor, noise: Tensor) -> None:
        """Fill `experience`.

        Args:
            obs: raw observations [num_env, observation].
            noise: standard normal numbers [num_env, action].
        """
        self._obs.copy_(obs)
        output = self._run(obs, self._value)
        self._mean.copy_(output[ACTOR])
        torch.exp(self._log_std, out=self._std)
        torch.addcmul(self._mean, noise, self._std, out=self._action)
        torch.mul(noise, noise, out=self._squared)
        torch.sum(self._squared, dim=1, out=self._log_prob)
        constant = self._log_std.sum().add_(self._action.shape[1] * _HALF_LOG_TWO_PI)
        self._log_prob.mul_(-0.5).sub_(constant)

    def evaluate(self, obs: Tensor) -> None:
        """Fill `bootstrap` with the values of raw observations."""
        self._run(obs, self.bootstrap)

    def _run(self, obs: Tensor, value: Tensor) -> Tensor:
        """Evaluate both networks; writes the value in units of the scaled reward."""
        self._input.fill(obs)
        output = self._network.forward(self._input.rows)
        normalizer = self._policy.value_normalizer
        torch.addcmul(normalizer.center, output[CRITIC, :, 0], normalizer.deviation, out=value)
        return output
