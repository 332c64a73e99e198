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

import math
from typing import ClassVar

import mujoco
import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.tasks.base import Task
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.rotation import MATRIX, RotationEntries
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["TARGET_M", "Locomotion"]

TARGET_M = (1000.0, 0.0)
"""Where the body is to run, x and y in the world."""

FREE_POSITIONS, FREE_VELOCITIES = 7, 6
TORSO_SIZE = 12
HEIGHT, VELOCITY, SPIN, ANGLES, UP, HEADING = slice(0, 1), slice(1, 4), slice(4, 7), slice(7, 10), 10, 11

# What of the torso's rotation matrix R is worked out: R itself, then rows in which the sines and the cosines of yaw,
# roll and the angle to the target lie side by side. R00 twice stands where the torso's x axis times the target
# comes to lie, and -R10, R10 is its other factor.
ENTRIES = (*MATRIX, (1, 0, 1), (2, 1, 1), (0, 0, 1), (0, 0, 1), (2, 2, 1), (0, 0, 1), (1, 0, -1), (1, 0, 1))
SINES, COSINES, ASIDE_FORWARD, FORWARD, ACROSS = slice(9, 12), slice(12, 15), slice(11, 15, 3), 14, slice(15, 17)

UP_WEIGHT, UP_THRESHOLD = 0.1, 0.93
HEADING_WEIGHT, HEADING_THRESHOLD = 0.5, 0.8
JOINT_POSITION_NOISE, JOINT_VELOCITY_NOISE = 0.2, 0.1


