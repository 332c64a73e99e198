"""The workflow with its communication. Output of `passes.comm_lowering`."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.ir.mapped import Rejected
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.plan import CollectiveKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One composition that could carry a collective, with its projected time per call.

    Attributes:
        name: of the composition: a primitive, "two_level", or one of the paper's hybrids with its k.
        kind: what the plan calls it; None for one that the runtime does not offer.
        published_s, corrected_s: by the paper's model as printed, and by its cost formulas (or measured);
            None when unknown.
        origin: of ``corrected_s``: "measured" or "modelled".
        reason: why it was not taken; "" for the chosen one.
    """

    name: str
    kind: CollectiveKind | None
    published_s: float | None
    corrected_s: float | None
    origin: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """A gradient collective among the trainer replicas of one component.

    Attributes:
        members: indices into `SizedWorkflow.slices`, in rank order.
        bytes: of the tensor that every minibatch reduces.
        bytes_origin: where that number comes from.
        profile: where the times come from.
        candidates: all compositions, the cheapest first.
    """

    name: str
    component: str
    kind: CollectiveKind
    members: tuple[int, ...]
    bytes: int
    bytes_origin: str
    profile: str
    candidates: tuple[Candidate, ...] = ()

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """What the plan could have named instead, with reasons."""
        return tuple(
            Rejected(choice=candidate.kind, reason=candidate.reason)
            for candidate in self.candidates
            if candidate.kind is not None and candidate.kind != self.kind
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CommWorkflow:
    """A sized workflow with a collective per component that has trainer replicas."""

    sized: SizedWorkflow
    collectives: tuple[Collective, ...]
