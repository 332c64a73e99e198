"""Adam over one flat tensor, with gradient clipping and a learning rate that follows the KL divergence."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LEARNING_RATE_RANGE", "RATE_FACTOR", "FlatAdam"]

LEARNING_RATE_RANGE = (1e-6, 1e-2)
RATE_FACTOR = 1.5


class FlatAdam:
    """Adam (Kingma and Ba 2015) whose every scalar lives on the device.

    Attributes:
        learning_rate: f32 scalar tensor.
        sums: what every `step` adds to: the statistics it was given, then the norm of the gradient
            before clipping. The caller sets it to zero.
    """

    def __init__(
        self,
        flat: Tensor,
        *,
        learning_rate: float,
        kl_target: float,
        max_grad_norm: float,
        statistics: int = 1,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        """Prepare to update ``flat``, [n], in place.

        Args:
            flat: parameters.
            learning_rate: initial rate.
            kl_target: the rate falls above twice and rises below half of it; 0 keeps it constant.
            max_grad_norm: longer gradients are scaled down to it; 0 turns clipping off.
            statistics: how many statistics follow the gradient; the first is the KL divergence.
            betas: decay of the first and second moment.
            epsilon: added to the root of the second moment.
        """
        self._flat = flat
        self._betas = betas
        self._epsilon = epsilon
        self._kl_target = kl_target
        self._max_grad_norm = max_grad_norm
        self._first, self._second = torch.zeros_like(flat), torch.zeros_like(flat)
        self._step = torch.zeros((), dtype=torch.float32, device=flat.device)
        self.learning_rate = torch.full((), learning_rate, dtype=torch.float32, device=flat.device)
        self.sums = torch.zeros(statistics + 1, dtype=flat.dtype, device=flat.device)
        self._norm = torch.zeros((), dtype=flat.dtype, device=flat.device)
        self._shrink = torch.ones((), dtype=torch.float32, device=flat.device)
        self._up = torch.tensor(RATE_FACTOR, device=flat.device)
        self._down = torch.tensor(1.0 / RATE_FACTOR, device=flat.device)
        self._allocate()

    def _allocate(self) -> None:
        """Buffers that another implementation needs."""

    def step(self, reduced: Tensor) -> None:
        """Adapt the learning rate to the divergence, then update the parameters.

        Args:
            reduced: gradient [n], then the statistics; the gradient may be scaled in place.
        """
        size = self._flat.numel()
        statistics = reduced[size:]
        self.sums[:-1].add_(statistics)
        self._adapt(statistics[0])
        self._apply(reduced[:size])
        self.sums[-1].add_(self._norm)

    def _adapt(self, kl: Tensor) -> None:
        """Move the learning rate by a factor 1.5 when ``kl``, scalar, is outside [0.5, 2] of the target."""
        if self._kl_target <= 0.0:
            return
        rate = self.learning_rate
        raised = torch.where(kl < 0.5 * self._kl_target, rate * self._up, rate)
        lowered = torch.where(kl > 2.0 * self._kl_target, rate * self._down, raised)
        torch.clamp(lowered, *LEARNING_RATE_RANGE, out=rate)

    def _apply(self, gradient: Tensor) -> None:
        """Clip and update."""
        torch.linalg.vector_norm(gradient, out=self._norm)
        if self._max_grad_norm > 0.0:
            torch.div(self._norm, self._max_grad_norm, out=self._shrink).clamp_(min=1.0)
        self._step.add_(1.0)
        # The kernel of torch.optim.Adam(fused=True); it divides by the scale for free.
        torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
            [self._flat],
            [gradient],
            [self._first],
            [self._second],
            [],
            [self._step],
            lr=self.learning_rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=self._shrink if self._max_grad_norm > 0.0 else None,
            found_inf=None,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that resumes the optimizer."""
        return {
            "learning_rate": self.learning_rate,
            "step": self._step,
            "first_moment": self._first,
            "second_moment": self._second,
        }
