"""Mapping pass: which roles share a GMI.

In: a checked `Workflow`. Out: a `MappedWorkflow` with one template and every other template with
the reason why it was not taken. Not in here: how many GMIs and where (`sizing`).
"""

from __future__ import annotations

import math

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow, Rejected
from gmiflow.ir.workflow import Component, TensorType, Workflow
from gmiflow.plan import Role, Template

TEMPLATES: dict[Template, tuple[tuple[Role, ...], ...]] = {
    "dp_only": (("simulator", "agent", "trainer"),),
    "e_at": (("simulator",), ("agent", "trainer")),
    "ea_t": (("simulator", "agent"), ("trainer",)),
    "dp_mp": (("simulator",), ("agent",), ("trainer",)),
    "mp_dp": (("simulator",), ("agent",)),
}
"""Template to the groups of roles that share one GMI (paper, section 4: the mapping templates)."""

_DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "bool": 1}

_SUPPORTED: frozenset[Template] = frozenset({"dp_only"})


def map_workflow(workflow: Workflow) -> MappedWorkflow:
    """Choose the mapping template.

    Raises:
        DiagnosticError: E0501 when the template asked for is not supported or does not fit the mode.
    """
    wished = workflow.target.mapping
    template: Template = "dp_only" if wished == "auto" else wished
    if template not in _SUPPORTED or not _fits(template, workflow):
        raise DiagnosticError(_refusal(template, workflow))
    roles = _roles(workflow.components[0])
    return MappedWorkflow(
        workflow=workflow,
        template=template,
        groups=_groups(template, roles),
        origin="chosen" if wished == "auto" else "given",
        rejected=tuple(Rejected(choice=t, reason=_reason(t, workflow)) for t in TEMPLATES if t != template),
    )


def bytes_per_step(component: Component) -> int:
    """Bytes that one environment sends per step from the simulator to the agent and back.

    The paper's S + A + W (section 4.2): state, action and the trainer's per-step signals.
    """
    simulator = component.stage("simulator")
    if simulator is None:
        return 0
    return sum(
        _DTYPE_BYTES[edge.type.dtype] * math.prod(dim for dim in edge.type.shape if isinstance(dim, int))
        for edge in component.edges
        if isinstance(edge.type, TensorType) and simulator.name in (edge.source_stage, edge.target_stage)
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
    moved = bytes_per_step(workflow.components[0])
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
        notes=("supported: `dp_only`, or `auto`",),
    )
