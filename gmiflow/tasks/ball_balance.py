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

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import BALL_BALANCE
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["BallBalance"]

JOINT_POSITIONS, JOINT_VELOCITIES, BALL_POSITION, BALL_VELOCITY, TRAY = (
    slice(0, 3),
    slice(3, 6),
    slice(6, 9),
    slice(9, 12),
    slice(12, 24),
)
TRAY_SCALE = 1.0 / 20.0
TARGET_STEP_RAD = 0.2
GOAL_M = (0.0, 0.0, 0.7)
DROPPED_M = 0.15

START_DISTANCE_M = (0.001, 0.5)
START_HEIGHT_M = (1.0, 2.0)
START_INWARD_SPEED = 5.0
START_VERTICAL_SPEED = -5.0


class BallBalance(Task):
    """24 observations, three target rates; the layout is `gmiflow.tasks.catalog.BALL_BALANCE.observation`."""

    info = BALL_BALANCE
    derived = ("sensordata",)
    direct = False

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
        self._prepare_starts(context)
        self._targets = self.remember("targets", [0.0] * 3)

    def _prepare_starts(self, context: StageContext) -> None:
        """First states and their observations; what differs between episodes is written by `start`."""
        device, num_env, model = context.device, context.num_env, self.engine.model
        self._start_qpos = torch.tensor(model.qpos0, dtype=torch.float32, device=device).repeat(num_env, 1)
        self._start_qvel = torch.zeros(num_env, model.nv, device=device)
        self._start_qvel[:, self._ball_velocity][:, 2] = START_VERTICAL_SPEED
        self._nearest, self._lowest = (
            torch.tensor(low, device=device) for low, _ in (START_DISTANCE_M, START_HEIGHT_M)
        )
        self._direction, self._amount = torch.zeros(2, num_env, device=device), torch.zeros(num_env, device=device)
        super().observe_start(self._start_qpos, self._start_qvel, self.start_columns)

    def apply(self, action: Tensor) -> None:
        """Move the servo targets by 0.2 rad times the action, within the joints' limits."""
        self._targets.add_(action, alpha=TARGET_STEP_RAD).clamp_(self._target_low, self._target_high)
        self.engine.ctrl.copy_(self._targets)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write joints, ball and tray sensors."""
        out[:, JOINT_POSITIONS] = state.qpos[:, self._angles]
        out[:, JOINT_VELOCITIES] = state.qvel[:, self._rates]
        out[:, BALL_POSITION] = state.qpos[:, self._ball_position]
        out[:, BALL_VELOCITY] = state.qvel[:, self._ball_velocity]
        torch.mul(state.derived["sensordata"], TRAY_SCALE, out=out[:, TRAY])

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """1 / (1 + distance to the goal) x 1 / (1 + speed); the end when the ball is below 0.15 m."""
        torch.sub(obs[:, BALL_POSITION], self._goal, out=self._offset)
        distance, speed = self._lengths.unbind(1)
        # Euclidean lengths by hypot twice: the same bits whatever the number of environments is.
        for vector, length in ((self._offset, distance), (obs[:, BALL_VELOCITY], speed)):
            torch.hypot(vector[:, 0], vector[:, 1], out=length).hypot_(vector[:, 2])
        self._lengths.add_(1.0)
        torch.mul(distance, speed, out=reward).reciprocal_()
        torch.lt(obs[:, BALL_POSITION.start + 2], DROPPED_M, out=terminated)

    def start(self, env: Tensor | None) -> tuple[Tensor, Tensor]:
        """Tray at rest; ball in the air, flying inwards and down.

        Distance from the axis uniform in 0.001..0.5 m in a uniform direction, height uniform in
        1..2 m, vertical velocity -5 m/s, inward speed uniform in 0..5 m/s times the distance's
        fraction of its range.
        """
        noise = self.reset_noise(4, env)
        count = noise.shape[0]
        qpos, qvel = self._start_qpos[:count], self._start_qvel[:count]
        position, velocity = qpos[:, self._ball_position].T, qvel[:, self._ball_velocity].T
        direction, amount, fraction = self._direction[:, :count], self._amount[:count], noise[:, 1]
        torch.mul(noise[:, 0], 2.0 * math.pi, out=direction[0])
        torch.sin(direction[0], out=direction[1])
        direction[0].cos_()
        torch.add(self._nearest, fraction, alpha=START_DISTANCE_M[1] - START_DISTANCE_M[0], out=amount)
        torch.mul(direction, amount, out=position[:2])
        torch.add(self._lowest, noise[:, 2], alpha=START_HEIGHT_M[1] - START_HEIGHT_M[0], out=position[2])
        torch.mul(fraction, noise[:, 3], out=amount).mul_(-START_INWARD_SPEED)
        torch.mul(direction, amount, out=velocity[:2])
        return qpos, qvel

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """As in the base class: only the ball differs from one start to another."""
        out[:, BALL_POSITION] = qpos[:, self._ball_position]
        out[:, BALL_VELOCITY] = qvel[:, self._ball_velocity]
