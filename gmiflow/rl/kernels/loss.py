"""The PPO loss, its gradient and its statistics in one pass over a minibatch; formulas in `gmiflow.rl.losses`."""

# ruff: noqa: ANN001, ANN201 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import triton
import triton.language as tl

__all__ = ["STATISTICS_TILE", "loss_kernel", "reduce_kernel"]

STATISTICS_TILE = 8
"""Columns kept for the six statistics in a row of partial sums."""

_HALF_LOG_TWO_PI = tl.constexpr(0.9189385332046727)


@triton.jit
def loss_kernel(
    rows,
    output,
    log_std,
    output_gradient,
    partial,
    batch,
    weight,
    rows_width,
    FIRST: tl.constexpr,
    ACTION: tl.constexpr,
    CLIP: tl.constexpr,
    VALUE_COEF: tl.constexpr,
    ENTROPY: tl.constexpr,
    BOUNDS_LOSS: tl.constexpr,
    MEAN_BOUND: tl.constexpr,
    BATCH_TILE: tl.constexpr,
    ACTION_TILE: tl.constexpr,
    STATISTICS: tl.constexpr,
):
    """Write output_gradient [2, batch, ACTION] and partial sums [programs, ACTION_TILE + STATISTICS].

    ``rows`` are packed samples whose action starts at column FIRST; ``output`` is [2, batch, ACTION].
    The columns of the partial sums are the gradient of log_std, then `STATISTICS` of the losses.
    """
    first = tl.program_id(0).to(tl.int64) * BATCH_TILE
    rows += first * rows_width
    sample = tl.arange(0, BATCH_TILE)
    valid = first + sample < batch
    column = tl.arange(0, ACTION_TILE)
    used = column < ACTION
    inside = valid[:, None] & used[None, :]
    packed = rows + sample[:, None] * rows_width + FIRST + column[None, :]
    action = tl.load(packed, mask=inside, other=0.0)
    old_mean = tl.load(packed + ACTION, mask=inside, other=0.0)
    old_std = tl.load(packed + 2 * ACTION, mask=inside, other=1.0)
    scalar = rows + sample * rows_width + FIRST + 3 * ACTION
    old_log_prob = tl.load(scalar, mask=valid, other=0.0)
    old_value = tl.load(scalar + 1, mask=valid, other=0.0)
    advantage = tl.load(scalar + 2, mask=valid, other=0.0)
    returns = tl.load(scalar + 3, mask=valid, other=0.0)
    local = sample[:, None] * ACTION + column[None, :]
    actor = first * ACTION
    critic = (batch + first) * ACTION
    mean = tl.load(output + actor + local, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(output + critic + sample * ACTION, mask=valid, other=0.0).to(tl.float32)
    logarithm = tl.load(log_std + column, mask=used, other=0.0)
    inverse_std = tl.exp(-logarithm)[None, :]
    total = tl.sum(logarithm, axis=0)

    scaled = tl.where(inside, (action - mean) * inverse_std, 0.0)
    log_prob = -0.5 * tl.sum(scaled * scaled, axis=1) - total - ACTION * _HALF_LOG_TWO_PI
    ratio = tl.where(valid, tl.exp(log_prob - old_log_prob), 1.0)
    clipped_ratio = tl.minimum(tl.maximum(ratio, 1.0 - CLIP), 1.0 + CLIP)
    surrogate = ratio * advantage
    clipped = clipped_ratio * advantage
    slope = tl.where(surrogate <= clipped, surrogate, 0.0) * -weight
    outside = mean - tl.minimum(tl.maximum(mean, -MEAN_BOUND), MEAN_BOUND)
    outside = tl.where(inside, outside, 0.0)
    mean_gradient = scaled * inverse_std * slope[:, None] + outside * (2.0 * BOUNDS_LOSS * weight)
    share = tl.where(valid, weight, 0.0)
    log_std_gradient = tl.sum(slope[:, None] * (scaled * scaled - 1.0) - (ENTROPY * share)[:, None], axis=0)

    spread = (old_mean - mean) * (old_mean - mean) + old_std * old_std
    divergence = logarithm[None, :] - tl.log(old_std) + 0.5 * spread * inverse_std * inverse_std - 0.5
    divergence = tl.sum(tl.where(inside, divergence, 0.0), axis=1)

    error = value - returns
    moved = value - old_value
    clipped_move = tl.minimum(tl.maximum(moved, -CLIP), CLIP)
    clipped_error = old_value + clipped_move - returns
    larger = clipped_error * clipped_error > error * error
    pull = tl.where(larger, tl.where(clipped_move == moved, clipped_error, 0.0), error)
    value_loss = 0.5 * tl.maximum(error * error, clipped_error * clipped_error)

    kind = output_gradient.dtype.element_ty
    tl.store(output_gradient + actor + local, mean_gradient.to(kind), mask=inside)
    value_gradient = (pull * (VALUE_COEF * weight)).to(kind)
    tl.store(output_gradient + critic + sample * ACTION, value_gradient, mask=valid)

    entropy = total + ACTION * (0.5 + _HALF_LOG_TWO_PI)
    partial += tl.program_id(0) * (ACTION_TILE + STATISTICS)
    tl.store(partial + column, log_std_gradient)
    partial += ACTION_TILE
    tl.store(partial, tl.sum(divergence * share, axis=0))
    tl.store(partial + 1, tl.sum(-tl.minimum(surrogate, clipped) * share, axis=0))
    tl.store(partial + 2, tl.sum(value_loss * share, axis=0))
    tl.store(partial + 3, tl.sum(tl.sum(outside * outside, axis=1) * share, axis=0))
    tl.store(partial + 4, tl.sum(entropy * share, axis=0))
    tl.store(partial + 5, tl.sum(tl.where(ratio == clipped_ratio, 0.0, share), axis=0))


@triton.jit
def reduce_kernel(
    weight_partial,
    loss_partial,
    reduced,
    splits,
    partial_row,
    loss_rows,
    WEIGHTS: tl.constexpr,
    SIZE: tl.constexpr,
    ACTION: tl.constexpr,
    ACTION_TILE: tl.constexpr,
    STATISTICS: tl.constexpr,
    COUNT: tl.constexpr,
    TILE: tl.constexpr,
    LOSS_TILE: tl.constexpr,
):
    """Add the partial sums in a fixed order into ``reduced`` = gradient [SIZE] and COUNT statistics.

    The last program sums the rows of ``loss_partial``, the others the splits of the weights.
    """
    program = tl.program_id(0)
    if program < tl.num_programs(0) - 1:
        place = program * TILE + tl.arange(0, TILE)
        inside = place < WEIGHTS
        accumulator = tl.zeros((TILE,), tl.float32)
        source = weight_partial + place
        for _ in range(0, splits):
            accumulator += tl.load(source, mask=inside, other=0.0)
            source += partial_row
        tl.store(reduced + place, accumulator, mask=inside)
    else:
        width: tl.constexpr = ACTION_TILE + STATISTICS
        row = tl.arange(0, LOSS_TILE)
        column = tl.arange(0, ACTION_TILE)
        other = tl.arange(0, STATISTICS)
        log_std_gradient = tl.zeros((ACTION_TILE,), tl.float32)
        statistics = tl.zeros((STATISTICS,), tl.float32)
        for start in range(0, loss_rows, LOSS_TILE):
            valid = (start + row < loss_rows)[:, None]
            line = loss_partial + (start + row[:, None]) * width
            log_std_gradient += tl.sum(tl.load(line + column[None, :], mask=valid, other=0.0), axis=0)
            statistics += tl.sum(tl.load(line + ACTION_TILE + other[None, :], mask=valid, other=0.0), axis=0)
        tl.store(reduced + WEIGHTS + column, log_std_gradient, mask=column < ACTION)
        tl.store(reduced + SIZE + other, statistics, mask=other < COUNT)
