"""Humanoid: a body of 21 motors learns to run on two feet towards (1000, 0).

A joint's force is what its motor, its spring and damper, its limits and the contacts exert along its
axis in the last substep: qfrc_actuator + qfrc_passive + qfrc_constraint, in N m. A foot's sensor is
MuJoCo's `force` and `torque` at the sole: what the foot and the shin exert on each other, in the
foot's frame; that is the contact force up to the foot's own inertia.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.base import Snapshot
from gmiflow.tasks.catalog import HUMANOID
from gmiflow.tasks.locomotion import FREE_VELOCITIES, Locomotion, Rules

__all__ = ["Humanoid"]

JOINT_POSITIONS, JOINT_VELOCITIES, JOINT_FORCES = slice(12, 33), slice(33, 54), slice(54, 75)
FEET, ACTIONS = slice(75, 87), slice(87, 108)


class Humanoid(Locomotion):
    """108 observations, 21 torques; the layout is `gmiflow.tasks.catalog.HUMANOID.observation`."""

    info = HUMANOID
    forces = ("qfrc_actuator", "qfrc_passive", "qfrc_constraint")
    derived = ("sensordata", *forces)
    rules = Rules(
        start_height=1.34,
        spin_scale=0.25,
        rate_scale=0.1,
        force_scale=0.01,
        alive=2.0,
        death=-1.0,
        fallen=0.8,
        action_cost=0.01,
        energy_cost=0.05,
        limit_cost=0.25,
        limit_threshold=0.98,
        limit_grows=True,
    )

    def prepare(self, context: StageContext) -> None:
        """Also a buffer of how far joints are beyond the threshold."""
        super().prepare(context)
        self._beyond = by_column(context.num_env, self.info.action_size, context.device)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write torso, joints, joint forces, feet and action."""
        self.observe_torso(state, out)
        self.observe_joint_positions(state.qpos, out[:, JOINT_POSITIONS])
        self.observe_joint_velocities(state.qvel, out[:, JOINT_VELOCITIES])
        force = out[:, JOINT_FORCES]
        actuator, passive, constraint = (state.derived[name][:, FREE_VELOCITIES:] for name in self.forces)
        torch.add(actuator, passive, out=force).add_(constraint).mul_(self.rules.force_scale)
        torch.mul(state.derived["sensordata"], self.rules.force_scale, out=out[:, FEET])
        out[:, ACTIONS] = state.action

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Progress + posture - costs; -1 and the end below 0.8 m.

        Costs: 0.01 sum a^2; energy 0.05 sum |a v| g; limits 0.25 sum g (|q| - 0.98) / 0.02 where |q| > 0.98,
        with q and v the scaled positions and velocities of the observation and g = gear / 135 N m.
        """
        action, costs, beyond, rules = state.action, self._costs.terms, self._beyond, self.rules
        # In units of the energy's cost; limits are those of the gear's joint, too.
        torch.mul(action, obs[:, JOINT_VELOCITIES], out=costs).abs_()
        torch.abs(obs[:, JOINT_POSITIONS], out=beyond).sub_(rules.limit_threshold).clamp_(min=0.0)
        slope = rules.limit_cost / (1.0 - rules.limit_threshold)
        costs.add_(beyond, alpha=slope / rules.energy_cost).mul_(self._gear_ratio)
        costs.addcmul_(action, action, value=rules.action_cost / rules.energy_cost)
        self.sum_up(obs, reward, terminated)
