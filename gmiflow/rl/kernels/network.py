"""Forward and backward of actor and critic with fused Triton layers."""

# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from gmiflow.rl.kernels.linear import forward_kernel, input_gradient_kernel, weight_gradient_kernel
from gmiflow.rl.layout import NetworkLayout
from gmiflow.rl.network import Activation

__all__ = ["Tiling", "TritonNetwork"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiling:
    """How the layers are cut into programs; benchmarks/update_gpu.py compares cuts.

    Attributes:
        batch: batch rows per program of the forward pass and of the input gradients.
        columns: output columns per program, at most.
        step: length of one step of the sum.
        warps, stages: of those kernels.
        split: batch rows whose weight gradient one program sums.
        weight: rows and columns of the weight gradient per program, at most.
        weight_step: batch rows per step of that sum.
        weight_warps: of that kernel.
    """

    batch: int = 128
    columns: int = 128
    step: int = 32
    warps: int = 8
    stages: int = 3
    split: int = 1024
    weight: int = 64
    weight_step: int = 32
    weight_warps: int = 4


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
        tiling: Tiling | None = None,
    ) -> None:
        """Allocate; with bf16 precision hidden activations are stored as bf16 too."""
        self.batch = batch
        self._tiling = tiling = tiling or Tiling()
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
            self.splits = max(1, triton.cdiv(batch, tiling.split))
            self.partial = torch.zeros((self.splits, layout.log_std_start), dtype=torch.float32, device=device)

    def forward(self, observation: Tensor) -> Tensor:
        """Evaluate [batch, rows of layer 0] (rows may be strided); returns `output`."""
        tiling = self._tiling
        source, net, row = observation, 0, observation.stride(0)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            target = self.output if index == last else self._inputs[index]
            output_tile = _tile(layer.outputs, tiling.columns)
            grid = (triton.cdiv(self.batch, tiling.batch), triton.cdiv(layer.outputs, output_tile), 2)
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
                BATCH_TILE=tiling.batch,
                OUTPUT_TILE=output_tile,
                ROWS_STEP=_tile(layer.rows, tiling.step),
                num_warps=tiling.warps,
                num_stages=tiling.stages,
            )
            source, net, row = target, target.stride(0), target.stride(1)
        return self.output

    def backward(self, observation: Tensor) -> None:
        """Fill `partial` for `output_gradient` after `forward` of the same batch."""
        tiling, delta = self._tiling, self.output_gradient
        for index in range(len(self._deltas) - 1, -1, -1):
            source, layer = self._inputs[index], self._layers[index + 1]
            self._weight_gradient(index + 1, source, source.stride(0), source.stride(1), delta)
            below = self._deltas[index]
            input_tile = _tile(layer.inputs, tiling.columns)
            grid = (triton.cdiv(self.batch, tiling.batch), triton.cdiv(layer.inputs, input_tile), 2)
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
                BATCH_TILE=tiling.batch,
                INPUT_TILE=input_tile,
                OUTPUT_STEP=_tile(layer.outputs, tiling.step),
                num_warps=tiling.warps,
                num_stages=tiling.stages,
            )
            delta = below
        self._weight_gradient(0, observation, 0, observation.stride(0), delta)

    def _weight_gradient(self, index: int, source: Tensor, net: int, row: int, delta: Tensor) -> None:
        tiling, layer = self._tiling, self._layers[index]
        row_tile, output_tile = _tile(layer.rows, tiling.weight), _tile(layer.outputs, tiling.weight)
        tiles = triton.cdiv(layer.rows, row_tile) * triton.cdiv(layer.outputs, output_tile)
        weight_gradient_kernel[(tiles, self.splits, 2)](
            source,
            delta,
            self.partial[:, layer.start :],
            self.batch,
            tiling.split,
            net,
            row,
            self.partial.stride(0),
            ROWS=layer.rows,
            OUTPUTS=layer.outputs,
            PRECISION=self._precision,
            ROW_TILE=row_tile,
            OUTPUT_TILE=output_tile,
            BATCH_STEP=tiling.weight_step,
            num_warps=tiling.weight_warps,
            num_stages=tiling.stages,
        )
