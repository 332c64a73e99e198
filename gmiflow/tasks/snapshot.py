"""The state that an observation is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

__all__ = ["Snapshot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What an observation is made of: one row per environment, all f32.

    Attributes:
        qpos: [n, nq], generalised positions.
        qvel: [n, nv], generalised velocities.
        action: [n, A], the action that led here, clamped; zero at the start of an episode.
        derived: the fields of `Task.derived`; zero at the start of an episode.
        memory: what the task remembers (`Task.remember`), by name; its first values at the start of an episode.
    """

    qpos: Tensor
    qvel: Tensor
    action: Tensor
    derived: Mapping[str, Tensor]
    memory: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
