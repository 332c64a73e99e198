"""`MinibatchGradient` in about a dozen kernels: layers with fused activations, the loss, one reduction."""

# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import triton
from torch import Tensor

from gmiflow.rl.gradient import MinibatchGradient
from gmiflow.rl.kernels.loss import STATISTICS_TILE, loss_kernel, reduce_kernel
from gmiflow.rl.kernels.network import Tiling, TritonNetwork
from gmiflow.rl.losses import MEAN_BOUND, STATISTICS
from gmiflow.rl.samples import Rows

__all__ = ["TritonGradient"]

LOSS_BATCH_TILE = 64
_REDUCE_TILE = 1024
_LOSS_ROWS_TILE = 64


class TritonGradient(MinibatchGradient):
    """See `MinibatchGradient`; ``precision`` holds for this object's matrix products alone."""

    tiling = Tiling()

    def _allocate(self, batches: list[int]) -> None:
        policy, flat = self._policy, self._flat
        action = policy.layout.action
        self._action_tile = triton.next_power_of_2(action)
        self._networks = {
            n: TritonNetwork(
                policy.layout, policy.activation, flat, n, precision=self._precision, trains=True, tiling=self.tiling
            )
            for n in batches
        }
        width = self._action_tile + STATISTICS_TILE
        self._loss_partials = {n: flat.new_zeros((triton.cdiv(n, LOSS_BATCH_TILE), width)) for n in batches}

    def compute(self, rows: Rows, weight: float) -> None:
        """See `MinibatchGradient.compute`."""
        batch = rows.packed.shape[0]
        network, partial = self._networks[batch], self._loss_partials[batch]
        self._loss(rows, network.forward(rows.input), network.output_gradient, partial, weight)
        network.backward(rows.input)
        programs = triton.cdiv(self._policy.layout.log_std_start, _REDUCE_TILE) + 1
        self._reduce(network.partial, partial, network.splits, (programs,))

    def _loss(self, rows: Rows, output: Tensor, gradient: Tensor, partial: Tensor, weight: float) -> None:
        settings = self._settings
        loss_kernel[(partial.shape[0],)](
            rows.packed,
            output,
            self._log_std,
            gradient,
            partial,
            rows.packed.shape[0],
            weight,
            rows.packed.stride(0),
            FIRST=rows.layout.input,
            ACTION=rows.layout.action,
            CLIP=settings.clip,
            VALUE_COEF=settings.value_coef,
            ENTROPY=settings.entropy,
            BOUNDS_LOSS=settings.bounds_loss,
            MEAN_BOUND=MEAN_BOUND,
            BATCH_TILE=LOSS_BATCH_TILE,
            ACTION_TILE=self._action_tile,
            STATISTICS=STATISTICS_TILE,
            num_warps=2,
        )

    def _reduce(self, weights: Tensor, losses: Tensor, splits: int, grid: tuple[int]) -> None:
        """Add partial sums; a grid of one program adds those of the losses only."""
        layout = self._policy.layout
        reduce_kernel[grid](
            weights,
            losses,
            self.reduced,
            splits,
            weights.stride(0),
            losses.shape[0],
            WEIGHTS=layout.log_std_start,
            SIZE=layout.size,
            ACTION=layout.action,
            ACTION_TILE=self._action_tile,
            STATISTICS=STATISTICS_TILE,
            COUNT=len(STATISTICS),
            TILE=_REDUCE_TILE,
            LOSS_TILE=_LOSS_ROWS_TILE,
            num_warps=8,
        )
