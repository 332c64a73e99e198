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

from typing import ClassVar

import mujoco
import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.tasks.base import Snapshot, Task
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.rotation import RotationMatrix

__all__ = ["TARGET_M", "Locomotion"]

TARGET_M = (1000.0, 0.0)
"""Where the body is to run, x and y in the world."""

FREE_POSITIONS, FREE_VELOCITIES = 7, 6
TORSO_SIZE = 12
HEIGHT, VELOCITY, SPIN = slice(0, 1), slice(1, 4), slice(4, 7)
YAW, ROLL, ANGLE_TO_TARGET, UP, HEADING = 7, 8, 9, 10, 11

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
        self._joint_default = torch.zeros_like(self._lower).clamp(self._lower, self._upper)
        self._target = torch.tensor(TARGET_M, device=device)
        self._rotation = RotationMatrix(device)
        self._start_qpos = torch.tensor([0.0, 0.0, self.start_height_m, 1.0, 0.0, 0.0, 0.0], device=device)
        self._previous_xy = self.remember("previous_xy", 2)
        self._costs = ColumnSum(context.num_env, self._joints, device)
        self._start_obs = torch.zeros(1, self.info.observation_size, device=device)
        pose = torch.cat((self._start_qpos, self._joint_default)).unsqueeze(0)
        super().observe_start(pose, pose.new_zeros(1, model.nv), self._start_obs)

    def observe_torso(self, state: Snapshot, out: Tensor) -> None:
        """Write the twelve numbers about the torso into the first columns of ``out``."""
        rotation = self._rotation(state.qpos[:, 3:7])
        out[:, HEIGHT] = state.qpos[:, 2:3]
        # R^T v: the velocity in the torso's frame.
        terms = rotation * state.qvel[:, 0:3].unsqueeze(2)
        torch.add(terms[:, 0].add_(terms[:, 1]), terms[:, 2], out=out[:, VELOCITY])
        torch.mul(state.qvel[:, 3:6], self.spin_scale, out=out[:, SPIN])
        torch.atan2(rotation[:, 1, 0], rotation[:, 0, 0], out=out[:, YAW])
        torch.atan2(rotation[:, 2, 1], rotation[:, 2, 2], out=out[:, ROLL])
        to_target = self._target - state.qpos[:, 0:2]
        ahead_x, ahead_y = rotation[:, 0, 0], rotation[:, 1, 0]
        target_x, target_y = to_target[:, 0], to_target[:, 1]
        forward = (ahead_x * target_x).addcmul_(ahead_y, target_y)
        aside = (ahead_x * target_y).addcmul_(ahead_y, target_x, value=-1.0)
        torch.atan2(aside, forward, out=out[:, ANGLE_TO_TARGET])
        out[:, UP] = rotation[:, 2, 2]
        torch.div(forward, torch.hypot(target_x, target_y), out=out[:, HEADING])

    def observe_joint_positions(self, qpos: Tensor, out: Tensor) -> None:
        """Write the joint positions, scaled so that the limits are -1 and 1."""
        torch.addcmul(self._joint_offset, qpos[:, FREE_POSITIONS:], self._joint_scale, out=out)

    def observe_joint_velocities(self, qvel: Tensor, out: Tensor) -> None:
        """Write the joint velocities times `joint_velocity_scale`."""
        torch.mul(qvel[:, FREE_VELOCITIES:], self.joint_velocity_scale, out=out)

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the joints differ from one start to another."""
        out.copy_(self._start_obs.expand_as(out))
        positions = slice(TORSO_SIZE, TORSO_SIZE + self._joints)
        velocities = slice(TORSO_SIZE + self._joints, TORSO_SIZE + 2 * self._joints)
        self.observe_joint_positions(qpos, out[:, positions])
        self.observe_joint_velocities(qvel, out[:, velocities])

    def progress(self, state: Snapshot) -> Tensor:
        """Distance covered towards the target per second, f32 [n]; remembers the position.

        The difference of the potentials -distance / dt before and after the step. With
        |a| - |b| = (a - b).(a + b) / (|a| + |b|) it keeps the digits that the difference of two
        numbers near 1000 m would lose in float32 (0.004 m/s).
        """
        position = state.qpos[:, 0:2]
        after = self._target - position
        before = self._target - self._previous_xy
        moved = position - self._previous_xy
        self._previous_xy.copy_(position)
        lengths = torch.hypot(before[:, 0], before[:, 1]).add_(torch.hypot(after[:, 0], after[:, 1]))
        products = moved.mul_(before.add_(after))
        return products[:, 0].add_(products[:, 1]).div_(lengths).mul_(1.0 / self.info.control_dt)

    def posture_reward(self, obs: Tensor, alive: float) -> Tensor:
        """Rewards for being alive, upright and turned to the target, f32 [n]."""
        heading = obs[:, HEADING].clamp(max=HEADING_THRESHOLD).mul_(HEADING_WEIGHT / HEADING_THRESHOLD)
        upright = (obs[:, UP] > UP_THRESHOLD).float()
        return heading.add_(upright, alpha=UP_WEIGHT).add_(alive)

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
        qpos = noise.new_empty(count, FREE_POSITIONS + joints)
        qpos[:, :FREE_POSITIONS] = self._start_qpos
        angles = noise[:, :joints].mul(2.0 * JOINT_POSITION_NOISE).add_(self._joint_default - JOINT_POSITION_NOISE)
        torch.clamp(angles, self._lower, self._upper, out=qpos[:, FREE_POSITIONS:])
        qvel = noise.new_zeros(count, FREE_VELOCITIES + joints)
        torch.add(
            noise[:, joints:].mul_(2.0 * JOINT_VELOCITY_NOISE), -JOINT_VELOCITY_NOISE, out=qvel[:, FREE_VELOCITIES:]
        )
        return qpos, qvel
