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

import dataclasses
import importlib.util
import math
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.tasks.base import DIVERGED, Snapshot, Task
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.rotation import MATRIX, RotationEntries

__all__ = ["TARGET_M", "Locomotion", "Rules"]

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The numbers in which Ant and Humanoid differ.

    Attributes:
        start_height: of the torso, m.
        spin_scale, rate_scale, force_scale: of angular velocity, joint velocities, and forces in the observation.
        alive, death: rewards, of a step and of the one that ends an episode early.
        fallen: height of the torso below which the episode ends, m.
        action_cost, energy_cost, limit_cost: weights of a^2, |a v| and of joints near their limits.
        limit_threshold: scaled joint position from which the limit costs.
        limit_grows: whether it does so on both sides, and in proportion to how far beyond it is and to the gear;
            else only at the upper limit, and always the same.
    """

    start_height: float
    spin_scale: float
    rate_scale: float
    force_scale: float
    alive: float
    death: float
    fallen: float
    action_cost: float
    energy_cost: float
    limit_cost: float
    limit_threshold: float
    limit_grows: bool


class Locomotion(Task):
    """A free body with hinges that is rewarded for running towards `TARGET_M`."""

    rules: ClassVar[Rules]
    forces: ClassVar[tuple[str, ...]] = ()
    """Derived fields whose sum is observed as the joints' forces."""

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
        self._alive = torch.tensor(self.rules.alive, device=device)
        gear = torch.tensor(model.actuator_gear[:, 0], dtype=torch.float32, device=device)
        self._gear_ratio = gear / gear.max()
        self._costs = ColumnSum(context.num_env, self._joints, device)
        self._prepare_starts(context)
        self._prepare_kernel(context)

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
        torso = torch.tensor([0.0, 0.0, self.rules.start_height, 1.0, 0.0, 0.0, 0.0], device=device)
        default = torch.zeros_like(self._lower).clamp(self._lower, self._upper)
        self._start_qpos = torch.cat((torso, default)).repeat(num_env, 1)
        self._start_qvel = torch.zeros(num_env, FREE_VELOCITIES + self._joints, device=device)
        self._lowest_angle = default - JOINT_POSITION_NOISE
        self._lowest_rate = torch.full_like(default, -JOINT_VELOCITY_NOISE)
        super().observe_start(self._start_qpos, self._start_qvel, self.start_columns)

    def _prepare_kernel(self, context: StageContext) -> None:
        """Whether one kernel does what follows the physics, and its constants."""
        self._fused = (
            self.engine.masked and context.device.type == "cuda" and importlib.util.find_spec("triton") is not None
        )
        ones = torch.ones_like(self._gear_ratio)
        self._joint_rows = torch.stack(
            (
                self._joint_scale,
                self._joint_offset,
                self._gear_ratio if self.rules.limit_grows else ones,
                self._lower,
                self._upper,
                self._lowest_angle,
            )
        )
        self._constants = dataclasses.asdict(self.rules) | {
            "target_x": TARGET_M[0],
            "target_y": TARGET_M[1],
            "target_distance": math.hypot(*TARGET_M),
            "angle_noise": JOINT_POSITION_NOISE,
            "rate_noise": JOINT_VELOCITY_NOISE,
            "up_weight": UP_WEIGHT,
            "up_threshold": UP_THRESHOLD,
            "heading_weight": HEADING_WEIGHT,
            "heading_threshold": HEADING_THRESHOLD,
            "per_second": 1.0 / self.info.control_dt,
            "episode_length": self.info.episode_length,
            "diverged_squared": DIVERGED**2,
        }

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
        torch.mul(qvel[:, 3:6], self.rules.spin_scale, out=out[:, SPIN])
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

    def _finish_where(self) -> None:
        """As in the base class; on a GPU with Triton by one kernel."""
        if not self._fused:
            super()._finish_where()
            return
        from gmiflow.tasks.locomotion_kernel import finish

        state = self._now
        tensors = {
            "qpos": state.qpos,
            "qvel": state.qvel,
            "warmstart": self.engine.warmstart,
            "action": state.action,
            "sensors": state.derived["sensordata"],
            "noise": self.reset_noise(2 * self._joints, None),
            "joints": self._joint_rows,
            "last_place": self._last_place,
            "episode_step": self._episode_step,
            "sound_steps": self._sound_steps,
            "obs": self._obs,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }
        finish(tensors, [state.derived[name] for name in self.forces], self._constants)

    def observe_joint_positions(self, qpos: Tensor, out: Tensor) -> None:
        """Write the joint positions, scaled so that the limits are -1 and 1."""
        torch.addcmul(self._joint_offset, qpos[:, FREE_POSITIONS:], self._joint_scale, out=out)

    def observe_joint_velocities(self, qvel: Tensor, out: Tensor) -> None:
        """Write the joint velocities times `Rules.rate_scale`."""
        torch.mul(qvel[:, FREE_VELOCITIES:], self.rules.rate_scale, out=out)

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the joints differ from one start to another."""
        positions = slice(TORSO_SIZE, TORSO_SIZE + self._joints)
        velocities = slice(TORSO_SIZE + self._joints, TORSO_SIZE + 2 * self._joints)
        self.observe_joint_positions(qpos, out[:, positions])
        self.observe_joint_velocities(qvel, out[:, velocities])

    def sum_up(self, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Write reward and termination, given the costs in units of the energy's cost.

        Alive, upright and heading + progress - costs; where the torso has fallen the whole reward is `Rules.death`.
        """
        rules = self.rules
        torch.clamp(obs[:, HEADING], max=HEADING_THRESHOLD, out=reward)
        torch.add(self._alive, reward, alpha=HEADING_WEIGHT / HEADING_THRESHOLD, out=reward)
        reward.add_(torch.gt(obs[:, UP], UP_THRESHOLD, out=self._upright), alpha=UP_WEIGHT)
        self._add_progress(reward)
        reward.sub_(self._costs.total(), alpha=rules.energy_cost)
        torch.lt(obs[:, 0], rules.fallen, out=terminated)
        reward.masked_fill_(terminated, rules.death)

    def _add_progress(self, reward: Tensor) -> None:
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
