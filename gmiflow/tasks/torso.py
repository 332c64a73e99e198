"""The torso of Ant and Humanoid: where it is, how it is turned, and its twelve observations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.tasks.operands import Kept, number
from gmiflow.tasks.rotation import MATRIX, RotationEntries
from gmiflow.tasks.snapshot import Snapshot

__all__ = ["HEADING", "START_PLACE", "TARGET_M", "TORSO_SIZE", "UP", "Torso"]

TARGET_M = (1000.0, 0.0)
"""Where the body is to run, x and y in the world."""

TORSO_SIZE = 12
HEIGHT, VELOCITY, SPIN, ANGLES, UP, HEADING = slice(0, 1), slice(1, 4), slice(4, 7), slice(7, 10), 10, 11

START_PLACE = (*TARGET_M, math.hypot(*TARGET_M), 0.0, 0.0)
"""The rows of `Torso.seen` of a torso over the origin."""

# What of the torso's rotation matrix R is worked out: R itself, then rows in which the sines and the cosines of yaw,
# roll and the angle to the target lie side by side. R00 twice stands where the torso's x axis times the target
# comes to lie, and -R10, R10 is its other factor.
ENTRIES = (*MATRIX, (1, 0, 1), (2, 1, 1), (0, 0, 1), (0, 0, 1), (2, 2, 1), (0, 0, 1), (1, 0, -1), (1, 0, 1))
ROTATED_UP, SINES, COSINES = 8, slice(9, 12), slice(12, 15)
ASIDE_FORWARD, FORWARD, ACROSS = slice(11, 15, 3), 14, slice(15, 17)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Views:
    """What an observation works on, of n torsos: parts of the state by rows, of the buffers, and of the result."""

    quaternion: Tensor
    height: Tensor
    position: Tensor
    velocity: tuple[Tensor, ...]
    spin: Tensor
    target_y: Tensor
    target_x: Tensor
    target_y_again: Tensor
    target_yx: Tensor
    target_xy: Tensor
    distance: Tensor
    own_position: Tensor
    out_height: Tensor
    out_velocity: Tensor
    out_spin: Tensor
    out_angles: Tensor
    out_up: Tensor
    out_heading: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entries:
    """Groups of the rotation matrix's entries, each [rows, n]."""

    columns: tuple[Tensor, ...]
    up: Tensor
    sines: Tensor
    cosines: Tensor
    aside_forward: Tensor
    forward: Tensor
    across: Tensor


class Torso:
    """Works out the torso's observations, and where it is.

    Attributes:
        seen: f32 [5, num_env], written by `observe`: the target's x and y from the torso, its distance, and
            the torso's own x and y, in m.
    """

    def __init__(self, num_env: int, device: torch.device, spin_scale: float) -> None:
        """Allocate for up to ``num_env`` torsos."""
        self._rotation = RotationEntries(ENTRIES, num_env, device)
        self._target = torch.tensor(TARGET_M, device=device).unsqueeze(1)
        self._spin_scale = number(spin_scale)
        # By rows: target y (so that both (y, x) and (x, y) are neighbours), then what `seen` says.
        self._place = torch.zeros(6, num_env, device=device)
        self.seen = self._place[1:]
        self._views = Kept(self._cut)
        self._entries = Kept(_group)

    def observe(self, state: Snapshot, out: Tensor) -> None:
        """Write the twelve numbers about the torso into the first columns of ``out``, f32 [n, O]."""
        views = self._views(state, out)
        entries = self._entries(self._rotation(views.quaternion))
        views.out_height.copy_(views.height)
        # R^T v: the velocity in the torso's frame.
        velocity = torch.mul(entries.columns[0], views.velocity[0], out=views.out_velocity)
        velocity.addcmul_(entries.columns[1], views.velocity[1]).addcmul_(entries.columns[2], views.velocity[2])
        torch.mul(views.spin, self._spin_scale, out=views.out_spin)
        torch.sub(self._target, views.position, out=views.target_xy)
        views.target_y_again.copy_(views.target_y)
        torch.hypot(views.target_x, views.target_y, out=views.distance)
        views.own_position.copy_(views.position)
        # (aside, forward) = R00 (y, x) + (-R10, R10) (x, y) of the target.
        entries.aside_forward.mul_(views.target_yx).addcmul_(entries.across, views.target_xy)
        torch.atan2(entries.sines, entries.cosines, out=views.out_angles)
        views.out_up.copy_(entries.up)
        torch.div(entries.forward, views.distance, out=views.out_heading)

    def _cut(self, state: Snapshot, out: Tensor) -> _Views:
        qpos, qvel = state.qpos, state.qvel
        place = self._place[:, : qpos.shape[0]]
        return _Views(
            quaternion=qpos[:, 3:7],
            height=qpos[:, 2:3],
            position=qpos[:, 0:2].T,
            velocity=qvel[:, 0:3].unbind(1),
            spin=qvel[:, 3:6],
            target_y=place[2],
            target_x=place[1],
            target_y_again=place[0],
            target_yx=place[0:2],
            target_xy=place[1:3],
            distance=place[3],
            own_position=place[4:6],
            out_height=out[:, HEIGHT],
            out_velocity=out[:, VELOCITY].T,
            out_spin=out[:, SPIN],
            out_angles=out[:, ANGLES].T,
            out_up=out[:, UP],
            out_heading=out[:, HEADING],
        )


def _group(entries: Tensor) -> _Entries:
    return _Entries(
        columns=(entries[0:3], entries[3:6], entries[6:9]),
        up=entries[ROTATED_UP],
        sines=entries[SINES],
        cosines=entries[COSINES],
        aside_forward=entries[ASIDE_FORWARD],
        forward=entries[FORWARD],
        across=entries[ACROSS],
    )
