"""From a minibatch to the flat buffer that replicas reduce: gradient, KL divergence, loss statistics."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from gmiflow.rl.losses import STATISTICS, LossSettings, LossWorkspace
from gmiflow.rl.models import ActorCritic
from gmiflow.rl.network import NetworkPass
from gmiflow.rl.samples import Rows

__all__ = ["MinibatchGradient"]


class MinibatchGradient:
    """Closed-form gradient of the PPO loss in torch operations; the reference for other backends.

    Attributes:
        reduced: [layout.size + len(STATISTICS)]: the gradient, then the statistics. Both are this
            replica's share: summed over all replicas they are the global minibatch's.
        gradient, statistics: the two parts, as views.
    """

    def __init__(
        self, policy: ActorCritic, settings: LossSettings, batches: Iterable[int], precision: str = "f32"
    ) -> None:
        """Allocate a workspace for every size of minibatch in ``batches``.

        On this path ``precision`` is whatever torch is set to for matrix products.
        """
        layout = policy.layout
        self._policy, self._settings, self._precision = policy, settings, precision
        self._flat = policy.flat.detach()
        self.reduced = self._flat.new_zeros(layout.size + len(STATISTICS))
        self.gradient, self.statistics = self.reduced[: layout.size], self.reduced[layout.size :]
        self._log_std, self._log_std_gradient = layout.log_std(self._flat), layout.log_std(self.gradient)
        self._allocate(sorted(set(batches)))

    def _allocate(self, batches: list[int]) -> None:
        """Buffers that only this implementation needs."""
        policy, flat = self._policy, self._flat
        self._networks = {n: NetworkPass(policy.layout, policy.activation, flat, n, self.gradient) for n in batches}
        self._losses = {n: LossWorkspace(self._settings, policy.layout.action, n, flat) for n in batches}

    def compute(self, rows: Rows, weight: float) -> None:
        """Fill `reduced` for one minibatch.

        Args:
            rows: its samples.
            weight: one over the global number of samples of the minibatch.
        """
        batch = rows.packed.shape[0]
        network = self._networks[batch]
        self._losses[batch].gradient(
            rows=rows,
            output=network.forward(rows.input),
            log_std=self._log_std,
            weight=weight,
            output_gradient=network.output_gradient,
            log_std_gradient=self._log_std_gradient,
            statistics=self.statistics,
        )
        network.backward(rows.input)

    @property
    def log_std(self) -> Tensor:
        """[action], a view of the parameters."""
        return self._log_std
