"""Batched linear layers of actor and critic with the activation fused into the product.

Grid axis 2 of every kernel is the network (0 actor, 1 critic). Weights are [2, rows, outputs] as
`gmiflow.rl.network` lays them out; activations [2, batch, columns] with any row stride.
"""

# ruff: noqa: ANN001, ANN201, ANN202 - kernel arguments are Triton values, which have no useful annotation
# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

import triton
import triton.language as tl

__all__ = ["forward_kernel", "input_gradient_kernel", "weight_gradient_kernel"]


@triton.jit
def activate(value, KIND: tl.constexpr):
    """The activation; "none" for the output layer."""
    if KIND == "elu":
        value = tl.where(value > 0.0, value, tl.exp(tl.minimum(value, 0.0)) - 1.0)
    elif KIND == "relu":
        value = tl.maximum(value, 0.0)
    elif KIND == "tanh":
        value = 2.0 * tl.sigmoid(2.0 * value) - 1.0
    return value


@triton.jit
def slope(output, KIND: tl.constexpr):
    """Derivative of the activation, from its output."""
    if KIND == "elu":
        result = tl.where(output > 0.0, 1.0, output + 1.0)
    elif KIND == "relu":
        result = tl.where(output > 0.0, 1.0, 0.0)
    else:
        result = 1.0 - output * output
    return result


@triton.jit
def multiply(left, right, accumulator, PRECISION: tl.constexpr):
    """``accumulator + left @ right`` with the declared precision of the products."""
    if PRECISION == "bf16":
        accumulator = tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16), accumulator)
    elif PRECISION == "tf32":
        accumulator = tl.dot(left.to(tl.float32), right.to(tl.float32), accumulator, input_precision="tf32")
    else:
        accumulator = tl.dot(left.to(tl.float32), right.to(tl.float32), accumulator, input_precision="ieee")
    return accumulator


@triton.jit
def forward_kernel(
    source,
    weight,
    target,
    batch,
    source_net,
    source_row,
    target_net,
    target_row,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    KIND: tl.constexpr,
    PRECISION: tl.constexpr,
    BATCH_TILE: tl.constexpr,
    OUTPUT_TILE: tl.constexpr,
    ROWS_STEP: tl.constexpr,
):
    """``target = activate(source @ weight)``; source [2, batch, ROWS], target [2, batch, OUTPUTS]."""
    first = tl.program_id(0) * BATCH_TILE
    net = tl.program_id(2)
    source += net.to(tl.int64) * source_net + first.to(tl.int64) * source_row
    target += net.to(tl.int64) * target_net + first.to(tl.int64) * target_row
    weight += net * (ROWS * OUTPUTS)
    sample = tl.arange(0, BATCH_TILE)
    valid = (first + sample < batch)[:, None]
    output = tl.program_id(1) * OUTPUT_TILE + tl.arange(0, OUTPUT_TILE)
    used = (output < OUTPUTS)[None, :]
    accumulator = tl.zeros((BATCH_TILE, OUTPUT_TILE), tl.float32)
    for start in range(0, ROWS, ROWS_STEP):
        row = start + tl.arange(0, ROWS_STEP)
        inside = row < ROWS
        left = tl.load(source + sample[:, None] * source_row + row[None, :], mask=valid & inside[None, :], other=0.0)
        right = tl.load(weight + row[:, None] * OUTPUTS + output[None, :], mask=inside[:, None] & used, other=0.0)
        accumulator = multiply(left, right, accumulator, PRECISION)
    result = activate(accumulator, KIND).to(target.dtype.element_ty)
    tl.store(target + sample[:, None] * target_row + output[None, :], result, mask=valid & used)


