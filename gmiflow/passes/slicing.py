"""Which environments, which part of its device and which cores every GMI gets. Part of the sizing pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import Slice
from gmiflow.ir.workflow import Component, Workflow
from gmiflow.profiles.defaults import STRATUM

__all__ = ["crowds", "cut", "cut_slices", "divide_cores"]


def cut_slices(
    mapped: MappedWorkflow,
    placed: Sequence[tuple[Component, Sequence[Sequence[int]]]],
    group_sizes: Sequence[int],
    num_env: int,
    cores: int,
    *,
    shared: bool,
) -> tuple[Slice, ...]:
    """One slice per GMI: component by component, of each the groups in order, of each group the devices.

    Args:
        mapped: what to cut.
        placed: each component with the devices of each group of roles.
        group_sizes: GMIs of each group on one of its devices.
        num_env: environments of each component.
        cores: CPU cores of all GMIs together.
        shared: whether the GMIs of a device share a process.

    Raises:
        DiagnosticError: E0502 when a GMI would get no whole stratum.
    """
    workflow = mapped.workflow
    stratum = math.gcd(STRATUM, num_env)
    totals = [sum(size * len(devices[index]) for _, devices in placed) for index, size in enumerate(group_sizes)]
    threads = divide_cores(cores, totals, mapped.shares)
    weights = [part / size for part, size in zip(mapped.shares or group_sizes, group_sizes, strict=True)]
    crowd = crowds(placed, group_sizes)
    loads = crowds(placed, [weight * size for weight, size in zip(weights, group_sizes, strict=True)])
    hosts: dict[int, int] = {}
    slices: list[Slice] = []
    for component, devices in placed:
        own = workflow.mode == "serve" or component.update == "apply"  # the second group has some of the first
        for index, (group, ranges) in enumerate(
            zip(mapped.groups, _ranges(num_env, stratum, devices, group_sizes, own=own), strict=True)
        ):
            _require_strata(workflow, num_env, stratum, len(ranges))
            for device, (offset, size) in ranges:
                slices.append(
                    Slice(
                        component=component.name,
                        group=group,
                        device=device,
                        share=weights[index] / loads[device],
                        cores=threads[index],
                        threads=threads[index] if workflow.target.device == "cpu" else 1,
                        num_env=size,
                        env_offset=offset,
                        host=hosts.setdefault(device, len(slices)) if shared and crowd[device] > 1 else None,
                    )
                )
    return tuple(slices)


def crowds(placed: Sequence[tuple[Component, Sequence[Sequence[int]]]], amounts: Sequence[float]) -> dict[int, float]:
    """What comes together on each device, where each group puts as much as ``amounts`` says on each of its own."""
    found: dict[int, float] = {}
    for _, devices in placed:
        for where, amount in zip(devices, amounts, strict=True):
            for device in where:
                found[device] = found.get(device, 0) + amount
    return found


def divide_cores(cores: int, totals: Sequence[int], shares: Sequence[float]) -> tuple[int, ...]:
    """CPU cores of a GMI of each group: as its group's share says, one at least, and the same in a group.

    Args:
        cores: of all together.
        totals: GMIs of each group, over trainings and devices.
        shares: part of a device that each group gets; empty when every GMI gets the same.

    Returns:
        As many as go into ``cores``, and one where there are fewer cores than GMIs.
    """
    given = [1] * len(totals)
    if not shares:
        return tuple(max(1, cores // sum(totals)) for _ in totals)
    left = cores - sum(totals)
    while True:
        # The group that is furthest below its share, of those that one core more for each of their GMIs is left for.
        wanting = [index for index, total in enumerate(totals) if total <= left]
        if not wanting:
            return tuple(given)
        index = min(wanting, key=lambda i: (given[i] * totals[i] / shares[i], i))
        given[index] += 1
        left -= totals[index]


def _ranges(
    num_env: int, stratum: int, devices: Sequence[Sequence[int]], group_sizes: Sequence[int], *, own: bool
) -> list[list[tuple[int, tuple[int, int]]]]:
    """Device and (offset, number) of the environments of each GMI, group by group.

    Where all groups are on the same devices, the environments of a device are the same for every group, so that
    nothing leaves its device. With ``own`` each GMI of a further group has those of whole GMIs of the first: it acts
    for them, or trains on what they collect.
    """
    if len(set(map(tuple, devices))) > 1:
        totals = [size * len(where) for size, where in zip(group_sizes, devices, strict=True)]
        parts = [_parts(num_env, stratum, total, totals[0] if own else total) for total in totals]
        places = [[device for device in where for _ in range(s)] for where, s in zip(devices, group_sizes, strict=True)]
        return [list(zip(where, found, strict=True)) for where, found in zip(places, parts, strict=True)]
    found: list[list[tuple[int, tuple[int, int]]]] = []
    homes = list(zip(devices[0], cut(num_env, stratum, len(devices[0])), strict=True))
    for size in group_sizes:
        pools = group_sizes[0] if own else size
        if len(group_sizes) == 1:
            places = [device for device in devices[0] for _ in range(size)]
            found.append(list(zip(places, cut(num_env, stratum, len(places)), strict=True)))
            continue
        found.append(
            [
                (device, (start + offset, count))
                for device, (start, number) in homes
                for offset, count in _parts(number, stratum, size, pools)
            ]
        )
    return found


def _parts(num_env: int, stratum: int, count: int, pools: int) -> list[tuple[int, int]]:
    """Environments cut into ``pools`` ranges, of which each of ``count`` gets some whole ones, side by side."""
    ranges = cut(num_env, stratum, pools)
    return [
        (ranges[first][0], sum(size for _, size in ranges[first : first + members]))
        for first, members in cut(pools, 1, count)
    ]


def cut(num_env: int, stratum: int, parts: int) -> list[tuple[int, int]]:
    """Cut environments into contiguous ranges of whole strata, as even as they go.

    Returns:
        (offset, count) per part, in order; the first parts are one stratum larger when the strata do not divide.
    """
    strata = num_env // stratum
    small, larger = divmod(strata, parts)
    counts = [(small + (1 if part < larger else 0)) * stratum for part in range(parts)]
    offsets = accumulate(counts[:-1], initial=0)
    return list(zip(offsets, counts, strict=True))


def _require_strata(workflow: Workflow, num_env: int, stratum: int, parts: int) -> None:
    if num_env // stratum >= parts:
        return
    strata = num_env // stratum
    takes = f"whole groups of {stratum} environments" if stratum > 1 else "one environment or more"
    raise DiagnosticError(
        Diagnostic(
            code="E0502",
            message=f"num_env = {num_env} cannot be cut into {parts} GMIs: a GMI takes {takes}",
            span=workflow.target_at("gmi_per_gpu", "agents", "simulators", "trainers"),
            notes=(
                f"nearest legal numbers: num_env = {parts * STRATUM}, or {strata} GMI{'s' if strata > 1 else ''}",
                "environments are shuffled into minibatches in groups of 16, so that slicing never changes a result",
            ),
        )
    )
