"""Quaternions to entries of rotation matrices in a handful of elementwise operations.

No matrix product is used on purpose: TF32 would cost the observation its last ten bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.tasks.operands import Kept

__all__ = ["MATRIX", "RotationEntries"]

# Entry k of the row-major matrix is IDENTITY[k] + the sum over two terms of SIGN * q[LEFT] * q[RIGHT], with
# q = (w, x, y, z); for example R01 = 2 x y - 2 w z.
_W, _X, _Y, _Z = range(4)
_LEFT = ((_Y, _X, _X, _X, _X, _Y, _X, _Y, _X), (_Z, _W, _W, _W, _Z, _W, _W, _W, _Y))
_RIGHT = ((_Y, _Y, _Z, _Y, _X, _Z, _Z, _Z, _X), (_Z, _Z, _Y, _Z, _Z, _X, _Y, _X, _Y))
_SIGN = ((-1, 1, 1, 1, -1, 1, 1, 1, -1), (-1, -1, 1, 1, -1, -1, -1, 1, -1))
_IDENTITY = (1, 0, 0, 0, 1, 0, 0, 0, 1)

MATRIX = tuple((row, column, 1) for row in range(3) for column in range(3))
"""The whole matrix row by row, as entries for `RotationEntries`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Views:
    """What a call works on: the quaternions by rows and, of the buffers, as many columns as there are quaternions."""

    parts: Tensor
    scaled: Tensor
    doubled: Tensor
    left: Tensor
    right: Tensor
    left_1: Tensor
    right_1: Tensor
    left_2: Tensor
    right_2: Tensor
    entries: Tensor


class RotationEntries:
    """Callable that turns unit quaternions (w, x, y, z) into chosen entries of their rotation matrices.

    A matrix's columns are the body's axes in the world. Entries may repeat and may be negated, which costs
    nothing and lets the caller lay operands side by side.
    """

    def __init__(self, entries: Sequence[tuple[int, int, int]], num_env: int, device: torch.device) -> None:
        """Choose entries (row, column, 1 or -1) and allocate for up to ``num_env`` quaternions."""
        places = [(3 * row + column, sign) for row, column, sign in entries]
        # The left factor is taken from (2 q, -2 q), so that it brings the sign.
        left = [_LEFT[term][at] + (4 if _SIGN[term][at] * sign < 0 else 0) for term in (0, 1) for at, sign in places]
        right = [_RIGHT[term][at] for term in (0, 1) for at, _ in places]
        identity = [float(_IDENTITY[at] * sign) for at, sign in places]
        self._left_rows, self._right_rows = torch.tensor(left, device=device), torch.tensor(right, device=device)
        self._identity = torch.tensor(identity, device=device).unsqueeze(1)
        self._two = torch.tensor([2.0, -2.0], device=device).view(2, 1, 1)
        self._scaled = torch.zeros(2, 4, num_env, device=device)
        self._left, self._right = (torch.zeros(2 * len(places), num_env, device=device) for _ in range(2))
        self._entries = torch.zeros(len(places), num_env, device=device)
        self._views = Kept(self._cut)

    def __call__(self, quaternion: Tensor) -> Tensor:
        """The entries of every quaternion, f32 [entries, n] from f32 [n, 4]; its own buffer."""
        views = self._views(quaternion)
        torch.mul(views.parts, self._two, out=views.scaled)
        torch.index_select(views.doubled, 0, self._left_rows, out=views.left)
        torch.index_select(views.parts, 0, self._right_rows, out=views.right)
        torch.addcmul(self._identity, views.left_1, views.right_1, out=views.entries)
        return views.entries.addcmul_(views.left_2, views.right_2)

    def _cut(self, quaternion: Tensor) -> _Views:
        """The first n columns of every buffer."""
        count, half = quaternion.shape[0], self._entries.shape[0]
        scaled, left, right = self._scaled[:, :, :count], self._left[:, :count], self._right[:, :count]
        return _Views(
            parts=quaternion.T,
            scaled=scaled,
            doubled=scaled.flatten(0, 1),
            left=left,
            right=right,
            left_1=left[:half],
            right_1=right[:half],
            left_2=left[half:],
            right_2=right[half:],
            entries=self._entries[:, :count],
        )
