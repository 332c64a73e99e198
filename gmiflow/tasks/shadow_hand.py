"""ShadowHand: a hand of 24 joints learns to turn a cube in its palm to one orientation after the other.

The action places the targets of the 20 driven joints between their limits. Whenever the cube is turned to within
0.1 rad of the goal, the goal is drawn anew; the observation then already shows the new one. The place that the cube is
to keep is 0.04 m below where it starts.

Derived fields are those of the last substep: the fingertips' states, the forces and torques there, and the joints'
forces (what servo, damper, limits and contacts exert along the joint). At the start of an episode nothing is measured
yet: the fingertips are shown where they are in the middle of all first poses.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import SHADOW_HAND
from gmiflow.tasks.columns import ColumnSum
from gmiflow.tasks.operands import FirstRows, Kept
from gmiflow.tasks.quaternion import RandomTurn, TurnBetween
from gmiflow.tasks.rotation import MATRIX, RotationEntries
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["ShadowHand"]

JOINTS, FINGERTIPS = 24, 65
PLACE, ORIENTATION = slice(24, 27), slice(27, 31)
VELOCITY, SPIN = slice(24, 27), slice(27, 30)
"""The cube's parts of qpos and qvel; its spin is in its own frame there."""

JOINT_POSITIONS, JOINT_VELOCITIES, JOINT_FORCES = slice(0, 24), slice(24, 48), slice(48, 72)
CUBE_PLACE, CUBE_ORIENTATION, CUBE_VELOCITY, CUBE_SPIN = slice(72, 75), slice(75, 79), slice(79, 82), slice(82, 85)
GOAL_PLACE, GOAL_ORIENTATION, TURN, SENSORS, ACTIONS = (
    slice(85, 88),
    slice(88, 92),
    slice(92, 96),
    slice(96, 191),
    slice(191, 211),
)
VELOCITY_SCALE, FORCE_SCALE = 0.2, 10.0

GOAL_BELOW_START_M = 0.04
START_JOINT_FRACTION, START_PLACE_NOISE_M = 0.2, 0.01
DISTANCE_COST, TURN_OFFSET_RAD, ACTION_COST = 10.0, 0.1, 0.0002
REACHED_RAD, REACHED_BONUS = 0.1, 250.0
DROPPED_M = 0.24


