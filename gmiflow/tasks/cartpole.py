"""CartPole: balance an upright pole, or swing a hanging one up, by pushing its cart.

Angle 0 is upright. The force is 10 N times the action (the motor's gear). Nothing but positions and
velocities is read, so no derived field is needed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import CARTPOLE, CARTPOLE_SWING_UP
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["CartPole", "CartPoleSwingUp"]

TRACK_HALF_LENGTH_M = 2.4
FALLEN_RAD = math.radians(12.0)
START_NOISE = 0.05
"""Half width of the uniform noise on every position and velocity at the start of an episode."""


def _start(task: Task, env: Tensor | None, angle: float) -> tuple[Tensor, Tensor]:
    """State at rest with the pole at ``angle``, plus uniform noise of +-`START_NOISE` on all four numbers."""
    noise = task.reset_noise(4, env).mul(2.0 * START_NOISE).sub(START_NOISE)
    qpos, qvel = noise[:, :2], noise[:, 2:]
    qpos[:, 1].add_(angle)
    return qpos, qvel


class CartPole(Task):
    """Balance: reward 1 per step until the pole leans over 12 degrees or the cart leaves its 2.4 m track.

    Observation: cart position (m), cart velocity (m/s), pole angle (rad), pole velocity (rad/s).
    The maximum return is 500.
    """

    info = CARTPOLE

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write x, x_dot, theta, theta_dot."""
        out[:, 0::2] = state.qpos
        out[:, 1::2] = state.qvel

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Reward 1; terminated outside +-12 degrees or +-2.4 m."""
        reward.fill_(1.0)
        angle_out = obs[:, 2].abs() > FALLEN_RAD
        torch.logical_or(angle_out, obs[:, 0].abs() > TRACK_HALF_LENGTH_M, out=terminated)

    def start(self, env: Tensor | None) -> tuple[Tensor, Tensor]:
        """Upright at rest, each number with uniform noise of +-0.05."""
        return _start(self, env, angle=0.0)


class CartPoleSwingUp(Task):
    """Swing-up: reward (1 + cos theta) / 2 - 0.001 a^2 per step; terminated only at the track's ends.

    Observation: cart position (m), cart velocity (m/s), cosine and sine of the pole angle, pole
    velocity (rad/s).
    """

    info = CARTPOLE_SWING_UP

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write x, x_dot, cos theta, sin theta, theta_dot."""
        angle = state.qpos[:, 1]
        out[:, 0] = state.qpos[:, 0]
        torch.cos(angle, out=out[:, 2])
        torch.sin(angle, out=out[:, 3])
        out[:, 1::3] = state.qvel

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Reward for height less the cost of the action; terminated outside +-2.4 m."""
        torch.add(obs[:, 2], 1.0, out=reward)
        reward.mul_(0.5).sub_(state.action[:, 0].square(), alpha=0.001)
        torch.gt(obs[:, 0].abs(), TRACK_HALF_LENGTH_M, out=terminated)

    def start(self, env: Tensor | None) -> tuple[Tensor, Tensor]:
        """Hanging at rest, each number with uniform noise of +-0.05."""
        return _start(self, env, angle=math.pi)
