"""Proximal policy optimisation: the stages `std.algo.ppo` names.

Both stages work on preallocated buffers with a fixed sequence of operations and without host
synchronisation, so that a whole rollout step and a whole update can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from gmiflow.api import Agent, Ports, StageContext, Trainer
from gmiflow.rl.losses import STATISTICS, LossSettings, LossWorkspace, RowLayout, Rows
from gmiflow.rl.minibatches import StratifiedMinibatches
from gmiflow.rl.models import OBSERVATION_LIMIT, ActorCritic
from gmiflow.rl.network import ACTOR, CRITIC, NetworkPass
from gmiflow.rl.optimizer import FlatAdam
from gmiflow.rl.returns import AdvantageEstimator

__all__ = ["Actor", "Learner", "LearnerSettings"]

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_ADVANTAGE_EPSILON = 1e-8


def _policy_of(context: StageContext) -> ActorCritic:
    """The policy of a context.

    Raises:
        TypeError: when it is not what `Actor.make_policy` makes.
    """
    if not isinstance(context.policy, ActorCritic):
        raise TypeError(
            f"stage {context.stage}: the policy must be an ActorCritic, not {type(context.policy).__name__}"
        )
    return context.policy


def _tensor(ports: Mapping[str, Any], name: str) -> Tensor:
    return cast("Tensor", ports[name])


class _Input:
    """The network's input rows: normalised observation, a column of ones, zeros."""

    def __init__(self, policy: ActorCritic, rows: Tensor) -> None:
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


class Actor(Agent):
    """Samples actions from a Gaussian policy and records what the learner needs."""

    @staticmethod
    def make_policy(context: StageContext) -> nn.Module:
        """An `ActorCritic`; see `gmiflow.api.Agent.make_policy`."""
        params = context.params
        return ActorCritic(
            observation=context.shapes["O"],
            action=context.shapes["A"],
            hidden=tuple(params.get("hidden", (256, 128, 64))),
            activation=params.get("activation", "elu"),
            normalize_obs=params.get("normalize_obs", True),
            init_log_std=params.get("init_log_std", 0.0),
            seed=context.seed,
            device=context.device,
        )

    def setup(self, context: StageContext) -> None:
        """Allocate the record of one step."""
        policy = _policy_of(context)
        layout, num_env = policy.layout, context.num_env
        self._policy = policy
        self._noise = context.noise
        self._step = torch.zeros((), dtype=torch.int64, device=context.device)
        flat = policy.flat.detach()
        self._log_std = layout.log_std(flat)
        self._network = NetworkPass(layout, policy.activation, flat, num_env)
        self._input = _Input(policy, flat.new_empty((num_env, layout.layers[0].rows)))
        self._std = flat.new_empty(layout.action)
        self._action, self._mean = (flat.new_empty((num_env, layout.action)) for _ in range(2))
        self._obs = flat.new_empty((num_env, layout.observation))
        self._log_prob, self._value, self._bootstrap = (flat.new_empty(num_env) for _ in range(3))
        self._squared = torch.empty_like(self._action)
        self._experience: dict[str, Tensor] = {
            "obs": self._obs,
            "action": self._action,
            "log_prob": self._log_prob,
            "mean": self._mean,
            "std": self._std.expand(num_env, -1),
            "value": self._value,
        }

    def _evaluate(self, obs: Tensor, value: Tensor) -> Tensor:
        """Run the networks; writes the value in units of the scaled reward, returns the mean."""
        self._input.fill(obs)
        output = self._network.forward(self._input.rows)
        normalizer = self._policy.value_normalizer
        torch.addcmul(normalizer.center, output[CRITIC, :, 0], normalizer.deviation, out=value)
        return output[ACTOR]

    @torch.no_grad()
    def act(self, inputs: Ports) -> Ports:
        """One step; see `gmiflow.api.Agent.act`."""
        self._obs.copy_(_tensor(inputs, "obs"))
        self._mean.copy_(self._evaluate(self._obs, self._value))
        noise = self._noise.normal("action", self._step, self._action.shape[1])
        torch.exp(self._log_std, out=self._std)
        torch.addcmul(self._mean, noise, self._std, out=self._action)
        torch.mul(noise, noise, out=self._squared)
        torch.sum(self._squared, dim=1, out=self._log_prob)
        constant = self._log_std.sum().add_(self._action.shape[1] * _HALF_LOG_TWO_PI)
        self._log_prob.mul_(-0.5).sub_(constant)
        self._step.add_(1)
        return {"action": self._action, "experience": self._experience}

    @torch.no_grad()
    def finish(self, inputs: Ports) -> Ports:
        """Value after the last step; see `gmiflow.api.Agent.finish`."""
        self._evaluate(_tensor(inputs, "obs"), self._bootstrap)
        return {"bootstrap": self._bootstrap}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy parameters and normalisers of `Learner.weights`, in place."""
        own = self._policy.export_state()
        for name, value in weights.items():
            own[name].copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        """The step counter of the action noise."""
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the step counter."""
        self._step.copy_(state["step"])


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerSettings:
    """Parameters of `Learner`; names, meanings and defaults as in `std.algo.ppo`."""

    lr: float = 3e-4
    epochs: int = 4
    minibatches: int = 4
    clip: float = 0.2
    gamma: float = 0.99
    lam: float = 0.95
    kl_target: float = 0.008
    reward_scale: float = 1.0
    entropy: float = 0.0
    bounds_loss: float = 1e-4
    value_coef: float = 2.0
    max_grad_norm: float = 1.0
    normalize_value: bool = True


