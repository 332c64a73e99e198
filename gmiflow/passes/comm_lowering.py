"""Communication lowering: how data crosses between GMIs.

In: a `SizedWorkflow` and what all-reduces cost. Out: a `CommWorkflow` with one gradient collective for each
component whose trainer has replicas (`collective_choice`), and the channels of a split mapping (`channel_lowering`,
`step_lowering`). Not in here: measuring (`gmiflow bench collective`), files and launching (`planning`).
"""

from __future__ import annotations

from collections import Counter

from gmiflow.compatibility import incompatibilities
from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.comm import Applied, Channel, Collective, CommWorkflow
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Component
from gmiflow.passes.collective_choice import choose
from gmiflow.profiles.calibration import CollectiveProfile
from gmiflow.profiles.volumes import gradient_bytes


def lower_comm(sized: SizedWorkflow, profile: CollectiveProfile) -> CommWorkflow:
    """Choose the primitive of every collective.

    Args:
        sized: the workflow.
        profile: times of all-reduces on the target, measured or built in.

    Raises:
        DiagnosticError: E0503 for a backend that cannot do what the workflow asks of it.
    """
    _require_possible(sized)
    collectives: list[Collective] = []
    channels: list[Channel] = []
    applied: list[Applied] = []
    for component in sized.mapped.workflow.components:
        members = tuple(
            index
            for index, part in enumerate(sized.slices)
            if part.component == component.name and "trainer" in part.group
        )
        if component.update == "apply" and len(sized.mapped.groups) > 1:
            applied.append(_applied(sized, component, members))
        elif len(members) > 1:
            collectives.append(_collective(sized, component, members, profile))
        if len(sized.mapped.groups) > 1:  # few workflows split their roles: what they need is imported here
            from gmiflow.passes.channel_lowering import lower_channels
            from gmiflow.passes.step_lowering import lower_steps

            channels += [*lower_steps(sized, component), *lower_channels(sized, component)]
    return CommWorkflow(sized=sized, collectives=tuple(collectives), channels=tuple(channels), applied=tuple(applied))


def _applied(sized: SizedWorkflow, component: Component, members: tuple[int, ...]) -> Applied:
    """What trainers share that do not reduce.

    Raises:
        DiagnosticError: E0407 for channels that drop rollouts, which are promised a place in the order of updates.
    """
    dropping = next((edge for edge in component.edges if edge.on_full == "drop_oldest"), None)
    if dropping is not None:
        notes = ("with `update = apply` every rollout that is begun is trained on: leave `on_full = block`",)
        message = "trainers that apply their gradients asynchronously take every rollout"
        raise DiagnosticError(Diagnostic(code="E0407", message=message, span=dropping.span, notes=notes))
    size, origin = gradient_bytes(component)
    return Applied(
        name=f"{component.name}.shared",
        component=component.name,
        members=members,
        bytes=size,
        bytes_origin=origin,
        at_once=sized.mapped.workflow.max_staleness + 1,
    )


def _collective(
    sized: SizedWorkflow, component: Component, members: tuple[int, ...], profile: CollectiveProfile
) -> Collective:
    size, origin = gradient_bytes(component)
    found = choose(sized, [sized.slices[index] for index in members], size, profile)
    chosen = next(item for item in found if not item.reason)
    source = f"measured on {profile.date}" if profile.origin == "measured" else "modelled"
    return Collective(
        name=f"{component.name}.gradient",
        component=component.name,
        kind=chosen.kind,
        members=members,
        bytes=size,
        bytes_origin=origin,
        profile=f"{source}: {profile.machine}",
        candidates=found,
        rings=chosen.rings,
    )


def _require_possible(sized: SizedWorkflow) -> None:
    """What the backend alone cannot do."""
    workflow = sized.mapped.workflow
    crowd = max(Counter(part.device for part in sized.slices).values())
    foreign = any(stage.python for component in workflow.components for stage in component.stages)
    found = incompatibilities(
        sized.backend,
        members_per_gpu=crowd,
        process_isolation=workflow.on_failure == "restart",
        foreign_simulator=foreign,
        memory_cap=any(part.memory_mib for part in sized.slices),
    )
    if len(sized.mapped.groups) > 1 and sized.backend == "green":
        message = "channels join GMIs of processes of their own, and green GMIs share one"
        raise DiagnosticError(
            Diagnostic(
                code="E0503", message=message, span=workflow.target_at("backend"), notes=("use `backend = mps`",)
            )
        )
    if found:
        notes = tuple(f"{problem.mend}" for problem in found)
        message = f"backend `{sized.backend}` cannot run this workflow: {'; '.join(p.reason for p in found)}"
        raise DiagnosticError(
            Diagnostic(code="E0503", message=message, span=workflow.target_at("backend"), notes=notes)
        )
