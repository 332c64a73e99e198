"""Sizing pass: how many environments and GMIs, and which environments each GMI runs.

In: a `MappedWorkflow`, this machine's hardware, and what a search over a profile chose, if there is one. Out: a
`SizedWorkflow` whose slices cover the environments of every component exactly, in whole strata (CONTRACT, "Slice
invariance").
Not in here: what crosses between GMIs (`comm_lowering`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.hardware import Hardware
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Component, Workflow
from gmiflow.plan import Backend, Execution
from gmiflow.profiles.defaults import MAX_GMIS, REFERENCE, STRATUM, devices_of

if TYPE_CHECKING:
    from gmiflow.ir.search import Search


def size(mapped: MappedWorkflow, *, hardware: Hardware, search: Search | None = None) -> SizedWorkflow:
    """Decide numbers and cut the environments.

    Args:
        mapped: the workflow.
        hardware: this machine.
        search: over a profile; decides what is `auto`. Without one, defaults do.

    Raises:
        DiagnosticError: E0502 when a slice would not be whole strata, E0503 for an execution or backend
            that the target cannot run.
    """
    if search is None:
        return _size(mapped, hardware)
    from gmiflow.passes.choice import origins, prediction, rejected, with_choice  # most files are sized by defaults

    workflow = mapped.workflow
    devices = len(devices_of(workflow.components[0], 0, workflow))
    sized = _size(replace(mapped, workflow=with_choice(workflow, search, devices)), hardware)
    return replace(
        sized,
        mapped=mapped,
        origins=origins(workflow, search, sized.origins),
        rejected=rejected(search),
        search=search,
        prediction=prediction(search, sized.num_env * workflow.horizon),
    )


def _size(mapped: MappedWorkflow, hardware: Hardware) -> SizedWorkflow:
    """As `size`, with what the workflow says and defaults."""
    workflow = mapped.workflow
    cores = workflow.target.cores or hardware.cores
    origins: list[tuple[str, str]] = []
    gmi_per_gpu, group_sizes = _gmis(mapped, cores, origins)
    num_env = _num_env(workflow, origins)
    stratum = math.gcd(STRATUM, num_env)
    execution = _execution(mapped, origins)
    devices = [devices_of(component, index, workflow) for index, component in enumerate(workflow.components)]
    total = sum(len(d) for d in devices) * gmi_per_gpu
    crowd = Counter(device for where in devices for device in where for _ in range(gmi_per_gpu))
    alone = all(len(d) == 1 for d in devices) and gmi_per_gpu == 1
    shared = _shares_processes(workflow, max(crowd.values()), alone=alone)
    backend = _backend(workflow, max(crowd.values()), origins, shared=shared)
    placed = tuple(zip(workflow.components, devices, strict=True))
    slices = _slices(mapped, placed, group_sizes, num_env, max(1, cores // total), shared=shared)
    return SizedWorkflow(
        mapped=mapped,
        num_env=num_env,
        gmi_per_gpu=gmi_per_gpu,
        stratum=stratum,
        execution=execution,
        backend=backend,
        cores=min(cores, total * max(1, cores // total)),
        slices=slices,
        origins=tuple(origins),
    )


def _slices(
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
        cores: CPU cores of each GMI.
        shared: whether the GMIs of a device share a process.
    """
    workflow = mapped.workflow
    stratum = math.gcd(STRATUM, num_env)
    crowd = Counter(device for _, devices in placed for device in devices for _ in range(sum(group_sizes)))
    hosts: dict[int, int] = {}
    slices: list[Slice] = []
    for component, devices in placed:
        for index, (group, count) in enumerate(zip(mapped.groups, group_sizes, strict=True)):
            _require_strata(workflow, num_env, stratum, len(devices) * count)
            for device, (offset, size) in _ranges(num_env, stratum, devices, count, nested=len(group_sizes) > 1):
                slices.append(
                    Slice(
                        component=component.name,
                        group=group,
                        device=device,
                        share=(
                            mapped.shares[index] / count * sum(group_sizes) / crowd[device]
                            if mapped.shares
                            else 1.0 / crowd[device]
                        ),
                        cores=cores,
                        threads=cores if workflow.target.device == "cpu" else 1,
                        num_env=size,
                        env_offset=offset,
                        host=hosts.setdefault(device, len(slices)) if shared and crowd[device] > 1 else None,
                    )
                )
    return tuple(slices)


