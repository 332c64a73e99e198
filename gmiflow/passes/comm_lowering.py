"""Communication lowering: how data crosses between GMIs.

In: a `SizedWorkflow`. Out: a `CommWorkflow` with one gradient collective for each component whose
trainer has replicas, and the primitives that were not taken. Not in here: files and launching (`planning`).
"""

from __future__ import annotations

from gmiflow.ir.comm import Collective, CommWorkflow
from gmiflow.ir.mapped import Rejected
from gmiflow.ir.sized import SizedWorkflow


def lower_comm(sized: SizedWorkflow) -> CommWorkflow:
    """Choose the primitive of every collective."""
    collectives: list[Collective] = []
    for component in sized.mapped.workflow.components:
        members = tuple(
            index
            for index, part in enumerate(sized.slices)
            if part.component == component.name and "trainer" in part.group
        )
        if len(members) > 1:
            name = f"{component.name}.gradient"
            rejected = _rejected(sized, members)
            collectives.append(
                Collective(name=name, component=component.name, kind="ip", members=members, rejected=rejected)
            )
    return CommWorkflow(sized=sized, collectives=tuple(collectives))


def _rejected(sized: SizedWorkflow, members: tuple[int, ...]) -> tuple[Rejected, ...]:
    devices = {sized.slices[index].device for index in members}
    if sized.mapped.workflow.target.device == "cpu":
        reason = "the GMIs run on the CPU and share host memory"
        return tuple(Rejected(choice=kind, reason=reason) for kind in ("rp", "ipc", "hybrid"))
    ring = "NCCL takes one member per GPU" if len(devices) < len(members) else "not available yet"
    return (
        Rejected(choice="rp", reason=ring),
        Rejected(choice="ipc", reason="not available yet"),
        Rejected(choice="hybrid", reason="not available yet"),
    )
