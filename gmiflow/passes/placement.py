"""Where `place` puts the stages of a training, and which mappings can keep to it. For the checker, mapping and sizing.

GMIs run all stages of a group of roles, so a group is on one set of devices: those that `place` names for its stages.
What it does not name goes along with the group, or, when it names none of the group, is where the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Component, Stage, Workflow
from gmiflow.passes.templates import SUPPORTED, groups_of
from gmiflow.plan import Role, Template
from gmiflow.profiles.defaults import devices_of

__all__ = ["devices_text", "group_devices", "part", "require_matching", "torn"]

_PARTING: tuple[Template, ...] = ("ea_t", "e_at", "dp_mp")
"""In order of preference; the last one joins nothing, and every mode has it."""


def part(workflow: Workflow) -> Workflow:
    """The workflow, with the first mapping that keeps stages apart which `place` parts, where any would do."""
    target = workflow.target
    if target.mapping != "auto" or not torn(groups_of("dp_only", workflow), workflow):
        return workflow
    able: list[Template] = [template for template in _PARTING if template in SUPPORTED[workflow.mode]]
    template = next(template for template in able if not torn(groups_of(template, workflow), workflow))
    return replace(workflow, target=replace(target, mapping=template), parted=True)


def torn(groups: Sequence[Sequence[Role]], workflow: Workflow) -> tuple[Stage, Stage] | None:
    """Two stages that share GMIs and are placed on different devices; None when all groups can be where they should."""
    for component in workflow.components:
        for group in groups:
            placed = [stage for stage in component.stages if stage.role in group and stage.place]
            for stage in placed[1:]:
                if set(stage.place or ()) != set(placed[0].place or ()):
                    return placed[0], stage
    return None


def devices_text(stage: Stage) -> str:
    """The devices of a stage that is placed, as a message names them."""
    numbers = sorted(set(stage.place or ()))
    return f"device{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def group_devices(
    groups: Sequence[Sequence[Role]], workflow: Workflow, component: Component, index: int
) -> tuple[tuple[int, ...], ...]:
    """Devices of each group of a component, which is number ``index`` of its workflow."""
    found: list[tuple[int, ...]] = []
    for group in groups:
        named = {device for stage in component.stages if stage.role in group for device in stage.place or ()}
        found.append(tuple(sorted(named)) or devices_of(component, index, workflow))
    return tuple(found)


def require_matching(
    mapped: MappedWorkflow, component: Component, sizes: Sequence[int], devices: Sequence[Sequence[int]]
) -> None:
    """Look whether groups on different devices find each other.

    Args:
        mapped: of the component.
        component: to look at.
        sizes: GMIs of each group on one of its devices.
        devices: of each group.

    Raises:
        DiagnosticError: E0501 when pairs of GMIs have no partner, or some GMI would have nothing to work on.
    """
    if len(set(map(tuple, devices))) == 1:
        return
    totals = [size * len(where) for size, where in zip(sizes, devices, strict=True)]
    gmis = [f"{total} that {_verb(group)}" for total, group in zip(totals, mapped.groups, strict=True)]
    if mapped.template in ("e_at", "dp_mp") and totals[0] != totals[1]:
        message = f"mapping `{mapped.template}` pairs GMIs, and `place` leads to {gmis[0]} and {gmis[1]}"
        raise _refused(mapped.workflow, message, "place the simulator on as many devices as the agent")
    if (mapped.template == "mp_dp" or component.update == "apply") and totals[0] < totals[-1]:
        message = f"`place` leads to {gmis[-1]} for {gmis[0]}: some GMIs would have no work"
        raise _refused(mapped.workflow, message, "a GMI of the former needs one of the latter, or more, for itself")


def _verb(group: Sequence[Role]) -> str:
    if "agent" in group:
        return "collect" if "simulator" in group else "act"
    return "simulate" if "simulator" in group else "train"


def _refused(workflow: Workflow, message: str, note: str) -> DiagnosticError:
    return DiagnosticError(Diagnostic(code="E0501", message=message, span=workflow.target_span, notes=(note,)))
