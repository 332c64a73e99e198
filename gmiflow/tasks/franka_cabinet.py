"""FrankaCabinet: a Panda arm learns to take a drawer's handle and to pull the drawer open.

The action moves the targets of the nine servos (in the body's file): the arm's at up to 7.5 rad/s, the fingers' at up
to 0.75 m/s, within the joints' limits. Targets start where the joints are.

The gripper is the point between the fingers' pads, 0.1034 m before the hand's flange; the fingers are the places of
their pads. The observation and the reward work them out from the joint positions (`HingeChain`), so they are current
and the physics' own derived fields are not needed. The gripper's forward axis points out of the hand, its up axis to
the left finger; both fit the handle when forward is -x, into the cabinet, and up is the world's.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import FRANKA_CABINET
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.goals import OPENED_M
from gmiflow.tasks.kinematics import HingeChain
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["FrankaCabinet"]

ARM, ROBOT = 7, 9
LEFT_FINGER, RIGHT_FINGER, DRAWER = 7, 8, 9
JOINT_POSITIONS, JOINT_VELOCITIES, TO_HANDLE, DRAWER_POSITION, DRAWER_VELOCITY = (
    slice(0, 9),
    slice(9, 18),
    slice(18, 21),
    21,
    22,
)
JOINT_VELOCITY_SCALE = 0.1

TARGET_SPEEDS = (7.5,) * ARM + (0.75,) * 2
"""What an action of 1 moves the targets by, rad/s and m/s."""
DEFAULT_POSITIONS = (1.157, -1.066, -0.155, -2.239, -1.841, 1.003, 0.469, 0.035, 0.035)
START_NOISE = 0.125

DISTANCE_WEIGHT, NEAR_M = 2.0, 0.02
ALIGNMENT_WEIGHT, AROUND_WEIGHT, OPENING_WEIGHT, FINGER_WEIGHT, ACTION_COST = 0.5, 0.25, 7.5, 5.0, 0.01
AROUND, FINGER_REACH_M = 0.5, 0.04
BEGUN_M, BEGUN_BONUS, WIDE_M, OPEN_M = 0.01, 0.5, 0.2, 0.39


class FrankaCabinet(Task):
    """23 observations, nine target rates; the layout is `gmiflow.tasks.catalog.FRANKA_CABINET.observation`."""

    info = FRANKA_CABINET
    direct = False
    start_numbers = ROBOT

    def prepare(self, context: StageContext) -> None:
        """Read limits and places from the model; make the buffers and the servo targets."""
        device, num_env, model = context.device, context.num_env, self.engine.model
        limits = torch.tensor(model.jnt_range[:ROBOT], dtype=torch.float32, device=device)
        self._lower, self._upper = limits.unbind(1)
        # Scaled position = (2 q - upper - lower) / (upper - lower).
        self._joint_scale = 2.0 / (self._upper - self._lower)
        self._joint_offset = -(self._upper + self._lower) / (self._upper - self._lower)
        self._target_steps = torch.tensor(TARGET_SPEEDS, device=device) * self.info.control_dt
        names = [f"joint{number}" for number in range(1, ARM + 1)]
        self._chain = HingeChain(model, names, "grip", num_env, device)
        handle = model.body("drawer").pos + model.site("handle").pos
        self._handle = torch.tensor(handle, dtype=torch.float32, device=device).unsqueeze(1)
        self._handle_height = float(handle[2])
        # By rows: the axes' alignments; the heights of left finger over handle and of handle over right finger.
        self._alignments, self._aligned = torch.zeros(2, num_env, device=device), torch.zeros(2, num_env, device=device)
        self._heights, self._straddles = torch.zeros(2, num_env, device=device), torch.zeros(num_env, device=device)
        self._amount, self._factor = torch.zeros(num_env, device=device), torch.zeros(num_env, device=device)
        self._flag = torch.zeros(num_env, dtype=torch.bool, device=device)
        self._action_costs = ColumnSum(num_env, ROBOT, device)
        self._gaps = by_column(num_env, 3, device)
        self._prepare_starts(context)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states; what differs between episodes is written by `start`."""
        device, num_env = context.device, context.num_env
        default = torch.tensor(DEFAULT_POSITIONS, device=device)
        self._start_qpos = torch.cat((default, torch.zeros(1, device=device))).repeat(num_env, 1)
        self._start_qvel = torch.zeros(num_env, ROBOT + 1, device=device)
        self._lowest_start = default - START_NOISE
        self._targets, self._start_targets = self.remember_drawn("targets", ROBOT)

    def apply(self, action: Tensor) -> None:
        """Move the servo targets by dt times their speeds times the action, within the joints' limits."""
        self._targets.addcmul_(action, self._target_steps)
        torch.clamp(self._targets, self._lower, self._upper, out=self._targets)
        self.engine.ctrl.copy_(self._targets)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write joints, gripper to handle, and drawer; remember how hand and fingers lie to the handle."""
        qpos, qvel = state.qpos, state.qvel
        torch.addcmul(self._joint_offset, qpos[:, :ROBOT], self._joint_scale, out=out[:, JOINT_POSITIONS])
        torch.mul(qvel[:, :ROBOT], JOINT_VELOCITY_SCALE, out=out[:, JOINT_VELOCITIES])
        position, (_, up, forward) = self._chain(qpos)
        drawer = qpos[:, DRAWER]
        to_handle = out[:, TO_HANDLE].T
        torch.sub(self._handle, position, out=to_handle)
        to_handle[0].add_(drawer)
        out[:, DRAWER_POSITION] = drawer
        out[:, DRAWER_VELOCITY] = qvel[:, DRAWER]
        count = qpos.shape[0]
        alignments, heights = self._alignments[:, :count], self._heights[:, :count]
        torch.neg(forward[0], out=alignments[0])
        alignments[1] = up[2]
        # The fingers are moved along the up axis; heights count from the handle away from the other finger.
        torch.mul(qpos[:, LEFT_FINGER : RIGHT_FINGER + 1].T, up[2], out=heights)
        heights[0].sub_(to_handle[2])
        heights[1].add_(to_handle[2])

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """2 D + 0.5 R + 0.25 H + 7.5 (q H + q) + 5 F - 0.01 sum a^2 + bonuses; the end when the drawer is open.

        D = 1 / (1 + d^2)^2 with the gripper's distance d, twice that within 0.02 m; R = (r1 |r1| + r2 |r2|) / 2 with
        the alignments r of forward and up axis; H = 0.5 while the left finger is above and the right finger below the
        handle, and then F is how much nearer than 0.04 m in height they are, summed; q is the drawer's position.
        Bonuses: 0.5 beyond q = 0.01, H beyond 0.2, 2 H beyond 0.39.
        """
        self._reward_reaching(obs, reward)
        heights, straddles, opening, amount = self._heights, self._straddles, obs[:, DRAWER_POSITION], self._amount
        # straddles = 1 or 0.
        torch.minimum(heights[0], heights[1], out=straddles).sign_().clamp_(min=0.0)
        torch.add(heights[0], heights[1], out=amount).sub_(2.0 * FINGER_REACH_M).mul_(straddles)
        reward.sub_(amount, alpha=FINGER_WEIGHT)
        reward.add_(straddles, alpha=AROUND * AROUND_WEIGHT).add_(opening, alpha=OPENING_WEIGHT)
        reward.addcmul_(straddles, opening, value=AROUND * OPENING_WEIGHT)
        reward.add_(torch.gt(opening, BEGUN_M, out=self._flag), alpha=BEGUN_BONUS)
        torch.gt(opening, OPEN_M, out=terminated)
        for beyond, bonus in ((torch.gt(opening, WIDE_M, out=self._flag), AROUND), (terminated, 2.0 * AROUND)):
            reward.addcmul_(straddles, beyond, value=bonus)
        torch.mul(state.action, state.action, out=self._action_costs.terms)
        reward.sub_(self._action_costs.total(), alpha=ACTION_COST)

    def _reward_reaching(self, obs: Tensor, reward: Tensor) -> None:
        """Write the rewards for the gripper's distance and alignment."""
        gaps, amount, factor = self._gaps, self._amount, self._factor
        torch.mul(obs[:, TO_HANDLE], obs[:, TO_HANDLE], out=gaps)
        torch.add(gaps[:, 0], gaps[:, 1], out=amount).add_(gaps[:, 2])
        # factor = weight x (2 if within 0.02 m else 1).
        torch.le(amount, NEAR_M**2, out=self._flag)
        factor.copy_(self._flag).add_(1.0).mul_(DISTANCE_WEIGHT)
        amount.add_(1.0)
        torch.mul(amount, amount, out=reward).reciprocal_().mul_(factor)
        torch.abs(self._alignments, out=self._aligned).mul_(self._alignments)
        torch.add(self._aligned[0], self._aligned[1], out=amount)
        reward.add_(amount, alpha=0.5 * ALIGNMENT_WEIGHT)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """The drawer's position, m, and 1 where that counts as open."""
        opening = obs[:, DRAWER_POSITION]
        out[0], out[1] = opening, opening >= OPENED_M

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Everything at rest, the drawer closed; arm and fingers at their default +-0.125, kept inside the limits."""
        count = noise.shape[0]
        qpos, robot = self._start_qpos[:count], self._start_targets[:count]
        torch.add(self._lowest_start, noise, alpha=2.0 * START_NOISE, out=robot)
        torch.clamp(robot, self._lower, self._upper, out=robot)
        qpos[:, :ROBOT] = robot
        return qpos, self._start_qvel[:count]
