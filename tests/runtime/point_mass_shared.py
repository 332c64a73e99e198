"""The policy gradient of `point_mass` for trainers that apply it one by one to what they share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from point_mass import Learner
from torch import Tensor

from gmiflow.api import Ports, SharedTrainer, StageContext


class Sharing(SharedTrainer):
    """Shares parameters, momentum and the number of updates; computes as `point_mass.Learner` does."""

    def setup(self, context: StageContext) -> None:
        self.context = context
        self.policy = context.policy
        self.own = list(self.policy.parameters())
        self.shared = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        self.shared["momentum"] = torch.zeros(sum(p.numel() for p in self.own))
        self.shared["updates"] = torch.zeros((), dtype=torch.int64)

    def share(self) -> Mapping[str, Tensor]:
        return self.shared

    def attach(self, shared: Mapping[str, Tensor]) -> None:
        self.shared = dict(shared)

    @torch.no_grad()
    def pull(self) -> None:
        for name, value in self.policy.state_dict().items():
            value.copy_(self.shared[f"policy.{name}"])

    def gradient(self, batch: Ports) -> Mapping[str, Tensor]:
        experience = batch["experience"]
        returns = Learner._returns(self, batch)
        value = self.policy.value(experience["obs"])
        log_prob = self.policy.log_prob(experience["obs"], experience["action"])
        loss = ((value - returns).square() - log_prob * (returns - value.detach())).mean()
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, self.own)])
        self.flat = flat / flat.norm().clamp(min=1.0)  # with momentum and stale gradients longer ones diverge
        return {"loss": loss.detach()}

    @torch.no_grad()
    def apply(self) -> None:
        self.shared["momentum"].mul_(0.9).add_(self.flat)
        pieces = self.shared["momentum"].split([p.numel() for p in self.own])
        for (name, parameter), piece in zip(self.policy.named_parameters(), pieces, strict=True):
            self.shared[f"policy.{name}"].sub_(self.context.params["lr"] * piece.view_as(parameter))
        self.shared["updates"] += 1

    def weights(self) -> Mapping[str, Tensor]:
        return {name: self.shared[f"policy.{name}"] for name in self.policy.state_dict()}

    def state_dict(self) -> dict[str, Tensor]:
        return {name: self.shared[name] for name in ("momentum", "updates")}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self.state_dict().items():
            value.copy_(state[name])


class SlowFirst(Sharing):
    """The trainer of the first environments takes its time, so that the others run ahead of it."""

    def gradient(self, batch: Ports) -> Mapping[str, Tensor]:
        if self.context.env_offset == 0:
            time.sleep(0.02)
        return super().gradient(batch)


class FallingOnce(Sharing):
    """The trainer of the first environments kills its process in its fifth update, unless it did before."""

    def gradient(self, batch: Ports) -> Mapping[str, Tensor]:
        died = Path(os.environ["POINT_MASS_DIED"])
        self.made = getattr(self, "made", 0) + 1
        if self.context.env_offset == 0 and self.made >= 5 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradient(batch)
