"""Quaternions to rotation matrices in a handful of elementwise operations.

No matrix product is used on purpose: TF32 would cost the observation its last ten bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["RotationMatrix"]

# Entry k of the row-major matrix is IDENTITY[k] + sum over two terms of SIGN * q[LEFT] * q[RIGHT], with
# q = (w, x, y, z); for example R01 = 2 x y - 2 w z.
_W, _X, _Y, _Z = range(4)
_LEFT = ((_Y, _X, _X, _X, _X, _Y, _X, _Y, _X), (_Z, _W, _W, _W, _Z, _W, _W, _W, _Y))
_RIGHT = ((_Y, _Y, _Z, _Y, _X, _Z, _Z, _Z, _X), (_Z, _Z, _Y, _Z, _Z, _X, _Y, _X, _Y))
_SIGN = ((-2, 2, 2, 2, -2, 2, 2, 2, -2), (-2, -2, 2, 2, -2, -2, -2, 2, -2))
_IDENTITY = (1, 0, 0, 0, 1, 0, 0, 0, 1)


class RotationMatrix:
    """Callable that turns unit quaternions (w, x, y, z) into rotation matrices."""

    def __init__(self, device: torch.device) -> None:
        """Put the constants on ``device``."""
        self._left = torch.tensor([*_LEFT[0], *_LEFT[1]], device=device)
        self._right = torch.tensor([*_RIGHT[0], *_RIGHT[1]], device=device)
        self._sign = torch.tensor([*_SIGN[0], *_SIGN[1]], dtype=torch.float32, device=device).unsqueeze(1)
        self._identity = torch.tensor(_IDENTITY, dtype=torch.float32, device=device).unsqueeze(1)

    def __call__(self, quaternion: Tensor) -> Tensor:
        """Rotation matrices f32 [n, 3, 3] from f32 [n, 4]; columns are the body's axes in the world.

        The result lies in memory as nine vectors over the environments, see `gmiflow.tasks.base`.
        """
        parts = quaternion.T
        products = parts.index_select(0, self._left)
        products.mul_(parts.index_select(0, self._right)).mul_(self._sign)
        matrix = products[:9].add_(products[9:]).add_(self._identity)
        return matrix.view(3, 3, -1).permute(2, 0, 1)
