"""A simulator of torch operations alone: what it computes has the same bits at every run, on a GPU too."""

import torch

from gmiflow.api import Simulator

EPISODE = 64
"""Steps after which an episode is truncated."""


class PointMass(Simulator):
    """A point in the plane that is pushed towards the origin; beyond a distance of 3 the episode ends."""

    capturable = True
    joinable = True

    def setup(self, context):
        """Allocate the state."""
        num_env, device = context.num_env, context.device
        self._noise = context.noise
        self._position, self._velocity = (torch.zeros(num_env, 2, device=device) for _ in range(2))
        self._age = torch.zeros(num_env, dtype=torch.int32, device=device)
        self._clock = torch.zeros(num_env, dtype=torch.int64, device=device)
        self._obs = torch.zeros(num_env, 6, device=device)

    def reset(self):
        """Start everywhere within +-1."""
        self._position.copy_(self._start())
        self._velocity.zero_()
        self._age.zero_()
        return {"obs": self._look()}

    def observe(self):
        """The observation that was last made."""
        return {"obs": self._obs}

    def step(self, inputs):
        """Half a tenth of a second with the action as acceleration."""
        self._clock.add_(1)
        self._age.add_(1)
        self._velocity.mul_(0.98).add_(inputs["action"].clamp(-1.0, 1.0), alpha=0.05)
        self._position.add_(self._velocity, alpha=0.05)
        distance = self._position.abs().amax(1)
        terminated = distance > 3.0
        truncated = (self._age >= EPISODE) & ~terminated
        done = (terminated | truncated).unsqueeze(1)
        reward = 1.0 - distance
        torch.where(done, self._start(), self._position, out=self._position)
        self._velocity.masked_fill_(done, 0.0)
        self._age.masked_fill_(done.squeeze(1), 0)
        return {"obs": self._look(), "reward": reward, "terminated": terminated, "truncated": truncated}

    def _start(self):
        return self._noise.uniform("reset", self._clock, 2) * 2.0 - 1.0

    def _look(self):
        parts = (self._position, self._velocity, self._position.square())
        return torch.cat(parts, 1, out=self._obs)
