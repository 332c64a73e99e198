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
from gmiflow.tasks.base import Snapshot
from gmiflow.tasks.catalog import ANT
from gmiflow.tasks.locomotion import Locomotion, Rules

__all__ = ["Ant"]

JOINT_POSITIONS, JOINT_VELOCITIES, FEET, ACTIONS = slice(12, 20), slice(20, 28), slice(28, 52), slice(52, 60)


class Ant(Locomotion):
    """Sixty observations, eight torques; the layout is `gmiflow.tasks.catalog.ANT.observation`."""

    info = ANT
    derived = ("sensordata",)
    rules = Rules(
        start_height=0.44,
        spin_scale=1.0,
        rate_scale=0.2,
        force_scale=0.1,
        alive=0.5,
        death=-2.0,
        fallen=0.31,
        action_cost=0.005,
        energy_cost=0.05,
        limit_cost=0.1,
        limit_threshold=0.99,
        limit_grows=False,
    )

    def prepare(self, context: StageContext) -> None:
        """Also a buffer of which joints are at their limits."""
        super().prepare(context)
        self._at_limit = by_column(context.num_env, self.info.action_size, context.device) > 0.0

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write torso, joints, feet and action."""
        self.observe_torso(state, out)
        self.observe_joint_positions(state.qpos, out[:, JOINT_POSITIONS])
        self.observe_joint_velocities(state.qvel, out[:, JOINT_VELOCITIES])
        torch.mul(state.derived["sensordata"], self.rules.force_scale, out=out[:, FEET])
        out[:, ACTIONS] = state.action

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Progress + posture - 0.005 sum a^2 - 0.05 sum |a v| - 0.1 per joint above 0.99; -2 and the end below 0.31 m.

        v is the scaled joint velocity of the observation.
        """
        action, costs, rules = state.action, self._costs.terms, self.rules
        # In units of the energy's cost.
        torch.mul(action, obs[:, JOINT_VELOCITIES], out=costs).abs_()
        costs.addcmul_(action, action, value=rules.action_cost / rules.energy_cost)
        torch.gt(obs[:, JOINT_POSITIONS], rules.limit_threshold, out=self._at_limit)
        costs.add_(self._at_limit, alpha=rules.limit_cost / rules.energy_cost)
        self.sum_up(obs, reward, terminated)
