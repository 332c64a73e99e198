"""Mapping pass: which roles share a GMI.

In: a checked `Workflow`. Out: a `MappedWorkflow` with one template and every other template with
the reason why it was not taken. Not in here: how many GMIs and where (`sizing`).
"""

from __future__ import annotations

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow, Rejected
from gmiflow.ir.workflow import Component, Workflow
from gmiflow.plan import ModeKind, Role, Template
from gmiflow.profiles.volumes import volumes_of

TEMPLATES: dict[Template, tuple[tuple[Role, ...], ...]] = {
    "dp_only": (("simulator", "agent", "trainer"),),
    "e_at": (("simulator",), ("agent", "trainer")),
    "ea_t": (("simulator", "agent"), ("trainer",)),
    "dp_mp": (("simulator",), ("agent",), ("trainer",)),
    "mp_dp": (("simulator",), ("agent",)),
}
"""Template to the groups of roles that share one GMI (paper, section 4: the mapping templates)."""

_SUPPORTED: dict[ModeKind, frozenset[Template]] = {
    "serve": frozenset({"dp_only"}),
    "sync": frozenset({"dp_only", "ea_t"}),
    "async": frozenset({"dp_only", "ea_t"}),
}
"""What the runtime can run, by mode."""


def map_workflow(workflow: Workflow) -> MappedWorkflow:
    """Choose the mapping template.

    Raises:
        DiagnosticError: E0501 when the template asked for is not supported or does not fit the mode.
    """
    wished = workflow.target.mapping
    template: Template = "dp_only" if wished == "auto" else wished
    if template not in _SUPPORTED[workflow.mode] or not _fits(template, workflow):
        raise DiagnosticError(_refusal(template, workflow))
    roles = _roles(workflow.components[0])
    return MappedWorkflow(
        workflow=workflow,
        template=template,
        groups=_groups(template, roles),
        origin="chosen" if wished == "auto" else "given",
        rejected=tuple(Rejected(choice=t, reason=_reason(t, workflow)) for t in TEMPLATES if t != template),
    )


def _groups(template: Template, roles: frozenset[Role]) -> tuple[tuple[Role, ...], ...]:
    """The template's groups, without the roles that the workflow does not have."""
    groups: list[tuple[Role, ...]] = [tuple(role for role in group if role in roles) for group in TEMPLATES[template]]
    return tuple(group for group in groups if group)


def _roles(component: Component) -> frozenset[Role]:
    return frozenset(stage.role for stage in component.stages)


def _fits(template: Template, workflow: Workflow) -> bool:
    if template == "mp_dp":
        return workflow.mode == "serve"
    return template not in ("e_at", "ea_t") or workflow.mode != "serve"


def _reason(template: Template, workflow: Workflow) -> str:
    if not _fits(template, workflow):
        return f"`{template}` is not a template of {workflow.mode} workflows"
    if template == "dp_only":  # what `auto` takes
        return f"the target asks for `{workflow.target.mapping}`"
    moved = volumes_of(workflow.components[0]).step
    if template == "ea_t":
        return "the rollout would cross to the trainer, and the weights back, every iteration; `dp_only` moves neither"
    return f"{moved} bytes per environment and step would cross between GMIs; `dp_only` moves none of them"


def _refusal(template: Template, workflow: Workflow) -> Diagnostic:
    if not _fits(template, workflow):
        message = f"mapping `{template}` does not fit a {workflow.mode} workflow"
    else:
        message = f"mapping `{template}` is not supported yet"
    return Diagnostic(
        code="E0501",
        message=message,
        span=workflow.span,
        notes=("supported: `dp_only`, `ea_t` for training, or `auto`",),
    )
