"""`CounterNoise` on CUDA: a whole call in one Triton kernel instead of some twenty elementwise ones."""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["draw"]

_ROWS = 64
_MULTIPLIER_1 = tl.constexpr(0x7FEB352D)
_MULTIPLIER_2 = tl.constexpr(0x846CA68B)
_TWO_PI = tl.constexpr(2.0 * math.pi)
_UNIT = tl.constexpr(2.0**-24)


@triton.jit
def _mix(value):
    """`gmiflow.hashing.mix_int` on uint32."""
    value = (value ^ (value >> 16)) * _MULTIPLIER_1
    value = (value ^ (value >> 15)) * _MULTIPLIER_2
    return value ^ (value >> 16)


@triton.jit
def _unit(state, index, index_stride):
    """Number ``index`` of each environment in [0, 1)."""
    bits = _mix(state + index.to(tl.uint32) * index_stride)
    return (bits >> 8).to(tl.float32) * _UNIT


@triton.jit
def _noise_kernel(
    keys,
    step,
    out,
    num_env,
    STEP_STRIDE: tl.constexpr,
    INDEX_STRIDE: tl.constexpr,
    STEP_PER_ENV: tl.constexpr,
    WIDTH: tl.constexpr,
    WIDTH_TILE: tl.constexpr,
    NORMAL: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write out [num_env, WIDTH] from keys i32 [num_env] and step i64 [] or [num_env]."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = row < num_env
    key = tl.load(keys + row, mask=valid, other=0).to(tl.uint32, bitcast=True)
    counter = tl.load(step + row, mask=valid, other=0) if STEP_PER_ENV else tl.load(step)
    stride_2 = tl.full([1], STEP_STRIDE, tl.uint32)
    stride_3 = tl.full([1, 1], INDEX_STRIDE, tl.uint32)
    state = _mix((counter.to(tl.uint32) * stride_2) ^ key)[:, None]
    column = tl.arange(0, WIDTH_TILE)[None, :]
    if NORMAL:
        first = (column // 2) * 2
        radius = tl.sqrt(-2.0 * tl.log(1.0 - _unit(state, first, stride_3)))
        angle = _unit(state, first + 1, stride_3) * _TWO_PI
        value = radius * tl.where(column % 2 == 0, tl.cos(angle), tl.sin(angle))
    else:
        value = _unit(state, column, stride_3)
    tl.store(out + row[:, None] * WIDTH + column, value, mask=valid[:, None] & (column < WIDTH))


def draw(keys: Tensor, step: Tensor, width: int, *, normal: bool, step_stride: int, index_stride: int) -> Tensor:
    """One call of `CounterNoise.uniform` or `normal`.

    Args:
        keys: i32 [k], the cached part of the hash of each environment, contiguous.
        step: i64 [] or [k].
        width: numbers per environment.
        normal: standard normal instead of uniform numbers.
        step_stride: odd constant of the hash.
        index_stride: odd constant of the hash.

    Returns:
        f32 [k, width], a new tensor.
    """
    out = torch.empty((keys.shape[0], width), dtype=torch.float32, device=keys.device)
    if out.numel() == 0:
        return out
    _noise_kernel[(triton.cdiv(keys.shape[0], _ROWS),)](
        keys,
        step,
        out,
        keys.shape[0],
        STEP_STRIDE=step_stride,
        INDEX_STRIDE=index_stride,
        STEP_PER_ENV=step.dim() > 0,
        WIDTH=width,
        WIDTH_TILE=triton.next_power_of_2(width),
        NORMAL=normal,
        ROWS=_ROWS,
    )
    return out
