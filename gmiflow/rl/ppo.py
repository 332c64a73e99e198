"""Proximal policy optimisation: the stages `std.algo.ppo` names.

Both stages work on preallocated buffers with a fixed sequence of operations and without host
synchronisation, so that a whole rollout step and a whole update can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from gmiflow.api import Agent, Ports, StageContext, Trainer
from gmiflow.rl.backend import Backend, select_backend
from gmiflow.rl.losses import STATISTICS, LossSettings
from gmiflow.rl.models import ActorCritic
from gmiflow.rl.moments import explained_variance
from gmiflow.rl.reference import policy_of
from gmiflow.rl.samples import Rows
from gmiflow.rl.targets import Correction, RolloutTargets

__all__ = ["Actor", "Learner", "LearnerSettings"]


def _tensor(ports: Mapping[str, Any], name: str) -> Tensor:
    return cast("Tensor", ports[name])


class Actor(Agent):
    """Samples actions from a Gaussian policy, or takes its mean, and records what the learner needs."""

    capturable = True
    acts_deterministically = True

    def __init__(self, backend: Backend | None = None) -> None:
        """Make an actor; ``backend`` overrides the choice of `select_backend`."""
        self._backend = backend

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
        self._policy = policy_of(context)
        self._noise = context.noise
        self._width = self._policy.layout.action
        self._step = torch.zeros((), dtype=torch.int64, device=context.device)
        backend = self._backend or select_backend(context.device)
        self._inference = backend.inference(self._policy, context.num_env, context.precision)
        still = torch.zeros(context.num_env, self._width, device=context.device)  # no noise leaves the mean
        self._still = still if context.deterministic else None

    @torch.no_grad()
    def act(self, inputs: Ports) -> Ports:
        """One step; see `gmiflow.api.Agent.act`."""
        inference, noise = self._inference, self._still
        if noise is None:
            noise = self._noise.normal("action", self._step, self._width)
        inference.act(_tensor(inputs, "obs"), noise)
        self._step.add_(1)
        return {"action": inference.experience["action"], "experience": inference.experience}

    @torch.no_grad()
    def finish(self, inputs: Ports) -> Ports:
        """Value after the last step; see `gmiflow.api.Agent.finish`."""
        self._inference.evaluate(_tensor(inputs, "obs"))
        return {"bootstrap": self._inference.bootstrap}

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
    correction: Correction = "clip"


class Learner(Trainer):
    """Clipped PPO with an adaptive learning rate, equal on every replica by construction.

    What crosses between replicas is one small buffer of moments (advantages, returns,
    observations) before the epochs, and one flat buffer per minibatch: gradient, KL divergence and
    loss statistics. Every sum is divided by the global number of samples, so slices of unequal
    size are exact. The observation normaliser changes after the epochs, so that the first
    minibatch sees the policy that acted.
    """

    capturable = True

    def __init__(self, backend: Backend | None = None) -> None:
        """Make a learner; ``backend`` overrides the choice of `select_backend`."""
        self._backend = backend

    def setup(self, context: StageContext) -> None:
        """Allocate everything for rollouts of this slice."""
        settings = LearnerSettings(**context.params)
        policy, device = policy_of(context), context.device
        backend = self._backend or select_backend(device)
        self._settings, self._policy, self._communicator = settings, policy, context.communicator
        self._samples = context.horizon * context.num_env
        self._samples_total = context.horizon * context.num_env_total
        self._iteration = torch.zeros((), dtype=torch.int64, device=device)
        self._targets = RolloutTargets(
            backend,
            context,
            policy,
            gamma=settings.gamma,
            lam=settings.lam,
            reward_scale=settings.reward_scale,
            correction=settings.correction,
            renew=context.max_staleness > 0 or settings.correction == "vtrace",
        )
        self._minibatches = backend.minibatches(
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
        self._build(backend, context.precision)

    def _build(self, backend: Backend, precision: str) -> None:
        """Buffers of samples and moments, gradient and optimizer."""
        policy, settings = self._policy, self._settings
        flat = policy.flat.detach()
        self._moments = backend.moments(policy.observation_normalizer, self._samples, self._samples_total)
        self._buffer = backend.samples(policy, self._samples)
        spans = list(zip(pairwise(self._minibatches.bounds), self._minibatches.global_counts, strict=True))
        self._plan = [
            (Rows(self._buffer.layout, self._buffer.shuffled[start:end]), 1.0 / count) for (start, end), count in spans
        ]
        loss = LossSettings(
            clip=settings.clip,
            value_coef=settings.value_coef,
            entropy=settings.entropy,
            bounds_loss=settings.bounds_loss,
        )
        self._gradient = backend.gradient(policy, loss, [end - start for (start, end), _ in spans], precision)
        self._optimizer = backend.optimizer(
            flat,
            learning_rate=settings.lr,
            kl_target=settings.kl_target,
            max_grad_norm=settings.max_grad_norm,
            statistics=len(STATISTICS),
        )

    @torch.no_grad()
    def update(self, batch: Ports) -> Mapping[str, Tensor]:
        """All epochs over one rollout; see `gmiflow.api.Trainer.update`."""
        targets = self._targets
        experience = targets.compute(batch)
        mean, variance = self._moments.compute(experience["obs"].flatten(0, 1), targets.flat, self._communicator)
        if self._settings.normalize_value:
            self._policy.value_normalizer.merge(mean[1], variance[1], self._samples_total)
        self._buffer.load(experience, targets.advantage, targets.returns, mean[0], variance[0])
        self._minibatches.shuffle(self._iteration)
        self._optimizer.sums.zero_()
        for order in self._minibatches.order:
            self._buffer.shuffle(order)
            for rows, weight in self._plan:
                self._gradient.compute(rows, weight)
                self._communicator.all_reduce(self._gradient.reduced)
                self._optimizer.step(self._gradient.reduced)
        if self._policy.normalize_obs:
            self._policy.observation_normalizer.merge(mean[2:], variance[2:], self._samples_total)
        self._iteration.add_(1)
        return self._metrics(variance)

    def _metrics(self, variance: Tensor) -> dict[str, Tensor]:
        """Means over the minibatches of this update."""
        means = self._optimizer.sums / (self._settings.epochs * self._settings.minibatches)
        metrics: dict[str, Tensor] = dict(zip((*STATISTICS, "gradient_norm"), means.unbind(), strict=True))
        metrics["learning_rate"] = self._optimizer.learning_rate.clone()
        metrics["action_std"] = self._gradient.log_std.exp().mean()
        metrics["explained_variance"] = explained_variance(variance)
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
