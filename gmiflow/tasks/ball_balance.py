"""BallBalance: a tray on three legs catches a falling ball and brings it to rest in the middle.

The action moves the target angles of the three lower legs, by up to 0.2 rad per control step. The
servo (stiffness 4000 N m/rad; damping 100 N m s/rad as joint damping, which the integrator takes
implicitly) is in the body's file.

Tray sensors, twelve numbers of the last substep: the force between plate and hub at leg 0 (3), then
the torques of the same interaction about legs 0, 1 and 2 (3 x 3), in the plate's frame. Two torques
differ by the force times the distance between the legs, so they tell where the ball presses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import BALL_BALANCE
from gmiflow.tasks.goals import HELD_M, HELD_OVER_S
from gmiflow.tasks.operands import FirstRows, Kept, number
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["BallBalance"]

JOINT_POSITIONS, JOINT_VELOCITIES, BALL_POSITION, BALL_VELOCITY, TRAY = (
    slice(0, 3),
    slice(3, 6),
    slice(6, 9),
    slice(9, 12),
    slice(12, 24),
)
TRAY_SCALE, ONE = number(1.0 / 20.0), number(1.0)
TARGET_STEP_RAD = 0.2
GOAL_M = (0.0, 0.0, 0.7)
DROPPED_M = number(0.15)
HELD = number(HELD_M)

START_DISTANCE_M = (0.001, 0.5)
START_HEIGHT_M = (1.0, 2.0)
START_OUTWARD_SPEED = number(-5.0)
START_VERTICAL_SPEED = -5.0
TURN = number(2.0 * math.pi)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Views:
    """Parts of a state, and the parts of its observation in the same order; of the ball's also by columns."""

    copied: tuple[tuple[Tensor, Tensor], ...]
    tray: Tensor
    position: Tensor
    position_columns: tuple[Tensor, ...]
    velocity_columns: tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Starts:
    """What `start` writes for k environments, all by rows: the ball's state and the numbers it is made of."""

    horizontal: Tensor
    height: Tensor
    horizontal_velocity: Tensor
    direction: Tensor
    cosine: Tensor
    sine: Tensor
    amount: Tensor


