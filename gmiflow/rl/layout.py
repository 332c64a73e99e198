"""Where the weights of actor and critic lie, and which tensors their policy has: sizes alone, without torch.

The launcher compares them with the header of a checkpoint before it starts anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Layer", "NetworkLayout", "declared_policy"]

_ALIGNMENT = 8
_AGENTS = frozenset({"gmiflow.rl.ppo:Actor"})
"""Entries whose policy is an `ActorCritic`."""
_STATISTICS = ("mean", "variance", "center", "deviation", "scale", "shift")
"""Of a `RunningNormalizer`, each in the shape of what it normalises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer of both networks: weights [2, rows, outputs] at ``start`` of the flat tensor.

    Rows ``0 .. inputs - 1`` are the weight matrix, row ``inputs`` is the bias, the rest is padding.
    """

    inputs: int
    outputs: int
    rows: int
    start: int

    @property
    def size(self) -> int:
        """Elements in the flat tensor."""
        return 2 * self.rows * self.outputs


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkLayout:
    """Where everything lies in the flat parameter tensor: the layers, then log_std."""

    observation: int
    hidden: tuple[int, ...]
    action: int

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, the output layer last."""
        sizes = (self.observation, *self.hidden, self.action)
        layers: list[Layer] = []
        start = 0
        for inputs, outputs in pairwise(sizes):
            rows = -(-(inputs + 1) // _ALIGNMENT) * _ALIGNMENT
            layers.append(Layer(inputs=inputs, outputs=outputs, rows=rows, start=start))
            start += layers[-1].size
        return tuple(layers)

    @property
    def log_std_start(self) -> int:
        """Offset of log_std, [action]."""
        last = self.layers[-1]
        return last.start + last.size

    @property
    def size(self) -> int:
        """Elements of the flat tensor, rounded up so that what follows it stays aligned."""
        return -(-(self.log_std_start + self.action) // _ALIGNMENT) * _ALIGNMENT

    def weights(self, flat: Tensor) -> list[Tensor]:
        """Views [2, rows, outputs] of a flat tensor (parameters or gradients), one per layer."""
        return [
            flat[layer.start : layer.start + layer.size].view(2, layer.rows, layer.outputs) for layer in self.layers
        ]

    def log_std(self, flat: Tensor) -> Tensor:
        """View [action] of a flat tensor."""
        return flat[self.log_std_start : self.log_std_start + self.action]


def declared_policy(
    entry: str, params: Mapping[str, object], shapes: Mapping[str, int]
) -> dict[str, tuple[int, ...]] | None:
    """The tensors of the policy that an agent makes, by name, as its declaration tells them.

    Args:
        entry: "package.module:Class" of the agent.
        params: its parameters.
        shapes: the shape variables O and A: numbers in an observation and in an action.

    Returns:
        The shapes; None for an agent whose class alone knows them.
    """
    hidden, observation, action = params.get("hidden"), shapes.get("O"), shapes.get("A")
    if entry not in _AGENTS or observation is None or action is None or not isinstance(hidden, list | tuple):
        return None
    widths = cast("list[object]", hidden)
    inner = tuple(width for width in widths if isinstance(width, int))
    if len(inner) < len(widths):
        return None
    found: dict[str, tuple[int, ...]] = {
        "flat": (NetworkLayout(observation=observation, hidden=inner, action=action).size,)
    }
    normalized: dict[str, tuple[int, ...]] = {"observation_normalizer": (observation,), "value_normalizer": ()}
    for normalizer, shape in normalized.items():
        found[f"{normalizer}.count"] = ()
        found |= {f"{normalizer}.{name}": shape for name in _STATISTICS}
    return found