def _ranges(
    num_env: int, stratum: int, devices: Sequence[int], count: int, *, nested: bool
) -> list[tuple[int, tuple[int, int]]]:
    """Device and (offset, number) of the environments of each GMI of a group.

    With ``nested`` the environments of a device are the same for every group, so that no rollout leaves its device.
    """
    if not nested:
        places = [device for device in devices for _ in range(count)]
        return list(zip(places, cut(num_env, stratum, len(places)), strict=True))
    return [
        (device, (start + offset, size))
        for device, (start, number) in zip(devices, cut(num_env, stratum, len(devices)), strict=True)
        for offset, size in cut(number, stratum, count)
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


def _gmis(mapped: MappedWorkflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, tuple[int, ...]]:
    """GMIs of a component on one device: all together, and of each group of roles."""
    workflow = mapped.workflow
    if len(mapped.groups) == 1:
        count = _gmi_per_gpu(workflow, cores, origins)
        return count, (count,)
    target = workflow.target
    if target.gmi_per_gpu == "auto":
        agents, trainers = _default_groups(workflow, cores, origins)
        return agents + trainers, (agents, trainers)
    origins.append(("gmi_per_gpu", "given"))
    total = target.gmi_per_gpu
    trainers = target.trainers if target.trainers != "auto" else 1 if target.agents == "auto" else total - target.agents
    agents = target.agents if target.agents != "auto" else total - trainers
    if agents + trainers != total or min(agents, trainers) < 1:
        raise DiagnosticError(_uneven(workflow, total, agents, trainers))
    return total, (agents, trainers)


def _default_groups(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, int]:
    """GMIs that collect and that train on one device, when their number all together is not given."""
    target = workflow.target
    trainers = 1 if target.trainers == "auto" else target.trainers
    if target.agents != "auto":
        origins.append(("gmi_per_gpu", "given as `agents` and `trainers`"))
        return target.agents, trainers
    if target.device == "cpu":
        share = min(cores, MAX_GMIS) // len(workflow.components)
        origins.append(("gmi_per_gpu", f"default: one GMI per core ({cores} cores), two at least"))
        return max(1, share - trainers), trainers
    origins.append(("gmi_per_gpu", "default: one GMI that collects until a profile says that more pay"))
    return 1, trainers


def _uneven(workflow: Workflow, total: int, agents: int, trainers: int) -> Diagnostic:
    """The groups of a split mapping do not add up."""
    if total < 2:
        message = (
            f"mapping `{workflow.target.mapping}` splits a training over two GMIs or more, and gmi_per_gpu = {total}"
        )
    else:
        message = f"{max(agents, 0)} agents and {max(trainers, 0)} trainers are not the {total} GMIs of a device"
    note = "give two of `gmi_per_gpu`, `agents` and `trainers`; the third follows, and one trainer is the default"
    return Diagnostic(code="E0501", message=message, span=workflow.span, notes=(note,))


def _gmi_per_gpu(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> int:
    given = workflow.target.gmi_per_gpu
    if given != "auto":
        origins.append(("gmi_per_gpu", "given"))
        return given
    if workflow.target.device == "cpu":
        share = max(1, min(cores, MAX_GMIS) // len(workflow.components))
        strata = _num_env(workflow, []) // math.gcd(STRATUM, _num_env(workflow, []))
        origins.append(("gmi_per_gpu", f"default: one GMI per core ({cores} cores)"))
        return max(1, min(share, strata))
    origins.append(("gmi_per_gpu", "default: not sliced until a profile says that slicing pays"))
    return 1


def _num_env(workflow: Workflow, origins: list[tuple[str, str]]) -> int:
    if workflow.num_env != "auto":
        origins.append(("num_env", "given"))
        return workflow.num_env
    origins.append(("num_env", "modelled: no profile for this machine"))
    return REFERENCE[workflow.target.device]


def _execution(mapped: MappedWorkflow, origins: list[tuple[str, str]]) -> Execution:
    workflow, split = mapped.workflow, len(mapped.groups) > 1
    device, wished = workflow.target.device, workflow.execution
    if wished == "auto":
        if device == "cpu":
            origins.append(("execution", "default: CUDA graphs need a GPU"))
            return "eager"
        overlaps = workflow.mode == "async" and workflow.max_staleness >= 1 and not split
        chosen: Execution = "overlap" if overlaps else "graph"
        origins.append(("execution", f"default: {chosen} is the fastest that the mode allows"))
        return chosen
    if wished != "eager" and device == "cpu":
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message=f"execution `{wished}` needs an NVIDIA GPU, and target `{workflow.target.name}` is the CPU",
                span=workflow.span,
                notes=("`execution = auto` becomes `eager` on the CPU",),
            )
        )
    if wished == "overlap" and split:
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message=f"execution `overlap` is for GMIs with all roles, and mapping `{mapped.template}` splits them",
                span=workflow.span,
                notes=("the GMIs of a split mapping overlap by themselves: use `execution = graph`",),
            )
        )
    if wished == "overlap" and workflow.max_staleness < 1:
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message="execution `overlap` trains on experience that is one policy version old",
                span=workflow.span,
                notes=("allow it with `mode = async { max_staleness = 1 }`",),
            )
        )
    origins.append(("execution", "given"))
    return wished


