"""Which environments, which part of its device and which cores every GMI gets. Part of the sizing pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import Slice
from gmiflow.ir.workflow import Component, Workflow
from gmiflow.profiles.defaults import STRATUM

__all__ = ["cut", "cut_slices", "divide_cores"]


def cut_slices(
    mapped: MappedWorkflow,
    placed: Sequence[tuple[Component, Sequence[int]]],
    group_sizes: Sequence[int],
    num_env: int,
    cores: int,
    *,
    shared: bool,
) -> tuple[Slice, ...]:
    """One slice per GMI: component by component, of each the groups in order, of each group the devices.

    Args:
        mapped: what to cut.
        placed: each component with its devices.
        group_sizes: GMIs of each group of roles on one device.
        num_env: environments of each component.
        cores: CPU cores of all GMIs together.
        shared: whether the GMIs of a device share a process.

    Raises:
        DiagnosticError: E0502 when a GMI would get no whole stratum.
    """
    workflow = mapped.workflow
    stratum = math.gcd(STRATUM, num_env)
    copies = sum(len(devices) for _, devices in placed)
    crowd = Counter(device for _, devices in placed for device in devices for _ in range(sum(group_sizes)))
    threads = divide_cores(cores, copies, group_sizes, mapped.shares)
    hosts: dict[int, int] = {}
    slices: list[Slice] = []
    for component, devices in placed:
        for index, (group, count) in enumerate(zip(mapped.groups, group_sizes, strict=True)):
            _require_strata(workflow, num_env, stratum, len(devices) * count)
            own = workflow.mode == "serve" or component.update == "apply"  # the second group has some of the first
            pools = group_sizes[0] if len(group_sizes) > 1 and own else None
            ranges = _ranges(num_env, stratum, devices, count, nested=len(group_sizes) > 1, pools=pools)
            for device, (offset, size) in ranges:
                part = mapped.shares[index] / count if mapped.shares else 1.0 / sum(group_sizes)
                slices.append(
                    Slice(
                        component=component.name,
                        group=group,
                        device=device,
                        share=part * sum(group_sizes) / crowd[device],
                        cores=threads[index],
                        threads=threads[index] if workflow.target.device == "cpu" else 1,
                        num_env=size,
                        env_offset=offset,
                        host=hosts.setdefault(device, len(slices)) if shared and crowd[device] > 1 else None,
                    )
                )
    return tuple(slices)


def divide_cores(cores: int, copies: int, group_sizes: Sequence[int], shares: Sequence[float]) -> tuple[int, ...]:
    """CPU cores of a GMI of each group: as its group's share says, one at least, and the same in a group.

    Args:
        cores: of all together.
        copies: how many times the groups are there, over trainings and devices.
        group_sizes: GMIs of each group in one copy.
        shares: part of a copy that each group gets; empty when every GMI gets the same.

    Returns:
        As many as go into ``cores``, and one where there are fewer cores than GMIs.
    """
    given = [1] * len(group_sizes)
    if not shares:
        return tuple(max(1, cores // (copies * sum(group_sizes))) for _ in group_sizes)
    left = cores // copies - sum(group_sizes)
    while True:
        # The group that is furthest below its share, of those that one core more for each of their GMIs is left for.
        wanting = [index for index, size in enumerate(group_sizes) if size <= left]
        if not wanting:
            return tuple(given)
        index = min(wanting, key=lambda i: (given[i] * group_sizes[i] / shares[i], i))
        given[index] += 1
        left -= group_sizes[index]


def _ranges(
    num_env: int, stratum: int, devices: Sequence[int], count: int, *, nested: bool, pools: int | None
) -> list[tuple[int, tuple[int, int]]]:
    """Device and (offset, number) of the environments of each GMI of a group.

    With ``nested`` the environments of a device are the same for every group, so that nothing leaves its device.
    With ``pools``, the number of simulator GMIs on a device, each GMI has those of whole simulator GMIs: it acts for
    them, or is one of them.
    """
    if not nested:
        places = [device for device in devices for _ in range(count)]
        return list(zip(places, cut(num_env, stratum, len(places)), strict=True))
    found: list[tuple[int, tuple[int, int]]] = []
    for device, (start, number) in zip(devices, cut(num_env, stratum, len(devices)), strict=True):
        parts = cut(number, stratum, pools or count)
        if pools is not None:
            parts = [
                (parts[first][0], sum(size for _, size in parts[first : first + members]))
                for first, members in cut(pools, 1, count)
            ]
        found += [(device, (start + offset, size)) for offset, size in parts]
    return found


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
    raise DiagnosticError(
        Diagnostic(
            code="E0502",
            message=f"num_env = {num_env} cannot be cut into {parts} GMIs: "
            f"a GMI takes whole groups of {stratum} environments",
            span=workflow.target_span,
            notes=(
                f"nearest legal numbers: num_env = {parts * STRATUM}, or {num_env // stratum} GMIs",
                "environments are shuffled into minibatches in groups of 16, so that slicing never changes a result",
            ),
        )
    )
