"""The mapped workflow: which roles share a GMI. Output of `passes.mapping`."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.ir.workflow import Workflow
from gmiflow.plan import Role, Template


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """An alternative that was not chosen, and the reason in one sentence."""

    choice: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedWorkflow:
    """A workflow with a mapping template.

    Attributes:
        groups: roles that share one GMI; `dp_only` has one group with all roles.
        origin: "given" by the user, or "chosen" by the pass, with the reason where not the model decided.
        shares: part of a device for each group of a split mapping, in all 1; empty when the times of the roles are
            not known and every GMI gets the same.
    """

    workflow: Workflow
    template: Template
    groups: tuple[tuple[Role, ...], ...]
    origin: str
    rejected: tuple[Rejected, ...]
    shares: tuple[float, ...] = ()
