"""`MinibatchGradient` in about a dozen kernels: layers with fused activations, the loss, one reduction."""

# Triton is only there beside CUDA:
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import triton

from gmiflow.rl.gradient import MinibatchGradient
from gmiflow.rl.kernels.loss import STATISTICS_TILE, loss_kernel, reduce_kernel
from gmiflow.rl.kernels.network import TritonNetwork
from gmiflow.rl.losses import MEAN_BOUND, STATISTICS
from gmiflow.rl.samples import Rows

__all__ = ["TritonGradient"]

LOSS_BATCH_TILE = 64
_REDUCE_TILE = 1024
_LOSS_ROWS_TILE = 64


class TritonGradient(MinibatchGradient):
    """See `MinibatchGradient`; ``precision`` holds for this object's matrix products alone."""

    def _allocate(self, batches: list[int]) -> None:
        policy, flat = self._policy, self._flat
        action = policy.layout.action
        self._action_tile = triton.next_power_of_2(action)
        self._networks = {
            n: TritonNetwork(policy.layout, policy.activation, flat, n, precision=self._precision, trains=True)
            for n in batches
        }
        width = self._action_tile + STATISTICS_TILE
        self._loss_partials = {n: flat.new_zeros((triton.cdiv(n, LOSS_BATCH_TILE), width)) for n in batches}

    def compute(self, rows: Rows, weight: float) -> None:
        """See `MinibatchGradient.compute`."""
        batch = rows.packed.shape[0]
        network, partial = self._networks[batch], self._loss_partials[batch]
        layout, settings = self._policy.layout, self._settings
        output = network.forward(rows.input)
        loss_kernel[(partial.shape[0],)](
            rows.packed,
            output,
            self._log_std,
            network.output_gradient,
            partial,
            batch,
            weight,
            rows.packed.stride(0),
            FIRST=rows.layout.input,
            ACTION=layout.action,
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
        network.backward(rows.input)
        weights = layout.log_std_start
        reduce_kernel[(triton.cdiv(weights, _REDUCE_TILE) + 1,)](
            network.partial,
            partial,
            self.reduced,
            network.splits,
            network.partial.stride(0),
            partial.shape[0],
            WEIGHTS=weights,
            SIZE=layout.size,
            ACTION=layout.action,
            ACTION_TILE=self._action_tile,
            STATISTICS=STATISTICS_TILE,
            COUNT=len(STATISTICS),
            TILE=_REDUCE_TILE,
            LOSS_TILE=_LOSS_ROWS_TILE,
            num_warps=8,
        )
