"""Differences and draws of orientations, as quaternions (w, x, y, z) that lie by rows: one row per part."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["RandomTurn", "TurnBetween"]

# Part i of q times the conjugate of g is the sum over k of SIGN[k][i] x q[PART[k][i]] x g[k].
_PART = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))
_SIGN = ((1, 1, 1, 1), (1, -1, -1, 1), (1, 1, -1, -1), (1, -1, 1, -1))


class TurnBetween:
    """Callable that gives the turn from one orientation to another: q times the conjugate of g."""

    def __init__(self, num_env: int, device: torch.device) -> None:
        """Allocate for up to ``num_env`` pairs."""
        rows = [
            part + (4 if sign < 0 else 0)
            for parts, signs in zip(_PART, _SIGN, strict=True)
            for part, sign in zip(parts, signs, strict=True)
        ]
        self._rows = torch.tensor(rows, device=device)
        self._two_signs = torch.tensor([1.0, -1.0], device=device).view(2, 1, 1)
        self._signed = torch.zeros(2, 4, num_env, device=device)
        self._terms = torch.zeros(16, num_env, device=device)

    def __call__(self, to: Tensor, start: Tensor, out: Tensor) -> None:
        """Write the turn that takes ``start`` to ``to``; all three are f32 [4, n]."""
        count = to.shape[1]
        signed, terms = self._signed[:, :, :count], self._terms[:, :count]
        torch.mul(to, self._two_signs, out=signed)
        torch.index_select(signed.flatten(0, 1), 0, self._rows, out=terms)
        by_w, by_x, by_y, by_z = terms.unflatten(0, (4, 4))
        torch.mul(by_w, start[0], out=out).addcmul_(by_x, start[1]).addcmul_(by_y, start[2]).addcmul_(by_z, start[3])


class RandomTurn:
    """Callable that makes orientations of uniform numbers: a turn about y by +-pi, then one about x by +-pi."""

    def __init__(self, num_env: int, device: torch.device) -> None:
        """Allocate for up to ``num_env`` orientations."""
        self._halves, self._sines, self._cosines = (torch.zeros(2, num_env, device=device) for _ in range(3))

    def __call__(self, noise: Tensor, out: Tensor) -> None:
        """Write the orientations.

        Args:
            noise: uniform in [0, 1), f32 [2, n]: for the turns about x and y.
            out: f32 [4, n].
        """
        count = noise.shape[1]
        halves, sines, cosines = self._halves[:, :count], self._sines[:, :count], self._cosines[:, :count]
        torch.sub(noise, 0.5, out=halves).mul_(math.pi)
        torch.sin(halves, out=sines)
        torch.cos(halves, out=cosines)
        for part, (about_x, about_y) in zip(
            out, ((cosines, cosines), (sines, cosines), (cosines, sines), (sines, sines)), strict=True
        ):
            torch.mul(about_x[0], about_y[1], out=part)
