"""The workflow with its communication. Output of `passes.comm_lowering`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gmiflow.ir.mapped import Rejected
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.plan import Cargo, ChannelKind, CollectiveKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One composition that could carry a collective, with its projected time per call.

    Attributes:
        name: of the composition: a primitive, "two_level", or one of the paper's hybrids with its k.
        kind, rings: what the plan calls it, see `plan.CollectivePlan`.
        published_s, corrected_s: by the paper's model as printed, and by its cost formulas (or measured);
            None when unknown.
        origin: of ``corrected_s``: "measured" or "modelled".
        reason: why it was not taken; "" for the chosen one.
    """

    name: str
    kind: CollectiveKind
    published_s: float | None
    corrected_s: float | None
    origin: str
    reason: str
    rings: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """A gradient collective among the trainer replicas of one component.

    Attributes:
        members: indices into `SizedWorkflow.slices`, in rank order.
        bytes: of the tensor that every minibatch reduces.
        bytes_origin: where that number comes from.
        profile: where the times come from.
        candidates: all compositions, the cheapest first.
        rings: as `plan.CollectivePlan.rings`.
    """

    name: str
    component: str
    kind: CollectiveKind
    members: tuple[int, ...]
    bytes: int
    bytes_origin: str
    profile: str
    candidates: tuple[Candidate, ...] = ()
    rings: int = 0

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """What the plan could have named instead, with reasons."""
        return tuple(
            Rejected(choice=candidate.kind, reason=candidate.reason)
            for candidate in self.candidates
            if candidate.kind != self.kind
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A channel from the GMIs that collect to one that trains, or between one that simulates alone and one that acts.

    Attributes:
        producers: indices into `SizedWorkflow.slices`, in order of their environments.
        consumer: such an index too.
        depth: rollouts that may be under way besides the one that is being trained on.
        env_offset, num_env: range of environments that a slot holds.
        groups: names of the kinds that are packed together.
        bytes: of one rollout of these environments; or of one step, both ways.
        top_mov: of the grouping, in bytes; see `passes.packing`.
        carries: rollouts, or single steps.
        reason: why it goes by the host though its members are on GPUs, else "".
    """

    name: str
    component: str
    kind: ChannelKind
    producers: tuple[int, ...]
    consumer: int
    depth: int
    on_full: Literal["block", "drop_oldest"]
    env_offset: int
    num_env: int
    groups: tuple[tuple[str, ...], ...]
    bytes: int
    top_mov: float
    carries: Cargo = "rollout"
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """Parameters in shared memory that the trainers of one component apply their gradients to, one at a time.

    Attributes:
        members: indices into `SizedWorkflow.slices`.
        bytes: of one gradient.
        bytes_origin: where that number comes from.
        at_once: rollouts that may be collected or trained on at the same time: with more the bound on staleness could
            not be kept.
    """

    name: str
    component: str
    members: tuple[int, ...]
    bytes: int
    bytes_origin: str
    at_once: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommWorkflow:
    """A sized workflow with a collective for each group of trainer replicas, and channels where roles are split."""

    sized: SizedWorkflow
    collectives: tuple[Collective, ...]
    channels: tuple[Channel, ...] = ()
    applied: tuple[Applied, ...] = ()
