"""Communication lowering: how data crosses between GMIs.

In: a `SizedWorkflow` and what all-reduces cost. Out: a `CommWorkflow` with one gradient collective for each
component whose trainer has replicas: the cheapest composition that can work there, and why the others were
not taken; and the channels of a split mapping (`channel_lowering`, in serving `step_lowering`). Not in here:
measuring (`gmiflow bench collective`), files and launching (`planning`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gmiflow.compatibility import incompatibilities
from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.comm import Applied, Candidate, Channel, Collective, CommWorkflow
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Component
from gmiflow.plan import CollectiveKind
from gmiflow.profiles.calibration import CollectiveProfile
from gmiflow.profiles.candidates import Choice, Projected, candidates
from gmiflow.profiles.volumes import gradient_bytes

KINDS: dict[CollectiveKind, Choice] = {
    "local": "local",
    "ipc": "ipc",
    "rp": "rp",
    "hybrid": "two_level",
    "ip": "ip",
}
"""What the plan can name, and the composition behind it."""


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
            if sized.mapped.workflow.mode == "serve":
                from gmiflow.passes.step_lowering import lower_steps

                channels += lower_steps(sized, component)
            else:
                from gmiflow.passes.channel_lowering import lower_channels

                channels += lower_channels(sized, component)
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
    found = _candidates(sized, [sized.slices[index] for index in members], size, profile)
    chosen: CollectiveKind = next(item.kind for item in found if item.kind is not None and not item.reason)
    source = f"measured on {profile.date}" if profile.origin == "measured" else "modelled"
    return Collective(
        name=f"{component.name}.gradient",
        component=component.name,
        kind=chosen,
        members=members,
        bytes=size,
        bytes_origin=origin,
        profile=f"{source}: {profile.machine}",
        candidates=found,
    )


def _candidates(
    sized: SizedWorkflow, parts: Sequence[Slice], size: int, profile: CollectiveProfile
) -> tuple[Candidate, ...]:
    """All compositions in order of cost; the first that can work is chosen, so it has no reason against it."""
    gpus = len({part.device for part in parts})
    per_gpu = max(Counter(part.device for part in parts).values())
    projected = list(candidates(gpus, per_gpu, size, profile))
    for composition in KINDS.values():  # those that the layout rules out are shown too
        if all(item.composition != composition for item in projected):
            projected.append(
                Projected(composition=composition, k=0, published_s=None, corrected_s=None, origin="modelled")
            )
    obstacles = [_obstacle_of(sized, parts, item) for item in projected]
    # What cannot be projected is still better than nothing: in order of the table, which knows the fastest first.
    order = list(KINDS.values())
    able = [index for index, obstacle in enumerate(obstacles) if not obstacle]
    best = min(able, key=lambda i: (*_cost(projected[i]), order.index(projected[i].composition)))
    kinds: dict[Choice, CollectiveKind] = {composition: kind for kind, composition in KINDS.items()}
    return tuple(
        Candidate(
            name=item.name,
            kind=kinds.get(item.composition),
            published_s=item.published_s,
            corrected_s=item.corrected_s,
            origin=item.origin,
            reason="" if index == best else obstacle or _dearer(item, projected[best]),
        )
        for index, (item, obstacle) in enumerate(zip(projected, obstacles, strict=True))
    )


def _cost(item: Projected) -> tuple[bool, float]:
    return item.corrected_s is None, item.corrected_s or 0.0


def _dearer(item: Projected, best: Projected) -> str:
    """Why a composition that could work was not taken."""
    if item.corrected_s is None or best.corrected_s is None:
        return item.reason or "its time is not known"
    ratio = item.corrected_s / best.corrected_s
    return f"`{best.name}` is as fast" if ratio < 1.005 else f"`{best.name}` is {ratio:.3g} times as fast"


def _obstacle_of(sized: SizedWorkflow, parts: Sequence[Slice], item: Projected) -> str:
    for kind, composition in KINDS.items():
        if composition == item.composition:
            return _obstacle(sized, parts, kind)
    return "the runtime composes in two levels only, `ipc` inside of a GPU and `rp` between GPUs"


def _obstacle(sized: SizedWorkflow, parts: Sequence[Slice], kind: CollectiveKind) -> str:
    """Why a primitive cannot join ``parts``, or is no choice for them; "" when it is one."""
    per_gpu = max(Counter(part.device for part in parts).values())
    gpus = len({part.device for part in parts})
    found = incompatibilities(sized.backend, kind, members_per_gpu=per_gpu, gpus=gpus)
    if found:
        return found[0].reason
    if kind in ("ipc", "hybrid") and sized.backend == "timeshare" and per_gpu > 1:
        return "its kernels wait for each other, and GMIs that take turns on a GPU never run together"
    if kind == "hybrid" and (per_gpu == 1 or gpus == 1):
        return "it joins several GMIs on each of several GPUs"
    if kind == "rp" and gpus == 1:
        return "it joins GMIs of different GPUs"
    return ""


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
            Diagnostic(code="E0503", message=message, span=workflow.target_span, notes=("use `backend = mps`",))
        )
    if found:
        notes = tuple(f"{problem.mend}" for problem in found)
        message = f"backend `{sized.backend}` cannot run this workflow: {'; '.join(p.reason for p in found)}"
        raise DiagnosticError(Diagnostic(code="E0503", message=message, span=workflow.target_span, notes=notes))