class Learner(Trainer):
    """Clipped PPO with an adaptive learning rate, equal on every replica by construction.

    What crosses between replicas is one small buffer of moments (advantages, returns,
    observations) before the epochs, and one flat buffer per minibatch: gradient, KL divergence and
    loss statistics. Every sum is divided by the global number of samples, so slices of unequal
    size are exact. The observation normaliser changes after the epochs, so that the first
    minibatch sees the policy that acted.
    """

    def setup(self, context: StageContext) -> None:
        """Allocate everything for rollouts of this slice."""
        settings = LearnerSettings(**context.params)
        policy = _policy_of(context)
        device = context.device
        self._settings, self._policy, self._communicator = settings, policy, context.communicator
        self._samples = context.horizon * context.num_env
        self._samples_total = context.horizon * context.num_env_total
        flat = policy.flat.detach()
        self._estimator = AdvantageEstimator(
            horizon=context.horizon,
            num_env=context.num_env,
            gamma=settings.gamma,
            lam=settings.lam,
            reward_scale=settings.reward_scale,
            device=device,
        )
        self._minibatches = StratifiedMinibatches(
            horizon=context.horizon,
            num_env=context.num_env,
            env_offset=context.env_offset,
            num_env_total=context.num_env_total,
            stratum=context.stratum,
            epochs=settings.epochs,
            minibatches=settings.minibatches,
            seed=context.seed,
            device=device,
        )
        self._iteration = torch.zeros((), dtype=torch.int64, device=device)
        self._optimizer = FlatAdam(
            flat, learning_rate=settings.lr, kl_target=settings.kl_target, max_grad_norm=settings.max_grad_norm
        )
        self._allocate(flat)

    def _allocate(self, flat: Tensor) -> None:
        """Buffers of samples, gradients and statistics, and a workspace per size of minibatch."""
        policy, settings = self._policy, self._settings
        layout = policy.layout
        rows = RowLayout(observation=layout.observation, input=layout.layers[0].rows, action=layout.action)
        packed, shuffled = flat.new_zeros((2, self._samples, rows.width))
        self._packed, self._shuffled = Rows(rows, packed), shuffled
        self._input = _Input(policy, self._packed.input)
        self._centered = flat.new_empty((self._samples, layout.observation))
        self._moments = torch.zeros(2 * (2 + layout.observation), dtype=torch.float64, device=flat.device)
        self._reduced = flat.new_zeros(layout.size + len(STATISTICS))
        self._gradient, self._statistics = self._reduced[: layout.size], self._reduced[layout.size :]
        self._log_std, self._log_std_gradient = layout.log_std(flat), layout.log_std(self._gradient)
        self._sums = flat.new_zeros(len(STATISTICS) + 1)
        self._norm_sum = self._sums[-1]
        loss = LossSettings(
            clip=settings.clip,
            value_coef=settings.value_coef,
            entropy=settings.entropy,
            bounds_loss=settings.bounds_loss,
        )
        bounds = self._minibatches.bounds
        spans = list(zip(pairwise(bounds), self._minibatches.global_counts, strict=True))
        sizes = {end - start for (start, end), _ in spans}
        networks = {n: NetworkPass(layout, policy.activation, flat, n, self._gradient) for n in sizes}
        losses = {n: LossWorkspace(loss, layout.action, n, flat) for n in sizes}
        self._plan = [
            (Rows(rows, shuffled[start:end]), networks[end - start], losses[end - start], 1.0 / count)
            for (start, end), count in spans
        ]

    @torch.no_grad()
    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        """All epochs over one rollout; see `gmiflow.api.Trainer.update`."""
        experience = cast("Mapping[str, Tensor]", batch["experience"])
        self._estimator.compute(
            reward=_tensor(batch, "reward"),
            terminated=_tensor(batch, "terminated"),
            truncated=_tensor(batch, "truncated"),
            value=experience["value"],
            bootstrap=_tensor(batch, "bootstrap"),
        )
        mean, variance = self._reduce_moments(experience["obs"].reshape(self._samples, -1))
        if self._settings.normalize_value:
            self._policy.value_normalizer.merge(mean[1], variance[1], self._samples_total)
        self._pack(experience, mean, variance)
        self._minibatches.shuffle(self._iteration)
        self._sums.zero_()
        for order in self._minibatches.order:
            torch.index_select(self._packed.packed, 0, order, out=self._shuffled)
            for rows, network, loss, weight in self._plan:
                self._minibatch_step(rows, network, loss, weight)
        if self._policy.normalize_obs:
            self._policy.observation_normalizer.merge(mean[2:], variance[2:], self._samples_total)
        self._iteration.add_(1)
        return self._metrics(variance)

    def _reduce_moments(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Global mean and variance, f64 [2 + observation], of advantage, return and each observation.

        Observations are summed relative to the running mean, in f32 but without cancellation.
        """
        normalizer = self._policy.observation_normalizer
        centered, sums = self._centered, self._moments.view(2, -1)
        torch.sub(obs, normalizer.center, out=centered)
        source = self._estimator.moments_source.view(2, -1)
        sums[0, :2], sums[0, 2:] = source.sum(dim=1), centered.sum(dim=0)
        sums[1, :2], sums[1, 2:] = source.square().sum(dim=1), centered.square_().sum(dim=0)
        self._communicator.all_reduce(self._moments)
        mean, square = sums / self._samples_total
        variance = square.sub_(mean.square()).clamp_(min=0.0)
        mean[2:].add_(normalizer.center)
        return mean, variance

    def _pack(self, experience: Mapping[str, Tensor], mean: Tensor, variance: Tensor) -> None:
        """Write normalised samples as rows, the order of samples being time * num_env + environment."""
        packed, samples = self._packed, self._samples
        self._input.fill(experience["obs"].reshape(samples, -1))
        packed.action.copy_(experience["action"].reshape(samples, -1))
        packed.mean.copy_(experience["mean"].reshape(samples, -1))
        packed.std.copy_(experience["std"].reshape(samples, -1))
        packed.log_prob.copy_(experience["log_prob"].reshape(-1))
        value = self._policy.value_normalizer
        torch.addcmul(value.shift, experience["value"].reshape(-1), value.scale, out=packed.value)
        torch.addcmul(value.shift, self._estimator.returns.view(-1), value.scale, out=packed.returns)
        scale = (variance[0].sqrt() + _ADVANTAGE_EPSILON).reciprocal_()
        shift = (mean[0] * scale).neg_().to(packed.advantage.dtype)
        torch.addcmul(shift, self._estimator.advantage.view(-1), scale.to(shift.dtype), out=packed.advantage)

    def _minibatch_step(self, rows: Rows, network: NetworkPass, loss: LossWorkspace, weight: float) -> None:
        """Gradient of one minibatch, summed over the replicas, and one step of the optimizer."""
        loss.gradient(
            rows=rows,
            output=network.forward(rows.input),
            log_std=self._log_std,
            weight=weight,
            output_gradient=network.output_gradient,
            log_std_gradient=self._log_std_gradient,
            statistics=self._statistics,
        )
        network.backward(rows.input)
        self._communicator.all_reduce(self._reduced)
        self._sums[:-1].add_(self._statistics)
        self._optimizer.adapt(self._statistics[0])
        self._optimizer.step(self._gradient)
        self._norm_sum.add_(self._optimizer.gradient_norm)

    def _metrics(self, variance: Tensor) -> dict[str, Tensor]:
        """Means over the minibatches of this update."""
        means = self._sums / (self._settings.epochs * self._settings.minibatches)
        metrics: dict[str, Tensor] = dict(zip((*STATISTICS, "gradient_norm"), means.unbind(), strict=True))
        metrics["learning_rate"] = self._optimizer.learning_rate.clone()
        metrics["action_std"] = self._log_std.exp().mean()
        # The advantage is what the old value missed of the return.
        metrics["explained_variance"] = 1.0 - variance[0] / (variance[1] + _ADVANTAGE_EPSILON)
        return metrics

    def weights(self) -> Mapping[str, Tensor]:
        """Parameters and normalisers by name: views."""
        return self._policy.export_state()

    def state_dict(self) -> dict[str, Tensor]:
        """Optimizer, learning rate and iteration counter."""
        return {**self._optimizer.state_dict(), "iteration": self._iteration}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, in place."""
        for name, own in self.state_dict().items():
            own.copy_(state[name])
