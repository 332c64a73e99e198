"""The samples of one rollout as packed rows, and their shuffled copy that minibatches are slices of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.rl.models import OBSERVATION_LIMIT, ActorCritic

__all__ = ["NetworkInput", "RowLayout", "Rows", "SampleBuffer"]

_ADVANTAGE_EPSILON = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """Columns of a packed sample: network input | action | mean | std | four scalars | padding.

    Attributes:
        observation: observation size.
        input: columns of the network input: observation, a one, zeros.
        action: action size.
    """

    observation: int
    input: int
    action: int

    @property
    def scalars(self) -> int:
        """First of log_prob, value, advantage, return (the last three normalised)."""
        return self.input + 3 * self.action

    @property
    def width(self) -> int:
        """Columns of a row, rounded up to whole 32-byte pieces."""
        return -(-(self.scalars + 4) // 8) * 8


class Rows:
    """Named views of packed samples [n, width]."""

    def __init__(self, layout: RowLayout, packed: Tensor) -> None:
        """View ``packed``; nothing is copied."""
        self.layout = layout
        self.packed = packed
        start, size = layout.input, layout.action
        self.input = packed[:, :start]
        self.action, self.mean, self.std = (packed[:, start + k * size : start + (k + 1) * size] for k in range(3))
        self.log_prob, self.value, self.advantage, self.returns = (packed[:, layout.scalars + k] for k in range(4))


class NetworkInput:
    """The network's input rows: normalised observation, a column of ones, zeros."""

    def __init__(self, policy: ActorCritic, rows: Tensor) -> None:
        """Initialise ``rows``, [n, input columns], which may be strided."""
        observation = policy.layout.observation
        self.rows = rows
        self._values = rows[:, :observation]
        self._normalizer = policy.observation_normalizer
        self._normalize = policy.normalize_obs
        rows.zero_()
        rows[:, observation] = 1.0

    def fill(self, obs: Tensor) -> None:
        """Write raw observations [n, observation], as `ActorCritic.prepare` makes them."""
        if self._normalize:
            torch.addcmul(self._normalizer.shift, obs, self._normalizer.scale, out=self._values)
            self._values.clamp_(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)
        else:
            self._values.copy_(obs)


class SampleBuffer:
    """Takes a rollout in, normalises it once, and lays it out in minibatch order once per epoch.

    A sample is row ``time * num_env + environment``.

    Attributes:
        shuffled: [samples, width]; minibatch ``m`` is a contiguous slice of it.
    """

    def __init__(self, policy: ActorCritic, samples: int) -> None:
        """Allocate for ``samples`` samples of ``policy``."""
        layout = policy.layout
        self.layout = RowLayout(observation=layout.observation, input=layout.layers[0].rows, action=layout.action)
        self._policy = policy
        self._samples = samples
        flat = policy.flat.detach()
        self.shuffled = flat.new_zeros((samples, self.layout.width))
        # Factors that normalise advantages: scale and shift.
        self._advantage_factors = flat.new_zeros(2)
        self._allocate(flat)

    def _allocate(self, flat: Tensor) -> None:
        """Buffers that only this implementation needs."""
        self._packed = Rows(self.layout, flat.new_zeros((self._samples, self.layout.width)))
        self._input = NetworkInput(self._policy, self._packed.input)

    def load(
        self,
        experience: Mapping[str, Tensor],
        advantage: Tensor,
        returns: Tensor,
        advantage_mean: Tensor,
        advantage_variance: Tensor,
    ) -> None:
        """Take in one rollout; observations and values are normalised by the statistics of this moment.

        Args:
            experience: the actor's record, fields [horizon, num_env, ...].
            advantage: [horizon, num_env].
            returns: [horizon, num_env].
            advantage_mean: f64 scalar over all replicas.
            advantage_variance: f64 scalar over all replicas.
        """
        scale = (advantage_variance.sqrt() + _ADVANTAGE_EPSILON).reciprocal_()
        self._advantage_factors[0] = scale
        self._advantage_factors[1] = scale.mul_(advantage_mean).neg_()
        self._pack({name: value.flatten(0, 1) for name, value in experience.items()}, advantage, returns)

    def _pack(self, experience: Mapping[str, Tensor], advantage: Tensor, returns: Tensor) -> None:
        packed, value = self._packed, self._policy.value_normalizer
        self._input.fill(experience["obs"])
        packed.action.copy_(experience["action"])
        packed.mean.copy_(experience["mean"])
        packed.std.copy_(experience["std"])
        packed.log_prob.copy_(experience["log_prob"])
        scale, shift = self._advantage_factors.unbind()
        torch.addcmul(shift, advantage.view(-1), scale, out=packed.advantage)
        torch.addcmul(value.shift, experience["value"], value.scale, out=packed.value)
        torch.addcmul(value.shift, returns.view(-1), value.scale, out=packed.returns)

    def shuffle(self, order: Tensor) -> None:
        """Fill `shuffled`: row i is sample ``order[i]``; ``order`` is i64 [samples]."""
        torch.index_select(self._packed.packed, 0, order, out=self.shuffled)
