"""Forward and backward of actor and critic with fused Triton layers."""

# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
from torch import Tensor

from gmiflow.rl.kernels.linear import forward_kernel, input_gradient_kernel, weight_gradient_kernel
from gmiflow.rl.network import Activation, NetworkLayout

__all__ = ["TritonNetwork"]

BATCH_TILE = 128
SPLIT_ROWS = 1024
"""Batch rows whose weight gradient one program sums; enough programs to fill the GPU follow."""


def _tile(size: int, limit: int) -> int:
    """A power of two that covers ``size``, at least 16 (what tensor cores take) and at most ``limit``."""
    return max(16, min(limit, triton.next_power_of_2(size)))


class TritonNetwork:
    """Forward and backward of both networks for batches of one size.

    Attributes:
        output: [2, batch, action].
        output_gradient: [2, batch, action], zero in the unused columns of the critic.
        partial: [splits, weights] partial sums of the weight gradient.
    """

    def __init__(
        self,
        layout: NetworkLayout,
        activation: Activation,
        flat: Tensor,
        batch: int,
        *,
        precision: str,
        trains: bool,
    ) -> None:
        """Allocate; with bf16 precision hidden activations are stored as bf16 too."""
        self.batch = batch
        self._layers = layout.layers
        self._activation, self._precision = activation, precision
        self._weights = layout.weights(flat)
        kind = torch.bfloat16 if precision == "bf16" else flat.dtype
        device = flat.device
        self._inputs: list[Tensor] = []
        for layer in self._layers[1:]:
            buffer = torch.zeros((2, batch, layer.rows), dtype=kind, device=device)
            buffer[..., layer.inputs] = 1.0
            self._inputs.append(buffer)
        self.output = torch.zeros((2, batch, layout.action), dtype=flat.dtype, device=device)
        if trains:
            self._deltas = [torch.empty((2, batch, s.inputs), dtype=kind, device=device) for s in self._layers[1:]]
            self.output_gradient = torch.zeros_like(self.output)
            self.splits = max(1, triton.cdiv(batch, SPLIT_ROWS))
            self.partial = torch.zeros((self.splits, layout.log_std_start), dtype=torch.float32, device=device)

    def forward(self, observation: Tensor) -> Tensor:
        """Evaluate [batch, rows of layer 0] (rows may be strided); returns `output`."""
        source, net, row = observation, 0, observation.stride(0)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            target = self.output if index == last else self._inputs[index]
            output_tile = _tile(layer.outputs, 128)
            grid = (triton.cdiv(self.batch, BATCH_TILE), triton.cdiv(layer.outputs, output_tile), 2)
            forward_kernel[grid](
                source,
                self._weights[index],
                target,
                self.batch,
                net,
                row,
                target.stride(0),
                target.stride(1),
                ROWS=layer.rows,
                OUTPUTS=layer.outputs,
                KIND="none" if index == last else self._activation,
                PRECISION=self._precision,
                BATCH_TILE=BATCH_TILE,
                OUTPUT_TILE=output_tile,
                ROWS_STEP=_tile(layer.rows, 32),
                num_warps=8,
                num_stages=3,
            )
            source, net, row = target, target.stride(0), target.stride(1)
        return self.output

    def backward(self, observation: Tensor) -> None:
        """Fill `partial` for `output_gradient` after `forward` of the same batch."""
        delta = self.output_gradient
        for index in range(len(self._deltas) - 1, -1, -1):
            source, layer = self._inputs[index], self._layers[index + 1]
            self._weight_gradient(index + 1, source, source.stride(0), source.stride(1), delta)
            below = self._deltas[index]
            input_tile = _tile(layer.inputs, 128)
            grid = (triton.cdiv(self.batch, BATCH_TILE), triton.cdiv(layer.inputs, input_tile), 2)
            input_gradient_kernel[grid](
                delta,
                self._weights[index + 1],
                source,
                below,
                self.batch,
                source.stride(1),
                source.stride(0),
                ROWS=layer.rows,
                INPUTS=layer.inputs,
                OUTPUTS=layer.outputs,
                KIND=self._activation,
                PRECISION=self._precision,
                BATCH_TILE=BATCH_TILE,
                INPUT_TILE=input_tile,
                OUTPUT_STEP=_tile(layer.outputs, 32),
                num_warps=8,
                num_stages=3,
            )
            delta = below
        self._weight_gradient(0, observation, 0, observation.stride(0), delta)

    def _weight_gradient(self, index: int, source: Tensor, net: int, row: int, delta: Tensor) -> None:
        layer = self._layers[index]
        row_tile, output_tile = _tile(layer.rows, 64), _tile(layer.outputs, 64)
        tiles = triton.cdiv(layer.rows, row_tile) * triton.cdiv(layer.outputs, output_tile)
        weight_gradient_kernel[(tiles, self.splits, 2)](
            source,
            delta,
            self.partial[:, layer.start :],
            self.batch,
            SPLIT_ROWS,
            net,
            row,
            self.partial.stride(0),
            ROWS=layer.rows,
            OUTPUTS=layer.outputs,
            PRECISION=self._precision,
            ROW_TILE=row_tile,
            OUTPUT_TILE=output_tile,
            BATCH_STEP=32,
            num_warps=4,
            num_stages=3,
        )
