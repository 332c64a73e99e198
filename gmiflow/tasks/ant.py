"""Ant: a four-legged body of eight joints learns to run towards (1000, 0).

Torques are 15 N m times the action (the motors' gear). A foot's sensor is MuJoCo's `force` and
`torque` at the tip of the lower leg: what the lower leg and its parent exert on each other, in the
lower leg's frame. The lower leg weighs about 70 g, so this is the contact force up to the leg's own
inertia.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.catalog import ANT
from gmiflow.tasks.locomotion import Locomotion
from gmiflow.tasks.operands import Kept, number
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["Ant"]

FEET, ACTIONS = slice(28, 52), slice(52, 60)
FEET_SCALE = number(0.1)
ALIVE_REWARD, DEATH_REWARD, FALLEN_M = 0.5, -2.0, number(0.31)
ACTION_COST, ENERGY_COST, LIMIT_COST, LIMIT_THRESHOLD = 0.005, 0.05, 0.1, number(0.99)


def _feet_and_actions(obs: Tensor) -> tuple[Tensor, Tensor]:
    return obs[:, FEET], obs[:, ACTIONS]


class Ant(Locomotion):
    """Sixty observations, eight torques; the layout is `gmiflow.tasks.catalog.ANT.observation`."""

    info = ANT
    derived = ("sensordata",)
    start_height_m = 0.44
    spin_scale = 1.0
    joint_velocity_scale = 0.2

    def prepare(self, context: StageContext) -> None:
        """Also the reward's constants."""
        self._rest_of = Kept(_feet_and_actions)
        super().prepare(context)
        self._alive = torch.tensor(ALIVE_REWARD, device=context.device)
        self._at_limit = by_column(context.num_env, self.info.action_size, context.device)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write torso, joints, feet and action."""
        feet, actions = self._rest_of(out)
        self.torso.observe(state, out)
        self.observe_hinges(self.hinges(state, out))
        torch.mul(state.derived["sensordata"], FEET_SCALE, out=feet)
        actions.copy_(state.action)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Progress + posture - 0.005 sum a^2 - 0.05 sum |a v| - 0.1 per joint above 0.99; -2 and the end below 0.31 m.

        v is the scaled joint velocity of the observation.
        """
        action, costs, hinges = state.action, self._costs.terms, self.hinges(state, obs)
        # In units of the energy's cost.
        torch.mul(action, hinges.velocities, out=costs).abs_()
        costs.addcmul_(action, action, value=ACTION_COST / ENERGY_COST)
        torch.gt(hinges.positions, LIMIT_THRESHOLD, out=self._at_limit)
        costs.add_(self._at_limit, alpha=LIMIT_COST / ENERGY_COST)
        self.reward_posture(obs, self._alive, reward)
        self.reward_progress(reward)
        reward.sub_(self._costs.total(), alpha=ENERGY_COST)
        self.fallen(obs, FALLEN_M, DEATH_REWARD, reward, terminated)
