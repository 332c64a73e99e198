"""Anymal: a quadruped of twelve drives learns to move as it is told: forwards, sideways and turning.

Targets of the position servos (85 N m/rad, 2 N m s/rad, at most 80 N m; in the body's file) are the
default angles plus half the action. The commanded velocities are drawn when an episode starts and hold until it ends.

Derived fields: torques and contact forces are those of the last substep, which is when they acted;
positions and velocities are current. The published drives turn at 20 rad/s at most; MuJoCo has no such limit, so
a leg that swings freely can pass it (30 rad/s with random actions).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import ANYMAL
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.operands import Kept
from gmiflow.tasks.rotation import MATRIX, RotationEntries
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["Anymal"]

JOINTS = 12
VELOCITY, SPIN, GRAVITY, COMMANDS = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 12)
JOINT_POSITIONS, JOINT_VELOCITIES, ACTIONS = slice(12, 24), slice(24, 36), slice(36, 48)
VELOCITY_SCALE, SPIN_SCALE, JOINT_VELOCITY_SCALE = 2.0, 0.25, 0.05

# The rotation matrix and, behind it, the third row of its inverse turned around: where gravity points in the base.
ENTRIES = (*MATRIX, (2, 0, -1), (2, 1, -1), (2, 2, -1))

START_HEIGHT_M = 0.62
COMMAND_LIMITS = (2.0, 1.0, 1.0)
"""Largest velocities asked for: forwards and to the left in m/s, turning left in rad/s."""
START_ANGLE_FACTORS, START_RATE = (0.5, 1.5), 0.1

DEFAULT_ANGLES = (0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, 0.4, -0.8, -0.03, -0.4, 0.8)
"""HAA, HFE and KFE of the legs left front, left hind, right front and right hind, rad."""
ACTION_RAD = 0.5

TRACKING_WIDTH, TURNING_WEIGHT, TORQUE_COST = 0.25, 0.5, 2.5e-5
CONTACT_N = 1.0


def _quaternion(qpos: Tensor) -> Tensor:
    return qpos[:, 3:7]


class Anymal(Task):
    """48 observations, 12 joint targets; the layout is `gmiflow.tasks.catalog.ANYMAL.observation`."""

    info = ANYMAL
    derived = ("sensordata", "actuator_force")
    direct = False
    start_numbers = 3 + 2 * JOINTS

    def prepare(self, context: StageContext) -> None:
        """Make constants, buffers and the memory of the commands."""
        device, num_env = context.device, context.num_env
        self._default = torch.tensor(DEFAULT_ANGLES, device=device)
        self._rotation, self._quaternion_of = RotationEntries(ENTRIES, num_env, device), Kept(_quaternion)
        self._command_scale = torch.tensor([VELOCITY_SCALE, VELOCITY_SCALE, SPIN_SCALE], device=device)
        self._torque_costs = ColumnSum(num_env, JOINTS, device)
        self._errors = by_column(num_env, 3, device)
        # An observed error e times its scale s, squared and times this, is e^2 / 0.25.
        self._error_weights = 1.0 / (TRACKING_WIDTH * self._command_scale**2)
        self._tracking = by_column(num_env, 2, device)
        self._largest_force = torch.zeros(num_env, device=device)
        self._prepare_starts(context)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states, commands and observations; what differs between episodes is written by `start`."""
        device, num_env = context.device, context.num_env
        base = torch.tensor([0.0, 0.0, START_HEIGHT_M, 1.0, 0.0, 0.0, 0.0], device=device)
        self._start_qpos = torch.cat((base, self._default)).repeat(num_env, 1)
        self._start_qvel = torch.zeros(num_env, 6 + JOINTS, device=device)
        # Uniform in low .. low + span of the noise's columns: commands, joint angles, joint velocities.
        least, most = START_ANGLE_FACTORS
        limits = torch.tensor(COMMAND_LIMITS, device=device)
        self._lowest_command, self._command_span = -limits, 2.0 * limits
        self._lowest_angle, self._angle_span = self._default * least, self._default * (most - least)
        self._lowest_rate = torch.full_like(self._default, -START_RATE)
        self._commands, self._start_commands = self.remember_drawn("commands", 3)
        super().observe_start(self._start_qpos, self._start_qvel, self.start_columns)

    def apply(self, action: Tensor) -> None:
        """Set the servo targets: default angles + 0.5 rad times the action."""
        torch.add(self._default, action, alpha=ACTION_RAD, out=self.engine.ctrl)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write base, commands, joints and action."""
        qpos, qvel = state.qpos, state.qvel
        entries = self._rotation(self._quaternion_of(qpos))
        # R^T v: the velocity in the base's frame.
        velocity = out[:, VELOCITY].T
        torch.mul(entries[0:3], qvel[:, 0], out=velocity)
        velocity.addcmul_(entries[3:6], qvel[:, 1]).addcmul_(entries[6:9], qvel[:, 2]).mul_(VELOCITY_SCALE)
        torch.mul(qvel[:, 3:6], SPIN_SCALE, out=out[:, SPIN])
        out[:, GRAVITY] = entries[9:12].T
        torch.mul(state.memory["commands"], self._command_scale, out=out[:, COMMANDS])
        self._observe_joints(qpos, qvel, out)
        out[:, ACTIONS] = state.action

    def _observe_joints(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        torch.sub(qpos[:, 7:], self._default, out=out[:, JOINT_POSITIONS])
        torch.mul(qvel[:, 6:], JOINT_VELOCITY_SCALE, out=out[:, JOINT_VELOCITIES])

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Reward for moving as commanded, never below 0; the end when base or a thigh touches with more than 1 N.

        dt (exp(-|e_xy|^2 / 0.25) + 0.5 exp(-e_yaw^2 / 0.25) - 2.5e-5 sum torque^2) with the errors e_xy, m/s, and
        e_yaw, rad/s, of the commanded velocities in the base's frame.
        """
        errors, tracking = self._errors, self._tracking
        torch.sub(obs[:, COMMANDS][:, :2], obs[:, VELOCITY][:, :2], out=errors[:, :2])
        torch.sub(obs[:, COMMANDS][:, 2], obs[:, SPIN][:, 2], out=errors[:, 2])
        errors.mul_(errors).mul_(self._error_weights)
        torch.add(errors[:, 0], errors[:, 1], out=tracking[:, 0])
        tracking[:, 1] = errors[:, 2]
        tracking.neg_().exp_()
        torch.mul(state.derived["actuator_force"], state.derived["actuator_force"], out=self._torque_costs.terms)
        torch.add(tracking[:, 0], tracking[:, 1], alpha=TURNING_WEIGHT, out=reward)
        reward.sub_(self._torque_costs.total(), alpha=TORQUE_COST).mul_(self.info.control_dt).clamp_(min=0.0)
        torch.amax(state.derived["sensordata"], dim=1, out=self._largest_force)
        torch.gt(self._largest_force, CONTACT_N, out=terminated)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """Length of the error of the horizontal velocity, m/s, and size of the turning rate's, rad/s."""
        commands, velocity, spin = obs[:, COMMANDS], obs[:, VELOCITY], obs[:, SPIN]
        torch.hypot(commands[:, 0] - velocity[:, 0], commands[:, 1] - velocity[:, 1], out=out[0]).div_(VELOCITY_SCALE)
        torch.sub(commands[:, 2], spin[:, 2], out=out[1]).abs_().div_(SPIN_SCALE)

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Base level at rest at 0.62 m; commands drawn.

        Joint angles: default times 0.5..1.5; joint velocities: +-0.1 rad/s; commands: +-2 m/s forwards, +-1 m/s to
        the left, +-1 rad/s turning; all uniform.
        """
        count = noise.shape[0]
        qpos, qvel, commands = self._start_qpos[:count], self._start_qvel[:count], self._start_commands[:count]
        angles, rates = noise[:, 3 : 3 + JOINTS], noise[:, 3 + JOINTS :]
        torch.addcmul(self._lowest_command, noise[:, :3], self._command_span, out=commands)
        torch.addcmul(self._lowest_angle, angles, self._angle_span, out=qpos[:, 7:])
        torch.add(self._lowest_rate, rates, alpha=2.0 * START_RATE, out=qvel[:, 6:])
        return qpos, qvel

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only joints and commands differ from one start to another."""
        torch.mul(self._start_commands[: out.shape[0]], self._command_scale, out=out[:, COMMANDS])
        self._observe_joints(qpos, qvel, out)