class BallBalance(Task):
    """24 observations, three target rates; the layout is `gmiflow.tasks.catalog.BALL_BALANCE.observation`."""

    info = BALL_BALANCE
    derived = ("sensordata",)
    direct = False
    taped = True
    start_numbers = 4

    def prepare(self, context: StageContext) -> None:
        """Find the joints in the model and make the servo targets."""
        device, model = context.device, self.engine.model
        lower = [model.joint(f"lower_{leg}") for leg in range(3)]
        position, velocity = int(lower[0].qposadr[0]), int(lower[0].dofadr[0])
        # Upper and lower legs alternate, so the three actuated joints are every second number.
        self._angles = slice(position, position + 6, 2)
        self._rates = slice(velocity, velocity + 6, 2)
        ball = model.joint("ball")
        self._ball_position = slice(int(ball.qposadr[0]), int(ball.qposadr[0]) + 3)
        self._ball_velocity = slice(int(ball.dofadr[0]), int(ball.dofadr[0]) + 3)
        self._target_low, self._target_high = float(lower[0].range[0]), float(lower[0].range[1])
        self._goal = torch.tensor(GOAL_M, device=device)
        self._offset, self._lengths = by_column(context.num_env, 3, device), by_column(context.num_env, 2, device)
        self._offset_columns = self._offset.unbind(1)
        self._distance, self._speed = self._lengths.unbind(1)
        self._place, self._way = by_column(context.num_env, 3, device), by_column(context.num_env, 3, device)
        self._forgetting = self.info.control_dt / HELD_OVER_S
        self._views = Kept(self._cut)
        self._prepare_starts(context)
        self._targets = self.remember("targets", [0.0] * 3)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states and their observations; what differs between episodes is written by `start`."""
        device, num_env, model = context.device, context.num_env, self.engine.model
        qpos = torch.tensor(model.qpos0, dtype=torch.float32, device=device).repeat(num_env, 1)
        qvel = torch.zeros(num_env, model.nv, device=device)
        qvel[:, self._ball_velocity][:, 2] = START_VERTICAL_SPEED
        self._nearest, self._lowest = (
            torch.tensor(low, device=device) for low, _ in (START_DISTANCE_M, START_HEIGHT_M)
        )
        # By rows of `FirstRows`: cosine, sine and an amount.
        self._start_state = FirstRows(qpos, qvel, by_column(num_env, 3, device))
        self._starts = Kept(self._cut_starts)
        self._ball_observed = Kept(self._cut_ball)
        super().observe_start(qpos, qvel, self.start_columns)

    def apply(self, action: Tensor) -> None:
        """Move the servo targets by 0.2 rad times the action, within the joints' limits."""
        self._targets.add_(action, alpha=TARGET_STEP_RAD).clamp_(self._target_low, self._target_high)
        self.engine.ctrl.copy_(self._targets)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write joints, ball and tray sensors."""
        views = self._views(state, out)
        for part, observed in views.copied:
            observed.copy_(part)
        torch.mul(state.derived["sensordata"], TRAY_SCALE, out=views.tray)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """1 / (1 + distance to the goal) x 1 / (1 + speed); the end when the ball is below 0.15 m."""
        views = self._views(state, obs)
        torch.sub(views.position, self._goal, out=self._offset)
        # Euclidean lengths by hypot twice: the same bits whatever the number of environments is.
        for (x, y, z), length in ((self._offset_columns, self._distance), (views.velocity_columns, self._speed)):
            torch.hypot(x, y, out=length).hypot_(z)
        self._lengths.add_(ONE)
        torch.mul(self._distance, self._speed, out=reward).reciprocal_()
        torch.lt(views.position_columns[2], DROPPED_M, out=terminated)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """Whether the ball is held, and its distance from the goal, m (`judge` keeps lengths with 1 added).

        Its place is the running mean of its position; the mean lags behind a ball that drifts by the way that it
        makes in `HELD_OVER_S`.
        """
        torch.sub(self._views(state, obs).position, self._place, out=self._way)
        self._place.add_(self._way, alpha=self._forgetting)
        x, y, z = self._way.unbind(1)
        torch.hypot(x, y, out=out[0]).hypot_(z)
        torch.le(out[0], HELD, out=out[0])
        torch.sub(self._distance, ONE, out=out[1])

    def _cut(self, state: Snapshot, out: Tensor) -> _Views:
        qpos, qvel = state.qpos, state.qvel
        joints = ((qpos[:, self._angles], out[:, JOINT_POSITIONS]), (qvel[:, self._rates], out[:, JOINT_VELOCITIES]))
        return _Views(
            copied=(*joints, *self._cut_ball(qpos, qvel, out)),
            tray=out[:, TRAY],
            position=out[:, BALL_POSITION],
            position_columns=out[:, BALL_POSITION].unbind(1),
            velocity_columns=out[:, BALL_VELOCITY].unbind(1),
        )

    def _cut_ball(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """The ball's position and velocity, each with its place in the observation."""
        return (
            (qpos[:, self._ball_position], out[:, BALL_POSITION]),
            (qvel[:, self._ball_velocity], out[:, BALL_VELOCITY]),
        )

    def _cut_starts(self, qpos: Tensor, qvel: Tensor, scratch: Tensor) -> _Starts:
        position, velocity, rows = qpos[:, self._ball_position].T, qvel[:, self._ball_velocity].T, scratch.T
        return _Starts(
            horizontal=position[:2],
            height=position[2],
            horizontal_velocity=velocity[:2],
            direction=rows[:2],
            cosine=rows[0],
            sine=rows[1],
            amount=rows[2],
        )

    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Tray at rest; ball in the air, flying inwards and down.

        Distance from the axis uniform in 0.001..0.5 m in a uniform direction, height uniform in
        1..2 m, vertical velocity -5 m/s, inward speed uniform in 0..5 m/s times the distance's
        fraction of its range.
        """
        turn, fraction, height, speed = noise.unbind(1)
        qpos, qvel, scratch = self._start_state(noise.shape[0])
        ball = self._starts(qpos, qvel, scratch)
        torch.mul(turn, TURN, out=ball.cosine)
        torch.sin(ball.cosine, out=ball.sine)
        ball.cosine.cos_()
        torch.add(self._nearest, fraction, alpha=START_DISTANCE_M[1] - START_DISTANCE_M[0], out=ball.amount)
        torch.mul(ball.direction, ball.amount, out=ball.horizontal)
        torch.add(self._lowest, height, alpha=START_HEIGHT_M[1] - START_HEIGHT_M[0], out=ball.height)
        torch.mul(fraction, speed, out=ball.amount).mul_(START_OUTWARD_SPEED)
        torch.mul(ball.direction, ball.amount, out=ball.horizontal_velocity)
        return qpos, qvel

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the ball differs from one start to another."""
        for part, observed in self._ball_observed(qpos, qvel, out):
            observed.copy_(part)
