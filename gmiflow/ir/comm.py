"""The workflow with its communication. Output of `passes.comm_lowering`."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.ir.mapped import Rejected
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.plan import CollectiveKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """A gradient collective among the trainer replicas of one component.

    Attributes:
        members: indices into `SizedWorkflow.slices`, in rank order.
    """

    name: str
    component: str
    kind: CollectiveKind
    members: tuple[int, ...]
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommWorkflow:
    """A sized workflow with a collective per component that has trainer replicas."""

    sized: SizedWorkflow
    collectives: tuple[Collective, ...]
