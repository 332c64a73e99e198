"""Sizing pass: how many environments and GMIs, and which environments each GMI runs.

In: a `MappedWorkflow`, this machine's hardware, and what a search over a profile chose, if there is one. Out: a
`SizedWorkflow` whose slices cover the environments of every component exactly, in whole strata (CONTRACT, "Slice
invariance").
Not in here: what crosses between GMIs (`comm_lowering`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.hardware import Hardware
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.groups import require_one_policy, split_groups
from gmiflow.passes.joint import join
from gmiflow.passes.placement import counted, group_devices, require_matching
from gmiflow.passes.slicing import crowds, cut_slices
from gmiflow.plan import Backend, Execution, Template
from gmiflow.profiles.defaults import MAX_SEARCHED_GMIS, REFERENCE, STRATUM, devices_of

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
    num_env = _num_env(workflow, origins, mapped.template)
    stratum = math.gcd(STRATUM, num_env)
    execution = _execution(mapped, origins)
    placed = [(c, group_devices(mapped.groups, workflow, c, index)) for index, c in enumerate(workflow.components)]
    for component, devices in placed:
        require_matching(mapped, component, group_sizes, devices)
        require_one_policy(mapped, component, group_sizes, devices)
    if any(len(set(devices)) > 1 for _, devices in placed):
        counts = counted(mapped.groups, group_sizes)
        origins = [
            (n, f"{why}; {counts}, on each device that has them" if n == "gmi_per_gpu" else why) for n, why in origins
        ]
    most = max(len(where) for _, devices in placed for where in devices)
    crowd = int(max(crowds(placed, group_sizes).values()))
    shared = _shares_processes(workflow, crowd, alone=most == gmi_per_gpu == 1)
    backend = _backend(workflow, crowd, origins, shared=shared)
    slices = cut_slices(mapped, placed, group_sizes, num_env, cores, shared=shared)
    slices = join(workflow, slices, backend, cores, origins)
    return SizedWorkflow(
        mapped=mapped,
        num_env=num_env,
        gmi_per_gpu=gmi_per_gpu,
        stratum=stratum,
        execution=execution,
        backend=backend,
        cores=min(cores, sum(part.cores for part in slices)),
        slices=slices,
        origins=tuple(origins),
        gpus_here=len(hardware.gpus),
        peer_access=hardware.peer_access and len(hardware.gpus) >= workflow.target.devices,
    )


def _gmis(mapped: MappedWorkflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, tuple[int, ...]]:
    """GMIs of a component on one device: all together, and of each group of roles."""
    workflow = mapped.workflow
    if len(mapped.groups) == 1:
        count = _gmi_per_gpu(workflow, cores, origins)
        return count, (count,)
    if "agent" not in mapped.groups[0]:
        from gmiflow.passes.simulator_groups import simulator_groups  # few workflows have simulators apart

        sizes = simulator_groups(mapped, cores, origins)
    else:
        sizes = split_groups(workflow, cores, origins)
    return sum(sizes), sizes


def _gmi_per_gpu(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> int:
    given = workflow.target.gmi_per_gpu
    if given != "auto":
        origins.append(("gmi_per_gpu", "given"))
        return given
    if workflow.applies is not None:
        origins.append(("gmi_per_gpu", "default: what gradients are applied to is shared by mapping `ea_t` alone"))
        return 1
    if workflow.target.device == "cpu":
        share = max(1, min(cores, MAX_SEARCHED_GMIS) // len(workflow.components))
        num_env = _num_env(workflow, [])
        strata = num_env // math.gcd(STRATUM, num_env)
        origins.append(("gmi_per_gpu", f"default: one GMI per core ({cores} cores)"))
        return max(1, min(share, strata))
    origins.append(("gmi_per_gpu", "default: not sliced until a profile says that slicing pays"))
    return 1


def _num_env(workflow: Workflow, origins: list[tuple[str, str]], template: Template = "dp_only") -> int:
    if workflow.num_env != "auto":
        origins.append(("num_env", "given"))
        return workflow.num_env
    reason = "no profile of this workload on this machine"
    if template != "dp_only":
        reason = f"sizes of mapping `{template}` are not searched"
    origins.append(("num_env", f"default: {reason}"))
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
                span=workflow.at("execution"),
                notes=("`execution = auto` becomes `eager` on the CPU",),
            )
        )
    if wished == "overlap" and split:
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message=f"execution `overlap` is for GMIs with all roles, and mapping `{mapped.template}` splits them",
                span=workflow.at("execution"),
                notes=("the GMIs of a split mapping overlap by themselves: use `execution = graph`",),
            )
        )
    if wished == "overlap" and workflow.max_staleness < 1:
        raise DiagnosticError(
            Diagnostic(
                code="E0503",
                message="execution `overlap` trains on experience that is one policy version old",
                span=workflow.at("execution"),
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
                span=workflow.target_at("backend"),
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
