"""Forward kinematics of a serial arm in elementwise tensor operations: where a site is and how it is turned.

The physics knows it too, but a substep late, and not before the first step of an episode.
"""

# pyright: reportAttributeAccessIssue=false
# MuJoCo's classes are compiled and come without stubs.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

__all__ = ["HingeChain"]

NEGLIGIBLE_M = 1e-9

_Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class _Step:
    """From one hinge to the next: an offset, then a turn by quarters.

    Column j of the product of a rotation matrix R with the turn is ``signs[j]`` x column ``sources[j]`` of R.
    """

    offset: _Vector
    sources: tuple[int, int, int]
    signs: tuple[int, int, int]


class HingeChain:
    """A chain of hinges, each about its body's z axis, whose bodies are turned by quarters to each other.

    Signs and exchanges of axes are settled when the chain is made, so a hinge costs four operations and one per
    coordinate of its offset.
    """

    def __init__(
        self, model: mujoco.MjModel, joints: Sequence[str], tip: str, num_env: int, device: torch.device
    ) -> None:
        """Read the chain from the model.

        Args:
            model: the body; the hinges' positions are neighbours in its qpos.
            joints: names of the hinges from the world outwards.
            tip: name of the site at the end. It may be turned about the last hinge by any angle.
            num_env: the most chains at once.
            device: of the tensors.

        Raises:
            ValueError: a hinge does not turn about z, or two bodies are not turned by quarters.
        """
        first = int(model.joint(joints[0]).qposadr[0])
        self._angle_columns = slice(first, first + len(joints))
        self._steps, self._tip_offset, tip_angle = _read_chain(model, joints, tip)
        self._extra_angles = torch.zeros(len(joints), 1, device=device)
        self._extra_angles[-1] = tip_angle
        self._angles, self._sines, self._cosines = (torch.zeros(len(joints), num_env, device=device) for _ in range(3))
        # Three axes, and two more to write the turned ones into.
        self._pool = [torch.zeros(3, num_env, device=device) for _ in range(5)]
        self._world_axes = torch.eye(3, device=device).unsqueeze(2)
        self._position = torch.zeros(3, num_env, device=device)

    def __call__(self, qpos: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Where the tip is in the world, f32 [3, n], and its x, y and z axes, each f32 [3, n]; its own buffers.

        Args:
            qpos: f32 [n, nq].
        """
        count = qpos.shape[0]
        angles = torch.add(qpos.T[self._angle_columns], self._extra_angles, out=self._angles[:, :count])
        sines = torch.sin(angles, out=self._sines[:, :count])
        cosines = torch.cos(angles, out=self._cosines[:, :count])
        x, y, z, *free = (buffer[:, :count] for buffer in self._pool)
        for axis, world in zip((x, y, z), self._world_axes, strict=True):
            axis.copy_(world)
        axes, signs = (x, y, z), (1, 1, 1)
        position = self._position[:, :count].zero_()
        for step, sine, cosine in zip(self._steps, sines, cosines, strict=True):
            _move(position, axes, signs, step.offset)
            x, y, z = (axes[source] for source in step.sources)
            first, second, third = (signs[source] * sign for source, sign in zip(step.sources, step.signs, strict=True))
            # cos x + sin y and cos y - sin x; each is stored with the sign of the axis that it replaces.
            turned_x, turned_y = free
            torch.mul(x, cosine, out=turned_x).addcmul_(y, sine, value=first * second)
            torch.mul(y, cosine, out=turned_y).addcmul_(x, sine, value=-first * second)
            axes, signs, free = (turned_x, turned_y, z), (first, second, third), [x, y]
        _move(position, axes, signs, self._tip_offset)
        for axis, sign in zip(axes, signs, strict=True):
            if sign < 0:
                axis.neg_()
        return position, axes


def _move(position: Tensor, axes: Sequence[Tensor], signs: Sequence[int], offset: _Vector) -> None:
    """Add an offset that is given along the axes."""
    for axis, sign, length in zip(axes, signs, offset, strict=True):
        if length:
            position.add_(axis, alpha=sign * length)


def _read_chain(model: mujoco.MjModel, joints: Sequence[str], tip: str) -> tuple[list[_Step], _Vector, float]:
    """The steps to every hinge, the offset of the tip from the last and its angle about it."""
    data = mujoco.MjData(model)
    data.qpos[:] = 0.0
    mujoco.mj_kinematics(model, data)
    position, rotation, steps = np.zeros(3), np.eye(3), []
    for name in joints:
        joint = model.joint(name)
        if joint.type[0] != int(mujoco.mjtJoint.mjJNT_HINGE) or not np.allclose(joint.axis, (0.0, 0.0, 1.0)):
            raise ValueError(f"joint {name} is no hinge about its body's z axis")
        body = int(joint.bodyid[0])
        turn = rotation.T @ data.xmat[body].reshape(3, 3)
        sources = np.abs(turn).argmax(axis=0)
        signs = np.sign(turn[sources, range(3)]).astype(int)
        if not np.allclose(np.abs(turn).max(axis=0), 1.0):
            raise ValueError(f"the body of joint {name} is not turned by quarters")
        steps.append(_Step(_vector(rotation.T @ (data.xpos[body] - position)), _three(sources), _three(signs)))
        position, rotation = data.xpos[body].copy(), data.xmat[body].reshape(3, 3).copy()
    site = model.site(tip).id
    turn = rotation.T @ data.site_xmat[site].reshape(3, 3)
    if not np.isclose(turn[2, 2], 1.0):
        raise ValueError(f"site {tip} is turned about another axis than the last hinge's")
    return steps, _vector(rotation.T @ (data.site_xpos[site] - position)), math.atan2(turn[1, 0], turn[0, 0])


def _vector(values: np.ndarray[Any, Any]) -> _Vector:
    """Three floats, with 0 for what is rounding."""
    x, y, z = (0.0 if abs(value) < NEGLIGIBLE_M else float(value) for value in values)
    return x, y, z


def _three(values: np.ndarray[Any, Any]) -> tuple[int, int, int]:
    x, y, z = (int(value) for value in values)
    return x, y, z
