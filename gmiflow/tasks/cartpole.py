"""CartPole: balance an upright pole, or swing a hanging one up, by pushing its cart.

Angle 0 is upright. The force is 10 N times the action (the motor's gear). Nothing but positions and
velocities is read, so no derived field is needed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import CARTPOLE, CARTPOLE_SWING_UP
from gmiflow.tasks.operands import Kept, number
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["CartPole", "CartPoleSwingUp"]

TRACK_HALF_LENGTH_M = number(2.4)
FALLEN_RAD = number(math.radians(12.0))
HALF, ONE = number(0.5), number(1.0)
START_NOISE = 0.05
"""Half width of the uniform noise on every position and velocity at the start of an episode."""


def _start(noise: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """State at rest with the pole at ``angle``, plus uniform noise of +-`START_NOISE` on all four numbers."""
    state = noise.mul(2.0 * START_NOISE).sub(START_NOISE)
    qpos, qvel = state[:, :2], state[:, 2:]
    qpos[:, 1].add_(angle)
    return qpos, qvel


def _columns(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.unbind(1)


def _alternate(obs: Tensor) -> tuple[Tensor, Tensor]:
    return obs[:, 0::2], obs[:, 1::2]


def _third(obs: Tensor) -> Tensor:
    return obs[:, 1::3]


class CartPole(Task):
    """Balance: reward 1 per step until the pole leans over 12 degrees or the cart leaves its 2.4 m track.

    Observation: cart position (m), cart velocity (m/s), pole angle (rad), pole velocity (rad/s).
    The maximum return is 500.
    """

    info = CARTPOLE
    start_numbers = 4

    def prepare(self, context: StageContext) -> None:
        """Keep the views."""
        self._columns_of, self._places_of = Kept(_columns), Kept(_alternate)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write x, x_dot, theta, theta_dot."""
        positions, velocities = self._places_of(out)
        positions.copy_(state.qpos)
        velocities.copy_(state.qvel)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Reward 1; terminated outside +-12 degrees or +-2.4 m."""
        position, _, angle, _ = self._columns_of(obs)
        reward.fill_(1.0)
        torch.gt(position.abs(), TRACK_HALF_LENGTH_M, out=terminated)
        terminated.logical_or_(angle.abs() > FALLEN_RAD)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """The pole's angle from the vertical, rad."""
        torch.abs(state.qpos[:, 1], out=out[0])

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Upright at rest, each number with uniform noise of +-0.05."""
        return _start(noise, angle=0.0)


class CartPoleSwingUp(Task):
    """Swing-up: reward (1 + cos theta) / 2 - 0.001 a^2 per step; terminated only at the track's ends.

    Observation: cart position (m), cart velocity (m/s), cosine and sine of the pole angle, pole
    velocity (rad/s).
    """

    info = CARTPOLE_SWING_UP
    start_numbers = 4

    def prepare(self, context: StageContext) -> None:
        """Keep the views."""
        self._columns_of, self._velocities_of = Kept(_columns), Kept(_third)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write x, x_dot, cos theta, sin theta, theta_dot."""
        position, angle = self._columns_of(state.qpos)
        out_position, _, cosine, sine, _ = self._columns_of(out)
        out_position.copy_(position)
        torch.cos(angle, out=cosine)
        torch.sin(angle, out=sine)
        self._velocities_of(out).copy_(state.qvel)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Reward for height less the cost of the action; terminated outside +-2.4 m."""
        position, _, cosine, _, _ = self._columns_of(obs)
        (action,) = self._columns_of(state.action)
        torch.add(cosine, ONE, out=reward)
        reward.mul_(HALF).sub_(action.square(), alpha=0.001)
        torch.gt(position.abs(), TRACK_HALF_LENGTH_M, out=terminated)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """The pole's angle from the vertical, rad, whatever the number of its turns."""
        _, _, cosine, sine, _ = self._columns_of(obs)
        torch.atan2(sine, cosine, out=out[0]).abs_()

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Hanging at rest, each number with uniform noise of +-0.05."""
        return _start(noise, angle=math.pi)
