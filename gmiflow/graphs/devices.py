"""What every drawing of a plan shows: the devices, and on each one the GMIs with their shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gmiflow.plan import GMIPlan, LaunchPlan, Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """A GMI on its device.

    Attributes:
        title: "GMI 0", and the training's name where a plan has several.
        share: part of the device, 0 to 1.
        stages: (role, name) in the order of the plan.
        lines: environments, cores and memory, one short line each.
    """

    title: str
    share: float
    stages: tuple[tuple[Role, str], ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device, or several with equal tenants.

    Attributes:
        title: "CPU, 2 cores" or "GPU 0: NVIDIA H200, 140 GiB, mps".
        tenants: the GMIs in order of id.
        free: the part of the device that no GMI has, 0 to 1.
    """

    title: str
    tenants: tuple[Tenant, ...]
    free: float


def devices(plan: LaunchPlan, gpu: str = "", sm_count: int = 0) -> tuple[Device, ...]:
    """The drawing's content; neighbours that differ in numbers of GMIs and devices alone are drawn once.

    Args:
        plan: with the GMIs of every device.
        gpu: model name for the titles, "" when it is not known.
        sm_count: of one GPU, 0 when it is not known.
    """
    occupied = {index: [gmi for gmi in plan.gmis if gmi.device == index] for index in range(plan.target.devices)}
    groups: list[list[int]] = []
    for index, gmis in occupied.items():
        if groups and _look(occupied[groups[-1][0]]) == _look(gmis):
            groups[-1].append(index)
        else:
            groups.append([index])
    return tuple(_device(plan, group, occupied, _name(plan, gpu, sm_count)) for group in groups)


def _look(gmis: Sequence[GMIPlan]) -> list[GMIPlan]:
    """The GMIs of a device without what tells equal devices apart."""
    first = gmis[0].id if gmis else 0
    return [
        replace(
            gmi,
            id=gmi.id - first,
            training="",
            program="",
            device=0,
            env_offset=0,
            host=None if gmi.host is None else gmi.host - first,
            joint=None if gmi.joint is None else gmi.joint - first,
        )
        for gmi in gmis
    ]


def _name(plan: LaunchPlan, gpu: str, sm_count: int) -> str:
    """The kind of device in words, "" when nothing is known."""
    if plan.target.device == "cpu":
        return f"{plan.target.cores} core{'s' if plan.target.cores > 1 else ''}"
    memory = f"{plan.target.memory_mib / 1024:.0f} GiB" if plan.target.memory_mib else ""
    return ", ".join(part for part in (gpu, f"{sm_count} SMs" if sm_count else "", memory) if part)


def _device(plan: LaunchPlan, group: Sequence[int], occupied: dict[int, list[GMIPlan]], name: str) -> Device:
    if plan.target.device == "cpu":
        place = "CPU"
    elif len(group) == 1:
        place = f"GPU {group[0]}"
    else:
        place = f"GPUs {group[0]} {'and' if len(group) == 2 else 'to'} {group[-1]}, each"
    rows = zip(*(occupied[index] for index in group), strict=True)
    tenants = tuple(_tenant(plan, same) for same in rows)
    free = max(0.0, 1.0 - sum(tenant.share for tenant in tenants))
    return Device(title=f"{place}: {name}" if name else place, tenants=tenants, free=free if free > 1e-4 else 0.0)


def _tenant(plan: LaunchPlan, same: Sequence[GMIPlan]) -> Tenant:
    """One box; ``same`` are the GMIs at its place on every device of the group."""
    gmi = same[0]
    training = plan.training(gmi.training)
    ids = ", ".join(str(each.id) for each in same[:3]) + (f" .. {same[-1].id}" if len(same) > 3 else "")
    lines = [f"{gmi.num_env} env", f"{gmi.cores} core{'s' if gmi.cores > 1 else ''}"]
    lines += [f"{gmi.memory_mib} MiB"] if gmi.memory_mib else []
    lines += _shared(plan, same)
    lines += [gmi.training] if len(plan.trainings) > 1 and len(same) == 1 else []
    return Tenant(
        title=f"GMI {ids}",
        share=gmi.share,
        stages=tuple((stage.role, stage.name) for stage in training.stages if stage.name in gmi.stages),
        lines=tuple(lines),
    )


def _shared(plan: LaunchPlan, same: Sequence[GMIPlan]) -> list[str]:
    """Whose simulator a GMI takes part in; nothing for one of its own."""
    gmi = same[0]
    ids = [other.id for other in plan.gmis if gmi.joint is not None and other.joint == gmi.joint]
    if not ids:
        return []
    if len(same) > 1:  # on several devices, each with GMIs of its own
        return [f"1 simulator for {len(ids)} GMIs"]
    named = ", ".join(map(str, ids)) if len(ids) <= 3 else f"{ids[0]} .. {ids[-1]}"
    return [f"1 simulator for GMIs {named}"]
