"""The 32-bit integer hash behind everything that must not depend on slicing (a leaf module).

The function is the bijection "lowbias32": two multiplications and three xor-shifts; constants from
C. Wellons, "Prospecting for Hash Functions" (2018). It exists twice, for Python integers and for
int32 tensors, and both give the same 32 bits. The tensor form is a fixed sequence of operations
without host synchronisation, so a CUDA graph can capture it.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MULTIPLIER_1", "MULTIPLIER_2", "mix_", "mix_int", "signed"]

MULTIPLIER_1 = 0x7FEB352D
MULTIPLIER_2 = 0x846CA68B
_MASK = 0xFFFFFFFF


def signed(value: int) -> int:
    """The int32 that has the same low 32 bits as ``value``."""
    value &= _MASK
    return value - (1 << 32) if value >> 31 else value


def mix_int(value: int) -> int:
    """Hash the low 32 bits of an integer to an integer in [0, 2**32)."""
    value &= _MASK
    value = ((value ^ (value >> 16)) * MULTIPLIER_1) & _MASK
    value = ((value ^ (value >> 15)) * MULTIPLIER_2) & _MASK
    return value ^ (value >> 16)


def mix_(value: Tensor) -> Tensor:
    """Hash an int32 tensor in place; the same function as `mix_int`.

    torch shifts int32 right with the sign, hence the masks.
    """
    scratch = torch.bitwise_right_shift(value, 16).bitwise_and_(0xFFFF)
    value.bitwise_xor_(scratch).mul_(signed(MULTIPLIER_1))
    torch.bitwise_right_shift(value, 15, out=scratch)
    value.bitwise_xor_(scratch.bitwise_and_(0x1FFFF)).mul_(signed(MULTIPLIER_2))
    torch.bitwise_right_shift(value, 16, out=scratch)
    return value.bitwise_xor_(scratch.bitwise_and_(0xFFFF))
