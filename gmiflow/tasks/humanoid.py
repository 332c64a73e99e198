"""Humanoid: a body of 21 motors learns to run on two feet towards (1000, 0).

A joint's force is what its motor, its spring and damper, its limits and the contacts exert along its
axis in the last substep: qfrc_actuator + qfrc_passive + qfrc_constraint, in N m. A foot's sensor is
MuJoCo's `force` and `torque` at the sole: what the foot and the shin exert on each other, in the
foot's frame; that is the contact force up to the foot's own inertia.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.api import StageContext
from gmiflow.sim.base import by_column
from gmiflow.tasks.catalog import HUMANOID
from gmiflow.tasks.locomotion import FREE_VELOCITIES, Locomotion
from gmiflow.tasks.operands import Kept, number
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["Humanoid"]

JOINT_FORCES, FEET, ACTIONS = slice(54, 75), slice(75, 87), slice(87, 108)
FORCE_SCALE = number(0.01)
ALIVE_REWARD, DEATH_REWARD, FALLEN_M = 2.0, -1.0, number(0.8)
ACTION_COST, ENERGY_COST = 0.01, 0.05
LIMIT_COST, LIMIT_THRESHOLD = 0.25, 0.98
LIMIT = number(LIMIT_THRESHOLD)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rest:
    """What follows the hinges in an observation, and the hinges' parts of the forces, f32 [n, J]."""

    actuator: Tensor
    passive: Tensor
    constraint: Tensor
    forces: Tensor
    feet: Tensor
    actions: Tensor


def _rest(state: Snapshot, obs: Tensor) -> _Rest:
    def hinges(field: str) -> Tensor:
        return state.derived[field][:, FREE_VELOCITIES:]

    return _Rest(
        actuator=hinges("qfrc_actuator"),
        passive=hinges("qfrc_passive"),
        constraint=hinges("qfrc_constraint"),
        forces=obs[:, JOINT_FORCES],
        feet=obs[:, FEET],
        actions=obs[:, ACTIONS],
    )


class Humanoid(Locomotion):
    """108 observations, 21 torques; the layout is `gmiflow.tasks.catalog.HUMANOID.observation`."""

    info = HUMANOID
    derived = ("sensordata", "qfrc_actuator", "qfrc_passive", "qfrc_constraint")
    start_height_m = 1.34
    spin_scale = 0.25
    joint_velocity_scale = 0.1

    def prepare(self, context: StageContext) -> None:
        """Also read the motors' gears."""
        self._rest_of = Kept(_rest)
        super().prepare(context)
        gear = torch.tensor(self.engine.model.actuator_gear[:, 0], dtype=torch.float32, device=context.device)
        self._gear_ratio = gear / gear.max()
        self._alive = torch.tensor(ALIVE_REWARD, device=context.device)
        self._beyond = by_column(context.num_env, self.info.action_size, context.device)

    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write torso, joints, joint forces, feet and action."""
        rest = self._rest_of(state, out)
        self.torso.observe(state, out)
        self.observe_hinges(self.hinges(state, out))
        torch.add(rest.actuator, rest.passive, out=rest.forces).add_(rest.constraint).mul_(FORCE_SCALE)
        torch.mul(state.derived["sensordata"], FORCE_SCALE, out=rest.feet)
        rest.actions.copy_(state.action)

    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Progress + posture - costs; -1 and the end below 0.8 m.

        Costs: 0.01 sum a^2; energy 0.05 sum |a v| g; limits 0.25 sum g (|q| - 0.98) / 0.02 where |q| > 0.98,
        with q and v the scaled positions and velocities of the observation and g = gear / 135 N m.
        """
        action, costs, beyond, hinges = state.action, self._costs.terms, self._beyond, self.hinges(state, obs)
        # In units of the energy's cost; limits are those of the gear's joint, too.
        torch.mul(action, hinges.velocities, out=costs).abs_()
        torch.abs(hinges.positions, out=beyond).sub_(LIMIT).clamp_(min=0.0)
        costs.add_(beyond, alpha=LIMIT_COST / (1.0 - LIMIT_THRESHOLD) / ENERGY_COST).mul_(self._gear_ratio)
        costs.addcmul_(action, action, value=ACTION_COST / ENERGY_COST)
        self.reward_posture(obs, self._alive, reward)
        self.reward_progress(reward)
        reward.sub_(self._costs.total(), alpha=ENERGY_COST)
        self.fallen(obs, FALLEN_M, DEATH_REWARD, reward, terminated)
