"""Communication lowering: how data crosses between GMIs.

In: a `SizedWorkflow` and what all-reduces cost. Out: a `CommWorkflow` with one gradient collective for each
component whose trainer has replicas: the cheapest composition that can work there, and why the others were
not taken; and the channels of a split mapping (`channel_lowering`, `step_lowering`). Not in here:
measuring (`gmiflow bench collective`), files and launching (`planning`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from gmiflow.compatibility import incompatibilities
from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.comm import Applied, Candidate, Channel, Collective, CommWorkflow
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Component, Target
from gmiflow.plan import Backend, CollectiveKind
from gmiflow.profiles.calibration import CollectiveProfile
from gmiflow.profiles.candidates import Choice, Projected, candidates
from gmiflow.profiles.volumes import gradient_bytes

SHOWN: tuple[Choice, ...] = ("local", "ipc", "rp", "two_level", "ip")
"""What the table has in any case, also where the layout rules it out; the fastest first where no time is known."""

EXPERIMENTAL = (
    "experimental in NCCL, from 2.30: taken where `gmiflow bench collective --calibrate` measured it, or asked for"
)


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
    found = _candidates(sized, [sized.slices[index] for index in members], size, profile)
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


def _candidates(
    sized: SizedWorkflow, parts: Sequence[Slice], size: int, profile: CollectiveProfile
) -> tuple[Candidate, ...]:
    """All compositions in order of cost; the first that can work is chosen, so it has no reason against it.

    Raises:
        DiagnosticError: E0503 when the target asks for one that cannot join these GMIs.
    """
    crowds = Counter(part.device for part in parts)
    gpus, per_gpu = len(crowds), max(crowds.values())
    target = sized.mapped.workflow.target
    projected = list(candidates(gpus, per_gpu, size, profile))
    several = target.collective == "nccl_multirank" or (target.device == "cuda" and per_gpu > 1)
    experimental: tuple[Choice, ...] = ("nccl_multirank",) if several else ()
    for composition in SHOWN + experimental:
        if all(item.composition != composition for item in projected):
            projected.append(
                Projected(composition=composition, k=0, published_s=None, corrected_s=None, origin="modelled")
            )
    named = [_named(item, gpus, per_gpu) for item in projected]
    able = [_obstacle(sized, crowds, item, *name) for item, name in zip(projected, named, strict=True)]
    asked = [_is_asked(target, item, *name) for item, name in zip(projected, named, strict=True)]
    obstacles = [
        found or _unasked(target, item, name[0], wanted)
        for item, name, found, wanted in zip(projected, named, able, asked, strict=True)
    ]
    possible = [index for index, obstacle in enumerate(obstacles) if not obstacle]
    if not possible:
        reasons = [found for found, wanted in zip(able, asked, strict=True) if wanted]
        others: set[CollectiveKind] = {name[0] for name, found in zip(named, able, strict=True) if not found}
        raise DiagnosticError(_impossible(target, reasons or [_no_such_rings(target, gpus, per_gpu)], others))
    best = min(possible, key=lambda i: (*_cost(projected[i]), _place(projected[i])))
    return tuple(
        Candidate(
            name=item.name,
            kind=kind,
            published_s=item.published_s,
            corrected_s=item.corrected_s,
            origin=item.origin,
            reason="" if index == best else obstacle or _dearer(item, projected[best]),
            rings=rings,
        )
        for index, (item, (kind, rings), obstacle) in enumerate(zip(projected, named, obstacles, strict=True))
    )


def _named(item: Projected, gpus: int, per_gpu: int) -> tuple[CollectiveKind, int]:
    """What the plan calls a composition, and how many rings it has."""
    if item.composition == "two_level":
        return "hybrid", 0
    if item.composition == "hybrid":
        return "hybrid", item.k
    if item.composition == "rp" and gpus > 1 and per_gpu > 1:  # all by rings, then a ring of their results
        return "hybrid", per_gpu
    return item.composition, 0


def _cost(item: Projected) -> tuple[bool, float]:
    return item.corrected_s is None, item.corrected_s or 0.0


def _place(item: Projected) -> int:
    """Where no time is known: in order of the table, which knows the fastest first."""
    return SHOWN.index(item.composition) if item.composition in SHOWN else len(SHOWN)


def _dearer(item: Projected, best: Projected) -> str:
    """Why a composition that could work was not taken."""
    if item.corrected_s is None or best.corrected_s is None:
        return item.reason or "its time is not known"
    ratio = item.corrected_s / best.corrected_s
    return f"`{best.name}` is as fast" if ratio < 1.005 else f"`{best.name}` is {ratio:.3g} times as fast"


def _obstacle(sized: SizedWorkflow, crowds: Counter[int], item: Projected, kind: CollectiveKind, rings: int) -> str:
    """Why a composition cannot join GMIs, so many on each GPU, or is no choice for them; "" when it is one."""
    gpus, per_gpu, backend = len(crowds), max(crowds.values()), sized.backend
    found = incompatibilities(backend, kind, members_per_gpu=per_gpu, gpus=gpus)
    if found:
        return found[0].reason
    if rings:
        return _obstacle_to_rings(backend, crowds, item, rings)
    if kind in ("ipc", "hybrid", "nccl_multirank") and backend == "timeshare" and per_gpu > 1:
        return "its kernels wait for each other, and GMIs that take turns on a GPU never run together"
    if kind == "hybrid" and (per_gpu == 1 or gpus == 1):
        return "it joins several GMIs on each of several GPUs"
    if kind == "rp" and gpus == 1:
        return "it joins GMIs of different GPUs"
    return ""


def _obstacle_to_rings(backend: Backend, crowds: Counter[int], item: Projected, rings: int) -> str:
    if backend == "green":
        return "its rings join processes, and green GMIs of a GPU share one"
    if len(set(crowds.values())) > 1:
        return "rings need the same number of GMIs on every GPU"
    if rings > len(crowds) and rings == max(crowds.values()):
        return item.reason  # the leaders of all rings have no GPU each
    return ""


def _unasked(target: Target, item: Projected, kind: CollectiveKind, asked: bool) -> str:
    """Why a composition that could work is not considered."""
    if not asked:
        wish = f"rings = {target.rings}" if target.rings != "auto" else f"collective = {target.collective}"
        return f"the target asks for `{wish}`"
    if kind == "nccl_multirank" and target.collective == "auto" and item.corrected_s is None:
        return EXPERIMENTAL
    return ""


def _is_asked(target: Target, item: Projected, kind: CollectiveKind, rings: int) -> bool:
    """Whether what the target says of collectives admits this one; `rp` is also what the table calls all by rings."""
    if target.rings not in ("auto", rings if kind == "hybrid" else -1):
        return False
    return target.collective in ("auto", kind, item.composition)


def _no_such_rings(target: Target, gpus: int, per_gpu: int) -> str:
    if gpus == 1:
        return "rings join GPUs, and there is one"
    if target.collective not in ("auto", "hybrid", "rp"):
        return "only a `hybrid` has rings"
    return f"a GPU has {per_gpu} {'GMIs' if per_gpu > 1 else 'GMI, and one for each GPU is `rp`'}"


def _impossible(target: Target, reasons: Sequence[str], able: Collection[CollectiveKind]) -> Diagnostic:
    """E0503: the target asks for what cannot join these GMIs."""
    wishes = {"collective": target.collective, "rings": target.rings}
    asked = ", ".join(f"{name} = {value}" for name, value in wishes.items() if value != "auto")
    return Diagnostic(
        code="E0503",
        message=f"`{asked}` cannot join the GMIs of a training here: {reasons[0]}",
        span=target.span,
        notes=(f"{', '.join(f'`{kind}`' for kind in sorted(able))} or `auto` can",),
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
            Diagnostic(code="E0503", message=message, span=workflow.target_span, notes=("use `backend = mps`",))
        )
    if found:
        notes = tuple(f"{problem.mend}" for problem in found)
        message = f"backend `{sized.backend}` cannot run this workflow: {'; '.join(p.reason for p in found)}"
        raise DiagnosticError(Diagnostic(code="E0503", message=message, span=workflow.target_span, notes=notes))