@triton.jit
def input_gradient_kernel(
    delta,
    weight,
    activation,
    target,
    batch,
    activation_row,
    activation_net,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    KIND: tl.constexpr,
    PRECISION: tl.constexpr,
    BATCH_TILE: tl.constexpr,
    INPUT_TILE: tl.constexpr,
    OUTPUT_STEP: tl.constexpr,
):
    """``target = (delta @ weight[:INPUTS]^T) * slope(activation)``.

    delta [2, batch, OUTPUTS] and target [2, batch, INPUTS] are contiguous.
    """
    first = tl.program_id(0) * BATCH_TILE
    net = tl.program_id(2)
    base = net.to(tl.int64) * batch + first
    delta += base * OUTPUTS
    target += base * INPUTS
    activation += net.to(tl.int64) * activation_net + first.to(tl.int64) * activation_row
    weight += net * (ROWS * OUTPUTS)
    sample = tl.arange(0, BATCH_TILE)
    valid = (first + sample < batch)[:, None]
    column = tl.program_id(1) * INPUT_TILE + tl.arange(0, INPUT_TILE)
    used = (column < INPUTS)[None, :]
    accumulator = tl.zeros((BATCH_TILE, INPUT_TILE), tl.float32)
    for start in range(0, OUTPUTS, OUTPUT_STEP):
        output = start + tl.arange(0, OUTPUT_STEP)
        inside = output < OUTPUTS
        left = tl.load(delta + sample[:, None] * OUTPUTS + output[None, :], mask=valid & inside[None, :], other=0.0)
        right = tl.load(weight + column[None, :] * OUTPUTS + output[:, None], mask=inside[:, None] & used, other=0.0)
        accumulator = multiply(left, right, accumulator, PRECISION)
    below = tl.load(activation + sample[:, None] * activation_row + column[None, :], mask=valid & used, other=0.0)
    result = (accumulator * slope(below.to(tl.float32), KIND)).to(target.dtype.element_ty)
    tl.store(target + sample[:, None] * INPUTS + column[None, :], result, mask=valid & used)


@triton.jit
def weight_gradient_kernel(
    source,
    delta,
    partial,
    batch,
    batch_per_split,
    source_net,
    source_row,
    partial_row,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROW_TILE: tl.constexpr,
    OUTPUT_TILE: tl.constexpr,
    BATCH_STEP: tl.constexpr,
):
    """``partial[split] = source[split]^T @ delta[split]``, [2, ROWS, OUTPUTS] per split of the batch.

    Axis 0 of the grid counts tiles of the weight matrix, axis 1 the splits. The partial sums are
    added in a fixed order later, so that a run can be repeated bit by bit; atomics could not.
    """
    net = tl.program_id(2)
    across: tl.constexpr = (OUTPUTS + OUTPUT_TILE - 1) // OUTPUT_TILE
    tile = tl.program_id(0)
    row = (tile // across) * ROW_TILE + tl.arange(0, ROW_TILE)
    output = (tile % across) * OUTPUT_TILE + tl.arange(0, OUTPUT_TILE)
    split = tl.program_id(1)
    first = split * batch_per_split
    source += net.to(tl.int64) * source_net + first.to(tl.int64) * source_row
    delta += (net.to(tl.int64) * batch + first) * OUTPUTS
    count = tl.minimum(batch_per_split, batch - first)
    in_rows, in_outputs = row < ROWS, output < OUTPUTS
    accumulator = tl.zeros((ROW_TILE, OUTPUT_TILE), tl.float32)
    for start in range(0, count, BATCH_STEP):
        sample = start + tl.arange(0, BATCH_STEP)
        valid = sample < count
        left = tl.load(
            source + sample[None, :] * source_row + row[:, None], mask=in_rows[:, None] & valid[None, :], other=0.0
        )
        right = tl.load(
            delta + sample[:, None] * OUTPUTS + output[None, :], mask=valid[:, None] & in_outputs[None, :], other=0.0
        )
        accumulator = multiply(left, right, accumulator, PRECISION)
    partial += split.to(tl.int64) * partial_row + net * (ROWS * OUTPUTS)
    tl.store(
        partial + row[:, None] * OUTPUTS + output[None, :], accumulator, mask=in_rows[:, None] & in_outputs[None, :]
    )
