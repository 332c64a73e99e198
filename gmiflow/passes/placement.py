"""Where `place` puts the stages of a training, and which mappings can keep to it. For the checker, mapping and sizing.

GMIs run all stages of a group of roles, so a group is on one set of devices: those that `place` names for its stages.
What it does not name goes along with the group, or, when it names none of the group, is where the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gmiflow.diagnostics import Diagnostic, DiagnosticError, Label
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Component, Stage, Workflow, devices_text
from gmiflow.passes.templates import SUPPORTED, groups_of
from gmiflow.plan import Role, Template
from gmiflow.profiles.defaults import devices_of

__all__ = ["counted", "group_devices", "part", "parting", "require_matching", "takes_turns", "torn"]

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


def parting(workflow: Workflow) -> str:
    """What `place` puts on different devices, of the first component whose stages it parts, in words."""
    parted = next(
        c for c in workflow.components if torn(groups_of("dp_only", workflow), replace(workflow, components=(c,)))
    )
    found: dict[str, list[str]] = {}
    for stage in parted.stages:
        if stage.place:
            found.setdefault(devices_text(stage.place), []).append(f"`{stage.name}`")
    return ", ".join(f"{' and '.join(names)} on {devices}" for devices, names in found.items())


def takes_turns(mapped: MappedWorkflow) -> str:
    """A sentence about devices that wait for each other: in a `sync` workflow whose trainer has some alone; or ""."""
    workflow = mapped.workflow
    if workflow.mode != "sync" or mapped.groups[-1] != ("trainer",):
        return ""
    for index, component in enumerate(workflow.components):
        *others, trains = group_devices(mapped.groups, workflow, component, index)
        if not set(trains) & {device for group in others for device in group}:
            collect = devices_text(device for group in others for device in group)
            return (
                f"{collect} and {devices_text(trains)} take turns: "
                "in a `sync` workflow one waits while the other works; "
                "`mode = async { max_staleness = 1 }` lets both work at once"
            )
    return ""


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
    gmis = _counts(mapped.groups, totals)
    if mapped.template in ("e_at", "dp_mp") and totals[0] != totals[1]:
        message = f"mapping `{mapped.template}` pairs GMIs, and `place` leads to {gmis[0]} and {gmis[1]}"
        raise _refused(mapped.workflow, component, message, "place the simulator on as many devices as the agent")
    if (mapped.template == "mp_dp" or component.update == "apply") and totals[0] < totals[-1]:
        message = f"`place` leads to {gmis[-1]} for {gmis[0]}: some GMIs would have no work"
        note = "a GMI of the former needs one of the latter, or more, for itself"
        raise _refused(mapped.workflow, component, message, note)


def counted(groups: Sequence[Sequence[Role]], sizes: Sequence[int]) -> str:
    """GMIs of each group in words: "2 that collect, 1 that trains"."""
    return ", ".join(_counts(groups, sizes))


def _counts(groups: Sequence[Sequence[Role]], sizes: Sequence[int]) -> list[str]:
    return [f"{size} that {_verb(group)}{'s' if size == 1 else ''}" for size, group in zip(sizes, groups, strict=True)]


def _verb(group: Sequence[Role]) -> str:
    if "agent" in group:
        return "collect" if "simulator" in group else "act"
    return "simulate" if "simulator" in group else "train"


def _refused(workflow: Workflow, component: Component, message: str, note: str) -> DiagnosticError:
    """Points at what `place` says of the component's stages."""
    places = [stage.place_span for stage in component.stages if stage.place_span is not None]
    span, *others = places or [workflow.target_span]
    labels = tuple(Label(span=place, text="placed here, too") for place in others)
    return DiagnosticError(Diagnostic(code="E0501", message=message, span=span, secondary=labels, notes=(note,)))