class ShadowHand(Task):
    """211 observations, 20 joint targets; the layout is `gmiflow.tasks.catalog.SHADOW_HAND.observation`."""

    info = SHADOW_HAND
    derived = ("sensordata", "qfrc_actuator", "qfrc_passive", "qfrc_constraint")
    direct = False
    start_numbers = JOINTS + 7

    def prepare(self, context: StageContext) -> None:
        """Read limits from the model; make the buffers and the memory of the goals."""
        device, num_env, model = context.device, context.num_env, self.engine.model
        limits = torch.tensor(model.jnt_range[:JOINTS], dtype=torch.float32, device=device)
        self._lower, self._upper = limits.unbind(1)
        # Scaled position = (2 q - upper - lower) / (upper - lower).
        self._joint_scale = 2.0 / (self._upper - self._lower)
        self._joint_offset = -(self._upper + self._lower) / (self._upper - self._lower)
        ranges = torch.tensor(model.actuator_ctrlrange, dtype=torch.float32, device=device)
        self._middle, self._half = ranges.mean(1), (ranges[:, 1] - ranges[:, 0]) / 2.0
        self._sensor_scale = torch.full((SENSORS.stop - SENSORS.start,), FORCE_SCALE, device=device)
        self._sensor_scale[:FINGERTIPS] = 1.0
        self._rotation, self._orientation_of = RotationEntries(MATRIX, num_env, device), Kept(_orientation)
        self._turn_between, self._random_turn = TurnBetween(num_env, device), RandomTurn(num_env, device)
        place = torch.tensor(model.body("cube").pos, dtype=torch.float32, device=device)
        self._goal_place = place - torch.tensor([0.0, 0.0, GOAL_BELOW_START_M], device=device)
        self._offset, self._action_costs = (
            by_column(num_env, 3, device),
            ColumnSum(num_env, ACTIONS.stop - ACTIONS.start, device),
        )
        self._distance, self._turned = torch.zeros(2, num_env, device=device).unbind(0)
        self._reached = torch.zeros(num_env, dtype=torch.bool, device=device)
        self._goals_reached = torch.zeros(num_env, dtype=torch.int64, device=device)
        self._goal, self._start_goal = self.remember_drawn("goal", 4)
        self._new_goal = torch.zeros(4, num_env, device=device)
        self._prepare_starts(place)

    def _prepare_starts(self, place: Tensor) -> None:
        """First states; what differs between episodes is written by `start`."""
        model, num_env = self.engine.model, self._context.num_env
        self._lowest_angle = START_JOINT_FRACTION * self._lower
        self._angle_span = START_JOINT_FRACTION * (self._upper - self._lower)
        # A coupled joint starts at the angle of its partner.
        self._coupled = [
            (int(follower), int(leader)) for follower, leader in zip(model.eq_obj1id, model.eq_obj2id, strict=True)
        ]
        self._lowest_place = place - START_PLACE_NOISE_M
        qpos = torch.tensor(model.qpos0, dtype=torch.float32, device=place.device).repeat(num_env, 1)
        qvel = torch.zeros(num_env, model.nv, device=place.device)
        self._start_state = FirstRows(qpos, qvel, self._start_goal)
        data = mujoco.MjData(model)
        data.qpos[:JOINTS] = (self._lowest_angle + 0.5 * self._angle_span).cpu().numpy()
        mujoco.mj_forward(model, data)
        measured = torch.tensor(data.sensordata, dtype=torch.float32, device=place.device)
        self._no_derived["sensordata"][:, :FINGERTIPS] = measured[:FINGERTIPS]

    def apply(self, action: Tensor) -> None:
        """Set the servo targets: -1 is a joint's lower, 1 its upper limit."""
        torch.addcmul(self._middle, action, self._half, out=self.engine.ctrl)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write joints, cube, goal, fingertips and action."""
        qpos, qvel, derived = state.qpos, state.qvel, state.derived
        torch.addcmul(self._joint_offset, qpos[:, :JOINTS], self._joint_scale, out=out[:, JOINT_POSITIONS])
        torch.mul(qvel[:, :JOINTS], VELOCITY_SCALE, out=out[:, JOINT_VELOCITIES])
        force = out[:, JOINT_FORCES]
        torch.add(derived["qfrc_actuator"][:, :JOINTS], derived["qfrc_passive"][:, :JOINTS], out=force)
        force.add_(derived["qfrc_constraint"][:, :JOINTS]).mul_(FORCE_SCALE)
        out[:, CUBE_PLACE], out[:, CUBE_ORIENTATION] = qpos[:, PLACE], qpos[:, ORIENTATION]
        out[:, CUBE_VELOCITY] = qvel[:, VELOCITY]
        # R w: the spin in the world's frame.
        entries, spin = self._rotation(self._orientation_of(qpos)), out[:, CUBE_SPIN].T
        torch.mul(entries[0::3], qvel[:, SPIN.start], out=spin)
        spin.addcmul_(entries[1::3], qvel[:, SPIN.start + 1]).addcmul_(entries[2::3], qvel[:, SPIN.start + 2])
        spin.mul_(VELOCITY_SCALE)
        out[:, GOAL_PLACE] = self._goal_place
        self._observe_goal(state.memory["goal"], out)
        torch.mul(derived["sensordata"], self._sensor_scale, out=out[:, SENSORS])
        out[:, ACTIONS] = state.action

    def _observe_goal(self, goal: Tensor, out: Tensor) -> None:
        """Write the goal's orientation and the turn from it to the cube, whose orientation ``out`` has."""
        out[:, GOAL_ORIENTATION] = goal
        self._turn_between(out[:, CUBE_ORIENTATION].T, goal.T, out[:, TURN].T)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """-10 d + 1 / (turn + 0.1) - 0.0002 sum a^2, and 250 for a goal reached; the end when the cube is dropped.

        d is the cube's distance from its place and turn the angle, rad, between the cube and the goal. Goals that are
        reached (turn <= 0.1) are replaced, also in ``obs``.
        """
        distance, turned = self._distance, self._turned
        torch.sub(obs[:, CUBE_PLACE], self._goal_place, out=self._offset)
        # Euclidean lengths by hypot twice: the same bits whatever the number of environments is.
        for vector, length in ((self._offset, distance), (obs[:, TURN][:, 1:], turned)):
            torch.hypot(vector[:, 0], vector[:, 1], out=length).hypot_(vector[:, 2])
        turned.clamp_(max=1.0).asin_().mul_(2.0)
        torch.le(turned, REACHED_RAD, out=self._reached)
        torch.ge(distance, DROPPED_M, out=terminated)
        torch.add(turned, TURN_OFFSET_RAD, out=reward).reciprocal_().sub_(distance, alpha=DISTANCE_COST)
        reward.add_(self._reached, alpha=REACHED_BONUS)
        torch.mul(state.action, state.action, out=self._action_costs.terms)
        reward.sub_(self._action_costs.total(), alpha=ACTION_COST)
        self._goals_reached.add_(self._reached)
        self._replace_goals(obs)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """1 where the step has reached a goal."""
        out[0] = self._reached

    def _replace_goals(self, obs: Tensor) -> None:
        """Draw new goals where they are reached; every environment draws, so that no shape depends on data."""
        noise = self._context.noise.uniform("goal", self._clock, 2)
        self._random_turn(noise.T, self._new_goal)
        torch.where(self._reached, self._new_goal, self._goal.T, out=self._goal.T)
        self._observe_goal(self._goal, obs)

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Everything at rest, the cube in the air over the palm; cube and goal turned anyhow.

        Joints: uniform in 0.2 of lower to 0.2 of upper limit, coupled ones alike; cube: +-0.01 m in each direction.
        """
        qpos, qvel, goal = self._start_state(noise.shape[0])
        torch.addcmul(self._lowest_angle, noise[:, :JOINTS], self._angle_span, out=qpos[:, :JOINTS])
        for follower, leader in self._coupled:
            qpos[:, follower] = qpos[:, leader]
        rest = noise[:, JOINTS:]
        torch.add(self._lowest_place, rest[:, :3], alpha=2.0 * START_PLACE_NOISE_M, out=qpos[:, PLACE])
        self._random_turn(rest[:, 3:5].T, qpos[:, ORIENTATION].T)
        self._random_turn(rest[:, 5:7].T, goal.T)
        return qpos, qvel

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Also count reached goals anew."""
        super().load_state_dict(state)
        self._goals_reached.zero_()

    def diagnostics(self) -> dict[str, Any]:
        """Also the number of goals reached."""
        return {**super().diagnostics(), "goals_reached": int(self._goals_reached.sum())}


def _orientation(qpos: Tensor) -> Tensor:
    """The cube's part of the positions."""
    return qpos[:, ORIENTATION]
