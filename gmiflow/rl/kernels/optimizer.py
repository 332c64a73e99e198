"""`FlatAdam` in two kernels: gradient norm with the learning-rate rule, then the update."""

# ruff: noqa: ANN001, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import math

import triton
import triton.language as tl
from torch import Tensor

from gmiflow.rl.optimizer import LEARNING_RATE_RANGE, RATE_FACTOR, FlatAdam

__all__ = ["TritonAdam"]

_TILE = 1024


@triton.jit
def norm_kernel(
    reduced,
    squares,
    learning_rate,
    step,
    sums,
    SIZE: tl.constexpr,
    STATISTICS: tl.constexpr,
    STATISTICS_TILE: tl.constexpr,
    KL_TARGET: tl.constexpr,
    LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr,
    FACTOR: tl.constexpr,
    TILE: tl.constexpr,
):
    """Partial sums of squares of the gradient; program 0 adapts the rate, counts the step, adds the statistics."""
    program = tl.program_id(0)
    place = program * TILE + tl.arange(0, TILE)
    gradient = tl.load(reduced + place, mask=place < SIZE, other=0.0)
    tl.store(squares + program, tl.sum(gradient * gradient, axis=0))
    if program == 0:
        if KL_TARGET > 0.0:
            kl = tl.load(reduced + SIZE)
            rate = tl.load(learning_rate)
            rate = tl.where(kl < 0.5 * KL_TARGET, rate * FACTOR, tl.where(kl > 2.0 * KL_TARGET, rate / FACTOR, rate))
            tl.store(learning_rate, tl.minimum(tl.maximum(rate, LOWEST), HIGHEST))
        tl.store(step, tl.load(step) + 1.0)
        index = tl.arange(0, STATISTICS_TILE)
        used = index < STATISTICS
        added = tl.load(sums + index, mask=used, other=0.0) + tl.load(reduced + SIZE + index, mask=used, other=0.0)
        tl.store(sums + index, added, mask=used)


@triton.jit
def adam_kernel(
    flat,
    reduced,
    first,
    second,
    squares,
    learning_rate,
    step,
    norm_sum,
    SIZE: tl.constexpr,
    PROGRAMS: tl.constexpr,
    PROGRAMS_TILE: tl.constexpr,
    MAX_NORM: tl.constexpr,
    BETA_1: tl.constexpr,
    BETA_2: tl.constexpr,
    LOG_BETA_1: tl.constexpr,
    LOG_BETA_2: tl.constexpr,
    EPSILON: tl.constexpr,
    TILE: tl.constexpr,
):
    """Clip by the norm and update; every program adds the partial squares in the same order."""
    index = tl.arange(0, PROGRAMS_TILE)
    norm = tl.sqrt(tl.sum(tl.load(squares + index, mask=index < PROGRAMS, other=0.0), axis=0))
    shrink = 1.0
    if MAX_NORM > 0.0:
        shrink = tl.maximum(norm / MAX_NORM, 1.0)
    if tl.program_id(0) == 0:
        tl.store(norm_sum, tl.load(norm_sum) + norm)
    count = tl.load(step).to(tl.float64)
    correction_1 = (1.0 - tl.exp(count * LOG_BETA_1)).to(tl.float32)
    correction_2 = tl.sqrt(1.0 - tl.exp(count * LOG_BETA_2)).to(tl.float32)
    size = tl.load(learning_rate) / correction_1
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = place < SIZE
    gradient = tl.load(reduced + place, mask=inside, other=0.0) / shrink
    moment_1 = tl.load(first + place, mask=inside, other=0.0)
    moment_2 = tl.load(second + place, mask=inside, other=0.0)
    moment_1 = moment_1 + (1.0 - BETA_1) * (gradient - moment_1)
    moment_2 = BETA_2 * moment_2 + (1.0 - BETA_2) * gradient * gradient
    value = tl.load(flat + place, mask=inside, other=0.0)
    value = value - size * moment_1 / (tl.sqrt(moment_2) / correction_2 + EPSILON)
    tl.store(first + place, moment_1, mask=inside)
    tl.store(second + place, moment_2, mask=inside)
    tl.store(flat + place, value, mask=inside)


class TritonAdam(FlatAdam):
    """See `FlatAdam`."""

    def _allocate(self) -> None:
        self._squares = self._flat.new_zeros(triton.cdiv(self._flat.numel(), _TILE))

    def step(self, reduced: Tensor) -> None:
        """See `FlatAdam.step`."""
        size = self._flat.numel()
        programs = self._squares.numel()
        statistics = self.sums.numel() - 1
        norm_kernel[(programs,)](
            reduced,
            self._squares,
            self.learning_rate,
            self._step,
            self.sums,
            SIZE=size,
            STATISTICS=statistics,
            STATISTICS_TILE=triton.next_power_of_2(statistics),
            KL_TARGET=self._kl_target,
            LOWEST=LEARNING_RATE_RANGE[0],
            HIGHEST=LEARNING_RATE_RANGE[1],
            FACTOR=RATE_FACTOR,
            TILE=_TILE,
        )
        adam_kernel[(programs,)](
            self._flat,
            reduced,
            self._first,
            self._second,
            self._squares,
            self.learning_rate,
            self._step,
            self.sums[-1:],
            SIZE=size,
            PROGRAMS=programs,
            PROGRAMS_TILE=triton.next_power_of_2(programs),
            MAX_NORM=self._max_grad_norm,
            BETA_1=self._betas[0],
            BETA_2=self._betas[1],
            LOG_BETA_1=math.log(self._betas[0]),
            LOG_BETA_2=math.log(self._betas[1]),
            EPSILON=self._epsilon,
            TILE=_TILE,
        )