def _shares_processes(workflow: Workflow, crowd: int, *, alone: bool) -> bool:
    """Whether the GMIs of a GPU are threads of one process: green ones, and whole trainings side by side.

    Args:
        workflow: with its target.
        crowd: GMIs on the fullest device.
        alone: whether every training is one GMI.
    """
    target = workflow.target
    if target.device == "cpu" or crowd == 1:
        return False
    foreign = any(stage.python for component in workflow.components for stage in component.stages)
    return target.backend == "green" or (target.backend == "auto" and alone and not foreign)


def _backend(workflow: Workflow, crowd: int, origins: list[tuple[str, str]], *, shared: bool) -> Backend:
    """The backend; ``crowd`` is the number of GMIs on the fullest device."""
    device, wished = workflow.target.device, workflow.target.backend
    if (wished == "cpu") != (device == "cpu") and wished != "auto":
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message=f"backend `{wished}` cannot slice target `{workflow.target.name}` (device `{device}`)",
                span=workflow.span,
                notes=("the CPU takes `cpu`; GPUs take `timeshare`, `mps`, `mig` or `green`",),
            )
        )
    if wished != "auto":
        origins.append(("backend", "given"))
        return wished
    if device == "cpu":
        origins.append(("backend", "default"))
        return "cpu"
    if shared:
        origins.append(("backend", "default: independent trainings side by side, as streams of one process per GPU"))
        return "timeshare"
    origins.append(("backend", f"default: {'several processes share a GPU' if crowd > 1 else 'one process per GPU'}"))
    return "mps" if crowd > 1 else "timeshare"


def _require_strata(workflow: Workflow, num_env: int, stratum: int, parts: int) -> None:
    if num_env // stratum >= parts:
        return
    raise DiagnosticError(
        Diagnostic(
            code="E0502",
            message=f"num_env = {num_env} cannot be cut into {parts} GMIs: "
            f"a GMI takes whole groups of {stratum} environments",
            span=workflow.span,
            notes=(
                f"nearest legal numbers: num_env = {parts * STRATUM}, or {num_env // stratum} GMIs",
                "environments are shuffled into minibatches in groups of 16, so that slicing never changes a result",
            ),
        )
    )
