"""`RolloutMoments` in one pass over the observations."""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from gmiflow.rl.moments import RolloutMoments

__all__ = ["TritonMoments"]

_TILE = 32
_PROGRAMS = 264


@triton.jit
def moments_kernel(
    obs,
    center,
    targets,
    partial,
    samples,
    samples_per_program,
    OBSERVATION: tl.constexpr,
    OBSERVATION_TILE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sums and sums of squares of a range of samples into ``partial`` [programs, 2, 2 + OBSERVATION]."""
    first = tl.program_id(0) * samples_per_program
    last = tl.minimum(first + samples_per_program, samples)
    column = tl.arange(0, OBSERVATION_TILE)
    used = column < OBSERVATION
    middle = tl.load(center + column, mask=used, other=0.0)[None, :]
    total = tl.zeros((OBSERVATION_TILE,), tl.float32)
    square = tl.zeros((OBSERVATION_TILE,), tl.float32)
    advantages = tl.zeros((TILE,), tl.float32)
    advantages_square = tl.zeros((TILE,), tl.float32)
    returns = tl.zeros((TILE,), tl.float32)
    returns_square = tl.zeros((TILE,), tl.float32)
    for start in range(first, last, TILE):
        row = start + tl.arange(0, TILE)
        valid = row < last
        inside = valid[:, None] & used[None, :]
        value = tl.load(obs + row.to(tl.int64)[:, None] * OBSERVATION + column[None, :], mask=inside, other=0.0)
        value = tl.where(inside, value - middle, 0.0)
        total += tl.sum(value, axis=0)
        square += tl.sum(value * value, axis=0)
        advantage = tl.load(targets + row, mask=valid, other=0.0)
        advantages += advantage
        advantages_square += advantage * advantage
        gain = tl.load(targets + samples + row, mask=valid, other=0.0)
        returns += gain
        returns_square += gain * gain
    partial += tl.program_id(0) * (2 * (2 + OBSERVATION))
    tl.store(partial, tl.sum(advantages, axis=0))
    tl.store(partial + 1, tl.sum(returns, axis=0))
    tl.store(partial + 2 + column, total, mask=used)
    partial += 2 + OBSERVATION
    tl.store(partial, tl.sum(advantages_square, axis=0))
    tl.store(partial + 1, tl.sum(returns_square, axis=0))
    tl.store(partial + 2 + column, square, mask=used)


class TritonMoments(RolloutMoments):
    """See `RolloutMoments`."""

    def _allocate(self) -> None:
        self._per_program = triton.cdiv(triton.cdiv(self._samples, _PROGRAMS), _TILE) * _TILE
        programs = triton.cdiv(self._samples, self._per_program)
        self._partial = self._center.new_zeros((programs, 2, 2 + self._center.numel()))

    def _add(self, obs: Tensor, targets: Tensor, sums: Tensor) -> None:
        observation = self._center.numel()
        moments_kernel[(self._partial.shape[0],)](
            obs.contiguous(),
            self._center,
            targets,
            self._partial,
            self._samples,
            self._per_program,
            OBSERVATION=observation,
            OBSERVATION_TILE=triton.next_power_of_2(observation),
            TILE=_TILE,
        )
        torch.sum(self._partial, dim=0, dtype=torch.float64, out=sums)
