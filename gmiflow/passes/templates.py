"""The mapping templates: which roles share a GMI in each, and which modes run it."""

from __future__ import annotations

from gmiflow.ir.workflow import Workflow
from gmiflow.plan import ModeKind, Role, Template

__all__ = ["SUPPORTED", "TEMPLATES", "groups_of"]

TEMPLATES: dict[Template, tuple[tuple[Role, ...], ...]] = {
    "dp_only": (("simulator", "agent", "trainer"),),
    "e_at": (("simulator",), ("agent", "trainer")),
    "ea_t": (("simulator", "agent"), ("trainer",)),
    "dp_mp": (("simulator",), ("agent",), ("trainer",)),
    "mp_dp": (("simulator",), ("agent",)),
}
"""Template to the groups of roles that share one GMI (paper, section 4: the mapping templates)."""

SUPPORTED: dict[ModeKind, frozenset[Template]] = {
    "serve": frozenset({"dp_only", "mp_dp", "dp_mp"}),
    "sync": frozenset({"dp_only", "dp_mp", "e_at", "ea_t"}),
    "async": frozenset({"dp_only", "dp_mp", "ea_t"}),
}
"""What runs, by mode."""


def groups_of(template: Template, workflow: Workflow) -> tuple[tuple[Role, ...], ...]:
    """The template's groups, without the roles that the workflow does not have."""
    roles = {stage.role for stage in workflow.components[0].stages}
    groups: list[tuple[Role, ...]] = [tuple(role for role in group if role in roles) for group in TEMPLATES[template]]
    return tuple(group for group in groups if group)
