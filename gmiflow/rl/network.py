"""Actor and critic as one batched network with a hand-written backward pass.

Both networks have the same hidden sizes and read the same observation, so layer ``l`` of both is
one batched matrix product over weights of shape [2, rows, outputs] (0 is the actor, 1 the critic).
The bias is the weight row of an input column that is always one: it needs no kernel forward, and
its gradient falls out of the product that gives the weight gradient. Rows are padded to a multiple
of eight, which keeps every matrix aligned for tensor cores; the padding multiplies zeros, so its
weights never get a gradient. The critic's output layer has the actor's width too, of which only
column 0 is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from gmiflow.rl.layout import NetworkLayout

__all__ = ["ACTOR", "CRITIC", "Activation", "NetworkPass", "apply_activation"]

ACTOR, CRITIC = 0, 1
_LOG2_E = 1.0 / math.log(2.0)

Activation: TypeAlias = Literal["elu", "relu", "tanh"]


def apply_activation(kind: Activation, value: Tensor) -> Tensor:
    """The activation as a differentiable function."""
    return {"elu": functional.elu, "relu": functional.relu, "tanh": torch.tanh}[kind](value)


def _elu_(value: Tensor, scratch: Tensor) -> None:
    """ELU in place. On the CPU max(x, 2^(min(x, 0) log2 e) - 1): torch's own takes expm1, which costs four exp2."""
    if value.is_cuda:
        functional.elu_(value)
        return
    torch.mul(value, _LOG2_E, out=scratch).clamp_(max=0.0).exp2_().sub_(1.0)
    torch.maximum(value, scratch, out=value)


def _elu_backward_(gradient: Tensor, output: Tensor) -> None:
    torch.ops.aten.elu_backward.grad_input(gradient, 1.0, 1.0, 1.0, True, output, grad_input=gradient)


def _relu_backward_(gradient: Tensor, output: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(gradient, output, 0.0, grad_input=gradient)


def _tanh_backward_(gradient: Tensor, output: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(gradient, output, grad_input=gradient)


_FORWARD: dict[Activation, Callable[[Tensor, Tensor], object]] = {
    "elu": _elu_,
    "relu": lambda value, _scratch: value.clamp_(min=0.0),
    "tanh": lambda value, _scratch: value.tanh_(),
}
_BACKWARD: dict[Activation, Callable[[Tensor, Tensor], None]] = {
    "elu": _elu_backward_,
    "relu": _relu_backward_,
    "tanh": _tanh_backward_,
}


class NetworkPass:
    """Forward and backward through both networks for batches of one size, in preallocated buffers.

    Attributes:
        output: [2, batch, action]: ``output[ACTOR]`` is the mean, ``output[CRITIC, :, 0]`` the
            value in normalised units.
        output_gradient: [2, batch, action], to be filled before `backward`; unused columns of the
            critic stay zero.
    """

    def __init__(
        self,
        layout: NetworkLayout,
        activation: Activation,
        flat: Tensor,
        batch: int,
        flat_gradient: Tensor | None = None,
    ) -> None:
        """Allocate buffers.

        Args:
            layout: sizes.
            activation: of the hidden layers.
            flat: parameters; read through views, so in-place changes are seen.
            batch: rows of every input.
            flat_gradient: receives gradients; None for inference only.
        """
        self.batch = batch
        layers = layout.layers
        self._forward_activation = _FORWARD[activation]
        self._backward_activation = _BACKWARD[activation]
        self._weights = layout.weights(flat)
        # Layer l reads _inputs[l]; the first input is given, the others are the outputs before.
        self._inputs: list[Tensor] = []
        for layer in layers[1:]:
            buffer = torch.zeros((2, batch, layer.rows), dtype=flat.dtype, device=flat.device)
            buffer[..., layer.inputs] = 1.0
            self._inputs.append(buffer)
        self.output = torch.zeros((2, batch, layout.action), dtype=flat.dtype, device=flat.device)
        self._outputs = [x[..., : layer.inputs] for x, layer in zip(self._inputs, layers[1:], strict=True)]
        needs_scratch = activation == "elu" and not flat.is_cuda
        self._scratch = [
            torch.empty_like(x, memory_format=torch.contiguous_format) for x in self._outputs * needs_scratch
        ]
        if not needs_scratch:
            self._scratch = self._outputs
        if flat_gradient is not None:
            self._gradients = layout.weights(flat_gradient)
            self._deltas = [
                torch.empty((2, batch, layer.inputs), dtype=flat.dtype, device=flat.device) for layer in layers[1:]
            ]
            self.output_gradient = torch.zeros_like(self.output)
            self._transposed_inputs = [x.transpose(1, 2) for x in self._inputs]
            self._transposed_weights = [
                w[:, : layer.inputs].transpose(1, 2) for w, layer in zip(self._weights[1:], layers[1:], strict=True)
            ]

    def forward(self, observation: Tensor) -> Tensor:
        """Evaluate both networks.

        Args:
            observation: [batch, rows of layer 0]: normalised observation, a column of ones, zeros.
                Rows may be strided.

        Returns:
            `output`.
        """
        value = observation.unsqueeze(0).expand(2, -1, -1)
        for weight, output, padded, scratch in zip(
            self._weights[:-1], self._outputs, self._inputs, self._scratch, strict=True
        ):
            torch.bmm(value, weight, out=output)
            self._forward_activation(output, scratch)
            value = padded
        return torch.bmm(value, self._weights[-1], out=self.output)

    def backward(self, observation: Tensor) -> None:
        """Write the parameter gradients for `output_gradient` after `forward` of the same batch."""
        delta = self.output_gradient
        for index in range(len(self._deltas) - 1, -1, -1):
            torch.bmm(self._transposed_inputs[index], delta, out=self._gradients[index + 1])
            below = self._deltas[index]
            torch.bmm(delta, self._transposed_weights[index], out=below)
            self._backward_activation(below, self._outputs[index])
            delta = below
        first = observation.unsqueeze(0).expand(2, -1, -1).transpose(1, 2)
        torch.bmm(first, delta, out=self._gradients[0])
