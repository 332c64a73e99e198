"""Dispenser: splits what crosses from agent to trainer by kind.

A kind is one tensor: a field of the agent's record, a signal of the simulator, or a value taken once after
the last step. Everything is derived from the typed edges of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.rollout import Field, Routes, fields_of, kind_name

__all__ = ["Dispenser", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of experience.

    Attributes:
        field: where it comes from, and its type at one step.
        lift: whether it is stacked over the horizon.
    """

    field: Field
    lift: bool

    @property
    def name(self) -> str:
        """As in `ChannelPlan.groups`: "actor.experience.obs", and "actor.bootstrap@last" for what is taken once."""
        return kind_name(self.field, lift=self.lift)

    @property
    def env_axis(self) -> int | None:
        """The axis of the environments, None for a tensor without."""
        axes = self.field.type.axes
        return axes.index("env") + int(self.lift) if "env" in axes else None

    def shape(self, horizon: int, num_env: int) -> tuple[int, ...]:
        """[horizon, num_env, ...] when lifted, else [num_env, ...]."""
        step = self.field.type.shape(num_env)
        return (horizon, *step) if self.lift else step

    def size_bytes(self, horizon: int, num_env: int) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape(horizon, num_env)) * self.dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.field.type.dtype


class Dispenser:
    """The kinds of one training.

    Attributes:
        kinds: each once, in the order of the edges.
    """

    def __init__(self, training: TrainingPlan) -> None:
        """Look through the edges into the trainer."""
        self._edges = Routes(training).trainer_edges()
        kinds = [Kind(field, edge.lift) for edge in self._edges for field in fields_of(edge)]
        self.kinds = tuple({kind.name: kind for kind in kinds}.values())

    def ports(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor | Mapping[str, Tensor]]:
        """The trainer's in ports from tensors by kind: what was split is put together again."""
        batch: dict[str, Tensor | Mapping[str, Tensor]] = {}
        for edge in self._edges:
            found = {field.field: tensors[kind_name(field, lift=edge.lift)] for field in fields_of(edge)}
            port = edge.target.partition(".")[2]
            batch[port] = found[None] if None in found else {str(name): value for name, value in found.items()}
        return batch
