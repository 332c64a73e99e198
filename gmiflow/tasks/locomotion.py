"""What Ant and Humanoid share: the torso's twelve observations, the reward's common terms, the start.

Both bodies have a free joint first in qpos and qvel: position (3) and quaternion (4); linear velocity
in the world (3) and angular velocity in the torso's frame (3). All other joints are hinges, each with
one motor, in the same order.

Derived fields: the foot sensors (and the Humanoid's joint forces) come from the last substep, which
is when the force acted; positions and velocities are current. So no forward pass is needed.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import mujoco
import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.tasks.base import Task
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.operands import FirstRows, Kept, number
from gmiflow.tasks.snapshot import Snapshot
from gmiflow.tasks.torso import HEADING, START_PLACE, TARGET_M, TORSO_SIZE, UP, Torso

__all__ = ["TARGET_M", "Locomotion"]

FREE_POSITIONS, FREE_VELOCITIES = 7, 6

UP_WEIGHT, UP_THRESHOLD = 0.1, number(0.93)
HEADING_WEIGHT, HEADING_THRESHOLD = 0.5, 0.8
JOINT_POSITION_NOISE, JOINT_VELOCITY_NOISE = 0.2, 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Hinges:
    """The hinges' part of a state and of its observation, all f32 [n, J].

    Attributes:
        angles: positions, in rad.
        rates: velocities, in rad/s.
        positions: scaled positions in the observation.
        velocities: scaled velocities in the observation.
    """

    angles: Tensor
    rates: Tensor
    positions: Tensor
    velocities: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Posture:
    """Columns of an observation that say how the torso stands, f32 [n]."""

    height: Tensor
    up: Tensor
    heading: Tensor


def _hinges(qpos: Tensor, qvel: Tensor, obs: Tensor) -> Hinges:
    angles, rates = qpos[:, FREE_POSITIONS:], qvel[:, FREE_VELOCITIES:]
    first, joints = TORSO_SIZE, angles.shape[1]
    positions, velocities = obs[:, first : first + joints], obs[:, first + joints : first + 2 * joints]
    return Hinges(angles=angles, rates=rates, positions=positions, velocities=velocities)


def _posture(obs: Tensor) -> Posture:
    return Posture(height=obs[:, 0], up=obs[:, UP], heading=obs[:, HEADING])


class Locomotion(Task):
    """A free body with hinges that is rewarded for running towards `TARGET_M`.

    The observation starts with the torso's numbers, the scaled positions and the scaled velocities of the hinges.
    """

    taped = True

    start_height_m: ClassVar[float]
    spin_scale: ClassVar[float]
    joint_velocity_scale: ClassVar[float]

    def prepare(self, context: StageContext) -> None:
        """Read the hinges' limits from the model."""
        device, model = context.device, self.engine.model
        limits = torch.tensor(model.jnt_range[1:], dtype=torch.float32, device=device)
        assert (model.jnt_type[1:] == int(mujoco.mjtJoint.mjJNT_HINGE)).all(), "every joint but the first is a hinge"
        self._lower, self._upper = limits.unbind(1)
        self._joints = int(limits.shape[0])
        self.start_numbers = 2 * self._joints
        # Scaled position = (2 q - upper - lower) / (upper - lower).
        self._joint_scale = 2.0 / (self._upper - self._lower)
        self._joint_offset = -(self._upper + self._lower) / (self._upper - self._lower)
        self._rate_scale = number(self.joint_velocity_scale)
        self.torso = Torso(context.num_env, device, self.spin_scale)
        self._hinges_of, self._posture_of = Kept(_hinges), Kept(_posture)
        self._prepare_reward(context)
        self._prepare_starts(context)

    def _prepare_reward(self, context: StageContext) -> None:
        """The last place by rows, as `Torso.seen`, and the buffers of the reward's terms."""
        device, num_env = context.device, context.num_env
        self._last_seen = self.remember("last_place", START_PLACE).T
        self._last_target, self._last_position = self._last_seen[:3], self._last_seen[3:]
        self._target, self._position = self.torso.seen[:3], self.torso.seen[3:]
        sums, self._moved = torch.zeros(3, num_env, device=device), torch.zeros(2, num_env, device=device)
        self._sums, self._target_sums, self._distance_sum = sums, sums[:2], sums[2]
        self._towards, self._across = self._moved
        self._upright = torch.zeros(num_env, device=device)
        self._costs = ColumnSum(num_env, self._joints, device)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states and their observations; what differs between episodes is written by `start`."""
        device, num_env = context.device, context.num_env
        torso = torch.tensor([0.0, 0.0, self.start_height_m, 1.0, 0.0, 0.0, 0.0], device=device)
        default = torch.zeros_like(self._lower).clamp(self._lower, self._upper)
        qpos = torch.cat((torso, default)).repeat(num_env, 1)
        qvel = torch.zeros(num_env, FREE_VELOCITIES + self._joints, device=device)
        self._starts = FirstRows(qpos, qvel, qpos[:, FREE_POSITIONS:], qvel[:, FREE_VELOCITIES:])
        self._lowest_angle = default - JOINT_POSITION_NOISE
        self._lowest_rate = torch.full_like(default, -JOINT_VELOCITY_NOISE)
        super().observe_start(qpos, qvel, self.start_columns)

    def hinges(self, state: Snapshot, obs: Tensor) -> Hinges:
        """The hinges' part of ``state`` and of its observation."""
        return self._hinges_of(state.qpos, state.qvel, obs)

    def observe_hinges(self, hinges: Hinges) -> None:
        """Write positions, scaled so that the limits are -1 and 1, and velocities times `joint_velocity_scale`."""
        torch.addcmul(self._joint_offset, hinges.angles, self._joint_scale, out=hinges.positions)
        torch.mul(hinges.rates, self._rate_scale, out=hinges.velocities)

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the joints differ from one start to another."""
        self.observe_hinges(self._hinges_of(qpos, qvel, out))

    def reward_posture(self, obs: Tensor, alive: Tensor, reward: Tensor) -> None:
        """Write the rewards for being alive (f32 scalar), upright and turned to the target."""
        posture = self._posture_of(obs)
        torch.clamp(posture.heading, max=HEADING_THRESHOLD, out=reward)
        torch.add(alive, reward, alpha=HEADING_WEIGHT / HEADING_THRESHOLD, out=reward)
        reward.add_(torch.gt(posture.up, UP_THRESHOLD, out=self._upright), alpha=UP_WEIGHT)

    def reward_progress(self, reward: Tensor) -> None:
        """Add the distance covered towards the target per second, and remember the place.

        The difference of the potentials -distance / dt before and after the step. With
        |a| - |b| = (a - b).(a + b) / (|a| + |b|) it keeps the digits that the difference of two
        numbers near 1000 m would lose in float32 (0.004 m/s).
        """
        torch.add(self._last_target, self._target, out=self._sums)
        torch.sub(self._position, self._last_position, out=self._moved)
        self._last_seen.copy_(self.torso.seen)
        self._moved.mul_(self._target_sums)
        self._towards.add_(self._across).div_(self._distance_sum)
        reward.add_(self._towards, alpha=1.0 / self.info.control_dt)

    def fallen(self, obs: Tensor, height_m: Tensor, death_reward: float, reward: Tensor, terminated: Tensor) -> None:
        """Terminate where the torso is below ``height_m`` (scalar); the step's reward is then ``death_reward``."""
        torch.lt(self._posture_of(obs).height, height_m, out=terminated)
        reward.masked_fill_(terminated, death_reward)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """The torso's velocity along +x, where the target is, m/s."""
        out[0] = state.qvel[:, 0]

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Torso upright at rest over the origin; joints near their default with uniform noise.

        Positions: default +-0.2 rad, kept inside the limits; velocities: +-0.1 rad/s. The default is
        the angle nearest to 0 that the limits allow.
        """
        for_angles, for_rates = noise.chunk(2, 1)
        qpos, qvel, angles, rates = self._starts(noise.shape[0])
        torch.add(self._lowest_angle, for_angles, alpha=2.0 * JOINT_POSITION_NOISE, out=angles)
        torch.clamp(angles, self._lower, self._upper, out=angles)
        torch.add(self._lowest_rate, for_rates, alpha=2.0 * JOINT_VELOCITY_NOISE, out=rates)
        return qpos, qvel
