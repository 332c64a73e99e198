"""Asynchronous advantage actor-critic (Mnih et al. 2016): the learner that `std.algo.a3c` names.

Every learner takes rollouts of its own agents, computes the gradient of

    -log p(a_t | s_t) A_t - entropy * H + value_coef * 1/2 (V(s_t) - R_t)^2 + bounds_loss * B   (means over the rollout)

with ``R_t`` the discounted rewards to the end of the rollout and the value there, and ``A_t = R_t - V(s_t)``, and makes
one step with it on parameters that all learners share, together with the statistics of the optimizer. None waits for
the gradient of another.

The gradient is that of PPO where the ratio of probabilities is 1: so the same kernels compute it. Not in the paper are
``B``, the penalty on action means out of bounds (`gmiflow.rl.losses`), and the normalisation, by statistics that are
shared too, of observations and, with `normalize_value`, of the returns that the value is trained on; without the latter
CartPole does not learn to stay on its track.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.api import Ports, SharedTrainer, StageContext
from gmiflow.rl.backend import Backend, select_backend
from gmiflow.rl.losses import STATISTICS, LossSettings
from gmiflow.rl.moments import explained_variance
from gmiflow.rl.reference import policy_of
from gmiflow.rl.samples import Rows
from gmiflow.rl.shared_optimizer import OPTIMIZERS
from gmiflow.rl.targets import Correction, RolloutTargets

__all__ = ["Learner", "LearnerSettings"]

_NO_CLIP = 1.0
"""Of the ratio of probabilities, which is 1 here up to rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerSettings:
    """Parameters of `Learner`; names, meanings and defaults as in `std.algo.a3c`."""

    lr: float = 1e-3
    optimizer: str = "adam"
    epsilon: float = 1e-8
    gamma: float = 0.99
    reward_scale: float = 1.0
    entropy: float = 1e-3
    value_coef: float = 1.0
    bounds_loss: float = 1e-4
    max_grad_norm: float = 1.0
    normalize_value: bool = True
    correction: Correction = "none"


class Learner(SharedTrainer):
    """One of the asynchronous learners.

    Its own policy is a copy that `pull` renews and `gradient` reads. What is shared (policy with normaliser,
    statistics of the optimizer, number of updates) lies in memory of the host, on the CPU also when it trains on a GPU.
    Without `attach` its own policy is the shared one.
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
        self._targets = RolloutTargets(
            backend,
            context,
            policy,
            gamma=settings.gamma,
            lam=1.0,  # all rewards up to the end of the rollout count
            reward_scale=settings.reward_scale,
            correction=settings.correction,
            renew=True,
        )
        self._moments = backend.moments(policy.observation_normalizer, self._samples, self._samples)
        # Of the latest gradient, for `apply`: where every capture of `gradient` leaves them.
        self._mean, self._variance = torch.zeros(
            (2, 2 + policy.layout.observation), dtype=torch.float64, device=device
        ).unbind()
        self._buffer = backend.samples(policy, self._samples)
        self._order = torch.arange(self._samples, device=device)
        self._zero, self._one = (torch.full((), value, dtype=torch.float64, device=device) for value in (0.0, 1.0))
        loss = LossSettings(
            clip=_NO_CLIP,
            value_coef=settings.value_coef,
            entropy=settings.entropy,
            bounds_loss=settings.bounds_loss,
        )
        self._gradient = backend.gradient(policy, loss, [self._samples], context.precision)
        self._rows = Rows(self._buffer.layout, self._buffer.shuffled)
        self._share_own()

    def _share_own(self) -> None:
        """Until `attach` the own policy is the shared one."""
        settings, flat = self._settings, self._policy.flat.detach()
        self._shared_policy = self._policy
        self._optimizer = OPTIMIZERS[settings.optimizer](
            flat, learning_rate=settings.lr, max_grad_norm=settings.max_grad_norm, epsilon=settings.epsilon
        )
        self._updates = torch.zeros((), dtype=torch.int64)

    def share(self) -> dict[str, Tensor]:
        """Policy, statistics of the optimizer and number of updates; see `gmiflow.api.SharedTrainer.share`."""
        policy = {f"policy.{name}": value for name, value in self._shared_policy.export_state().items()}
        return {**policy, **{f"trainer.{name}": value for name, value in self.state_dict().items()}}

    def attach(self, shared: Mapping[str, Tensor]) -> None:
        """Share ``shared``; see `gmiflow.api.SharedTrainer.attach`."""
        policy = copy.deepcopy(self._policy).cpu()
        policy.load_state_dict({name: shared[f"policy.{name}"] for name in policy.state_dict()}, assign=True)
        self._shared_policy = policy
        self._optimizer.adopt(policy.flat.detach(), {n: shared[f"trainer.{n}"] for n in self._optimizer.state})
        self._updates = shared["trainer.updates"]

    @torch.no_grad()
    def pull(self) -> None:
        """Renew the own policy; see `gmiflow.api.SharedTrainer.pull`."""
        if self._shared_policy is not self._policy:
            shared = self._shared_policy.export_state()
            for name, value in self._policy.export_state().items():
                value.copy_(shared[name])

    @torch.no_grad()
    def gradient(self, batch: Ports) -> Mapping[str, Tensor]:
        """Gradient from one rollout; see `gmiflow.api.SharedTrainer.gradient`."""
        targets = self._targets
        current = targets.compute(batch)
        mean, variance = self._moments.compute(current["obs"].flatten(0, 1), targets.flat, self._communicator)
        self._mean.copy_(mean)
        self._variance.copy_(variance)
        self._buffer.load(current, targets.advantage, targets.returns, self._zero, self._one)
        self._buffer.shuffle(self._order)
        self._gradient.compute(self._rows, 1.0 / self._samples)
        return self._metrics()

    @torch.no_grad()
    def apply(self) -> None:
        """One step of the shared policy; see `gmiflow.api.SharedTrainer.apply`."""
        shared = self._shared_policy
        self._optimizer.step(self._gradient.gradient.to(shared.flat.device))
        mean, variance = (value.to(shared.flat.device) for value in (self._mean, self._variance))
        if shared.normalize_obs:
            shared.observation_normalizer.merge(mean[2:], variance[2:], self._samples)
        if self._settings.normalize_value:
            shared.value_normalizer.merge(mean[1], variance[1], self._samples)
        self._updates.add_(1)

    def _metrics(self) -> dict[str, Tensor]:
        """Of this learner alone, before its gradient is applied."""
        statistics = dict(zip(STATISTICS, self._gradient.statistics.unbind(), strict=True))
        metrics = {name: statistics[name].clone() for name in ("value_loss", "entropy")}
        metrics["gradient_norm"] = torch.linalg.vector_norm(self._gradient.gradient)
        metrics["action_std"] = self._gradient.log_std.exp().mean()
        metrics["explained_variance"] = explained_variance(self._variance)
        return metrics

    def weights(self) -> Mapping[str, Tensor]:
        """The shared parameters and normalisers by name: views."""
        return self._shared_policy.export_state()

    def state_dict(self) -> dict[str, Tensor]:
        """Statistics of the optimizer, and how many updates there were."""
        return {**self._optimizer.state, "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, in place."""
        for name, own in self.state_dict().items():
            own.copy_(state[name])
