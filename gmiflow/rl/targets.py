"""Advantages and returns of a rollout, by the policy that made it or by the one that learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from torch import Tensor

from gmiflow.api import Ports, StageContext
from gmiflow.rl.backend import Backend
from gmiflow.rl.models import ActorCritic
from gmiflow.rl.reference import Reference
from gmiflow.rl.vtrace import VTraceEstimator

__all__ = ["Correction", "RolloutTargets"]

Correction: TypeAlias = Literal["none", "clip", "vtrace"]
"""What is done about the ratio of the policy that learns to the one that acted; see `RolloutTargets`."""

_SIGNALS = ("reward", "terminated", "truncated", "bootstrap")


class RolloutTargets:
    """Estimates once per rollout; allocates once.

    With ``renew`` the values are those of the policy as it is now, and so is the record that `compute` returns. What
    lies between that policy and the one that acted is then in the advantages: as V-trace puts it there, with ``clip``
    as the importance ratio, at most 1, or with ``none`` not at all.

    Attributes:
        advantage, returns: f32 [horizon, num_env], rewritten by `compute`.
        flat: both as one tensor [2, horizon * num_env].
    """

    def __init__(
        self,
        backend: Backend,
        context: StageContext,
        policy: ActorCritic,
        *,
        gamma: float,
        lam: float,
        reward_scale: float,
        correction: Correction,
        renew: bool,
    ) -> None:
        """Allocate for rollouts of the context's slice; V-trace takes ``renew``, for it weighs by that policy."""
        horizon, num_env = context.horizon, context.num_env
        kind = VTraceEstimator if correction == "vtrace" else backend.estimator
        self._estimator = kind(
            horizon=horizon,
            num_env=num_env,
            gamma=gamma,
            lam=lam,
            reward_scale=reward_scale,
            device=context.device,
        )
        self._clips = correction == "clip"
        self._reference = Reference(backend, policy, horizon, num_env, context.precision) if renew else None
        self.advantage, self.returns = self._estimator.advantage, self._estimator.returns
        self.flat = self._estimator.targets.flatten(1)

    def compute(self, batch: Ports) -> Mapping[str, Tensor]:
        """Fill `advantage` and `returns` from a trainer's in ports; the record that ratios are taken against."""
        record = cast("Mapping[str, Tensor]", batch["experience"])
        signals = {name: cast("Tensor", batch[name]) for name in _SIGNALS}
        if self._reference is None:
            self._estimator.compute(value=record["value"], **signals)
            return record
        now = self._reference.replace(record)
        log_ratio = now["log_prob"] - record["log_prob"]
        if isinstance(self._estimator, VTraceEstimator):
            self._estimator.compute(value=now["value"], log_ratio=log_ratio, **signals)
            return now
        self._estimator.compute(value=now["value"], **signals)
        if self._clips:
            self.advantage.mul_(log_ratio.exp_().clamp_(max=1.0))
        return now
