"""Communication lowering: how data crosses between GMIs.

In: a `SizedWorkflow`. Out: a `CommWorkflow` with one gradient collective for each component whose
trainer has replicas, and the primitives that were not taken. Not in here: files and launching (`planning`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gmiflow.compatibility import incompatibilities
from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.comm import Collective, CommWorkflow
from gmiflow.ir.mapped import Rejected
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.plan import CollectiveKind

KINDS: tuple[CollectiveKind, ...] = ("local", "ipc", "rp", "hybrid", "ip")
"""The fastest first, where several can work."""

_SLOWER: dict[CollectiveKind, str] = {
    "local": "adds up inside of one process",
    "ipc": "stays inside of one GPU",
    "rp": "goes from GPU to GPU",
    "hybrid": "adds up inside of each GPU first, then between the GPUs",
    "ip": "goes through the memory of the host",
}


def lower_comm(sized: SizedWorkflow) -> CommWorkflow:
    """Choose the primitive of every collective.

    Raises:
        DiagnosticError: E0503 for a backend that cannot do what the workflow asks of it.
    """
    _require_possible(sized)
    collectives: list[Collective] = []
    for component in sized.mapped.workflow.components:
        members = tuple(
            index
            for index, part in enumerate(sized.slices)
            if part.component == component.name and "trainer" in part.group
        )
        if len(members) > 1:
            kind, rejected = _choose(sized, [sized.slices[index] for index in members])
            name = f"{component.name}.gradient"
            collectives.append(
                Collective(name=name, component=component.name, kind=kind, members=members, rejected=rejected)
            )
    return CommWorkflow(sized=sized, collectives=tuple(collectives))


def _choose(sized: SizedWorkflow, parts: Sequence[Slice]) -> tuple[CollectiveKind, tuple[Rejected, ...]]:
    """The fastest primitive that can work, and why the others were not taken."""
    obstacles: dict[CollectiveKind, str] = {kind: _obstacle(sized, parts, kind) for kind in KINDS}
    chosen: CollectiveKind = next(kind for kind in KINDS if not obstacles[kind])
    rejected = [
        Rejected(choice=kind, reason=obstacle or f"`{chosen}` {_SLOWER[chosen]}")
        for kind, obstacle in obstacles.items()
        if kind != chosen
    ]
    return chosen, tuple(rejected)


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
    if found:
        notes = tuple(f"{problem.mend}" for problem in found)
        message = f"backend `{sized.backend}` cannot run this workflow: {'; '.join(p.reason for p in found)}"
        raise DiagnosticError(Diagnostic(code="E0503", message=message, span=workflow.span, notes=notes))
