"""The Gaussian actor-critic that Actor acts with and Learner trains."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from gmiflow.hashing import mix_int
from gmiflow.rl.layout import NetworkLayout
from gmiflow.rl.network import ACTOR, CRITIC, Activation, apply_activation
from gmiflow.rl.normalizer import RunningNormalizer

__all__ = ["OBSERVATION_LIMIT", "ActorCritic"]

OBSERVATION_LIMIT = 5.0
"""Normalised observations are clamped to this many deviations, as rl_games does."""

_ACTION_GAIN = 0.01


class ActorCritic(nn.Module):
    """Gaussian policy with state-independent deviation, value network and their normalisers.

    All trained parameters lie in one flat tensor (see `NetworkLayout`), so that gradients are
    reduced, clipped and applied without gathering anything.

    Attributes:
        layout: sizes and offsets.
        flat: the parameters, [layout.size].
        observation_normalizer, value_normalizer: statistics kept by the learner.
        normalize_obs: whether observations are normalised (and clamped).
    """

    def __init__(
        self,
        *,
        observation: int,
        action: int,
        hidden: tuple[int, ...] = (256, 128, 64),
        activation: Activation = "elu",
        normalize_obs: bool = True,
        init_log_std: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Initialise from ``seed`` alone: equal arguments give equal bits on every machine.

        Weights are uniform within +-1/sqrt(inputs) and biases zero (torch's bound for linear
        layers); the actor's output layer is scaled down so that the first actions are unbiased.
        Only a CPU generator and arithmetic are used, no factorisation, because those differ in
        the last bit between processors.
        """
        super().__init__()
        if not hidden or min(hidden) < 1:
            raise ValueError(f"hidden must name at least one layer of at least one unit, not {list(hidden)}")
        self.layout = NetworkLayout(observation=observation, hidden=hidden, action=action)
        self.activation: Activation = activation
        self.normalize_obs = normalize_obs
        flat = torch.zeros(self.layout.size)
        generator = torch.Generator().manual_seed(mix_int(seed ^ (seed >> 32)))
        for layer, weight in zip(self.layout.layers, self.layout.weights(flat), strict=True):
            bound = 1.0 / math.sqrt(layer.inputs)
            weight[:, : layer.inputs].uniform_(-bound, bound, generator=generator)
        output = self.layout.weights(flat)[-1]
        output[ACTOR].mul_(_ACTION_GAIN)
        output[CRITIC, :, 1:] = 0.0
        self.layout.log_std(flat).fill_(init_log_std)
        self.flat = nn.Parameter(flat.to(device))
        self.observation_normalizer = RunningNormalizer((observation,), device)
        self.value_normalizer = RunningNormalizer((), device)

    def linear(self, network: int, index: int) -> tuple[Tensor, Tensor]:
        """Weight [outputs, inputs] and bias [outputs] of a layer of `ACTOR` or `CRITIC`, as views."""
        layer = self.layout.layers[index]
        weight = self.layout.weights(self.flat)[index][network]
        if network == CRITIC and index == len(self.layout.layers) - 1:
            weight = weight[:, :1]
        return weight[: layer.inputs].T, weight[layer.inputs]

    @property
    def log_std(self) -> Tensor:
        """Logarithm of the action deviations, [action], a view of the parameters."""
        return self.layout.log_std(self.flat)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiable evaluation (the hot paths use `NetworkPass` instead).

        Args:
            obs: raw observations [..., observation].

        Returns:
            Action mean [..., action], deviation [action], value [...] in units of the scaled reward.
        """
        mean, value = self.evaluate(self.prepare(obs))
        return mean, self.log_std.exp(), self.value_normalizer.denormalize(value)

    def prepare(self, obs: Tensor) -> Tensor:
        """Normalised and clamped observations."""
        if not self.normalize_obs:
            return obs
        return self.observation_normalizer.normalize(obs).clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)

    def evaluate(self, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [..., action] and normalised value [...] for prepared observations; differentiable."""
        mean, value = (self._run(network, prepared) for network in (ACTOR, CRITIC))
        return mean, value.squeeze(-1)

    def _run(self, network: int, value: Tensor) -> Tensor:
        last = len(self.layout.layers) - 1
        for index in range(last + 1):
            weight, bias = self.linear(network, index)
            value = torch.nn.functional.linear(value, weight, bias)
            if index < last:
                value = apply_activation(self.activation, value)
        return value

    def export_state(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, detached views: what the learner sends to the actor."""
        return cast("dict[str, Tensor]", self.state_dict())