class Locomotion(Task):
    """A free body with hinges that is rewarded for running towards `TARGET_M`."""

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
        # Scaled position = (2 q - upper - lower) / (upper - lower).
        self._joint_scale = 2.0 / (self._upper - self._lower)
        self._joint_offset = -(self._upper + self._lower) / (self._upper - self._lower)
        self._rotation = RotationEntries(ENTRIES, context.num_env, device)
        self._prepare_place(context)
        self._costs = ColumnSum(context.num_env, self._joints, device)
        self._prepare_starts(context)

    def _prepare_place(self, context: StageContext) -> None:
        """Buffers of where the torso is, by rows: target y, x, y seen from it, the distance, its own x, y."""
        device, num_env = context.device, context.num_env
        self._target = torch.tensor(TARGET_M, device=device).unsqueeze(1)
        self._place = torch.zeros(6, num_env, device=device)
        self._last_place = self.remember("last_place", [*TARGET_M, math.hypot(*TARGET_M), 0.0, 0.0]).T
        self._sums, self._moved = torch.zeros(3, num_env, device=device), torch.zeros(2, num_env, device=device)
        self._upright = torch.zeros(num_env, dtype=torch.bool, device=device)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states and their observations; what differs between episodes is written by `start`."""
        device, num_env = context.device, context.num_env
        torso = torch.tensor([0.0, 0.0, self.start_height_m, 1.0, 0.0, 0.0, 0.0], device=device)
        default = torch.zeros_like(self._lower).clamp(self._lower, self._upper)
        self._start_qpos = torch.cat((torso, default)).repeat(num_env, 1)
        self._start_qvel = torch.zeros(num_env, FREE_VELOCITIES + self._joints, device=device)
        self._lowest_angle = default - JOINT_POSITION_NOISE
        self._lowest_rate = torch.full_like(default, -JOINT_VELOCITY_NOISE)
        super().observe_start(self._start_qpos, self._start_qvel, self.start_columns)

    def observe_torso(self, state: Snapshot, out: Tensor) -> None:
        """Write the twelve numbers about the torso into the first columns of ``out``."""
        count = out.shape[0]
        qpos, qvel, place = state.qpos, state.qvel, self._place[:, :count]
        entries = self._rotation(qpos[:, 3:7])
        out[:, HEIGHT] = qpos[:, 2:3]
        # R^T v: the velocity in the torso's frame.
        velocity = out[:, VELOCITY].T
        torch.mul(entries[0:3], qvel[:, 0], out=velocity)
        velocity.addcmul_(entries[3:6], qvel[:, 1]).addcmul_(entries[6:9], qvel[:, 2])
        torch.mul(qvel[:, 3:6], self.spin_scale, out=out[:, SPIN])
        position = qpos[:, 0:2].T
        torch.sub(self._target, position, out=place[1:3])
        place[0] = place[2]
        torch.hypot(place[1], place[2], out=place[3])
        place[4:6] = position
        # (aside, forward) = R00 (y, x) + (-R10, R10) (x, y) of the target.
        entries[ASIDE_FORWARD].mul_(place[0:2]).addcmul_(entries[ACROSS], place[1:3])
        torch.atan2(entries[SINES], entries[COSINES], out=out[:, ANGLES].T)
        out[:, UP] = entries[8]
        torch.div(entries[FORWARD], place[3], out=out[:, HEADING])

    def observe_joint_positions(self, qpos: Tensor, out: Tensor) -> None:
        """Write the joint positions, scaled so that the limits are -1 and 1."""
        torch.addcmul(self._joint_offset, qpos[:, FREE_POSITIONS:], self._joint_scale, out=out)

    def observe_joint_velocities(self, qvel: Tensor, out: Tensor) -> None:
        """Write the joint velocities times `joint_velocity_scale`."""
        torch.mul(qvel[:, FREE_VELOCITIES:], self.joint_velocity_scale, out=out)

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the joints differ from one start to another."""
        positions = slice(TORSO_SIZE, TORSO_SIZE + self._joints)
        velocities = slice(TORSO_SIZE + self._joints, TORSO_SIZE + 2 * self._joints)
        self.observe_joint_positions(qpos, out[:, positions])
        self.observe_joint_velocities(qvel, out[:, velocities])

    def reward_posture(self, obs: Tensor, alive: Tensor, reward: Tensor) -> None:
        """Write the rewards for being alive (f32 scalar), upright and turned to the target."""
        torch.clamp(obs[:, HEADING], max=HEADING_THRESHOLD, out=reward)
        torch.add(alive, reward, alpha=HEADING_WEIGHT / HEADING_THRESHOLD, out=reward)
        reward.add_(torch.gt(obs[:, UP], UP_THRESHOLD, out=self._upright), alpha=UP_WEIGHT)

    def reward_progress(self, reward: Tensor) -> None:
        """Add the distance covered towards the target per second, and remember the place.

        The difference of the potentials -distance / dt before and after the step. With
        |a| - |b| = (a - b).(a + b) / (|a| + |b|) it keeps the digits that the difference of two
        numbers near 1000 m would lose in float32 (0.004 m/s).
        """
        torch.add(self._last_place[:3], self._place[1:4], out=self._sums)
        torch.sub(self._place[4:], self._last_place[3:], out=self._moved)
        self._last_place.copy_(self._place[1:])
        towards, across = self._moved.mul_(self._sums[:2])
        towards.add_(across).div_(self._sums[2])
        reward.add_(towards, alpha=1.0 / self.info.control_dt)

    def fallen(self, obs: Tensor, height_m: float, death_reward: float, reward: Tensor, terminated: Tensor) -> None:
        """Terminate where the torso is below ``height_m``; the step's whole reward is then ``death_reward``."""
        torch.lt(obs[:, 0], height_m, out=terminated)
        reward.masked_fill_(terminated, death_reward)

    def start(self, env: Tensor | None) -> tuple[Tensor, Tensor]:
        """Torso upright at rest over the origin; joints near their default with uniform noise.

        Positions: default +-0.2 rad, kept inside the limits; velocities: +-0.1 rad/s. The default is
        the angle nearest to 0 that the limits allow.
        """
        joints = self._joints
        noise = self.reset_noise(2 * joints, env)
        count = noise.shape[0]
        qpos, qvel = self._start_qpos[:count], self._start_qvel[:count]
        angles = qpos[:, FREE_POSITIONS:]
        torch.add(self._lowest_angle, noise[:, :joints], alpha=2.0 * JOINT_POSITION_NOISE, out=angles)
        torch.clamp(angles, self._lower, self._upper, out=angles)
        rates = qvel[:, FREE_VELOCITIES:]
        torch.add(self._lowest_rate, noise[:, joints:], alpha=2.0 * JOINT_VELOCITY_NOISE, out=rates)
        return qpos, qvel
