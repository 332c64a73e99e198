"""What the launcher starts for a plan: one request per process, with its cores and its environment. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from gmiflow.hardware import detect
from gmiflow.plan import GMIPlan, LaunchPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.cpus import CPUDemand, Topology, read_topology
from gmiflow.runtime.gmi.cpus import assign_cpus as cores_for
from gmiflow.runtime.run_directory import RunDirectory

_MANY_STREAMS = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
"""Work queues of a process to its GPU: with CUDA's default of 8, the streams of many GMIs wait behind each other.
Eight trainings side by side are 1.18 times faster with 32 (docs/performance.md, "Replicas")."""


def preloaded_modules(plan: LaunchPlan) -> list[str]:
    """Modules that the fork server may load: the plan's own entries inside this package.

    Those do nothing but define classes. A user's module might start threads, so each GMI loads it.
    """
    entries = [stage.entry for training in plan.trainings for stage in training.stages if stage.python is None]
    modules = dict.fromkeys(entry.partition(":")[0] for entry in entries)
    return [module for module in modules if module.startswith("gmiflow.")]


def assign_cpus(gmis: Sequence[GMIPlan], topology: Topology | None = None) -> dict[int, list[int]]:
    """Logical CPUs for each GMI, by id: whole cores near its GPU, its own as long as there are enough.

    Args:
        gmis: the GMIs of this machine.
        topology: the usable cores; default: this process's.
    """
    nodes = _gpu_nodes(gmis)
    demands = [CPUDemand(cores=gmi.cores, node=nodes.get(gmi.device)) for gmi in gmis]
    cpus = cores_for(topology or read_topology(), demands)
    return {gmi.id: list(mine) for gmi, mine in zip(gmis, cpus, strict=True)}


def gpu_uuids(gmis: Sequence[GMIPlan]) -> tuple[str, ...]:
    """UUIDs of the GPUs up to the last that the GMIs use, by device; empty without GPUs."""
    devices = [gmi.device for gmi in gmis if gmi.backend != "cpu"]
    return tuple(gpu.uuid for gpu in detect().gpus[: max(devices) + 1]) if devices else ()


def _gpu_nodes(gmis: Sequence[GMIPlan]) -> dict[int, int | None]:
    """NUMA node of each GPU that the GMIs use, by device; empty without GPUs."""
    uuids = gpu_uuids(gmis)
    if not uuids:
        return {}
    from gmiflow.runtime.gmi.nvml import gpu_nodes

    return dict(enumerate(gpu_nodes(uuids)))


def spawn_requests(
    plan: LaunchPlan,
    programs: Path,
    directory: RunDirectory,
    arguments: Sequence[str],
    backends: Mapping[str, GMIBackend],
) -> list[SpawnRequest]:
    """What the fork server is asked to start, one request per process.

    Args:
        plan: what to start.
        programs: directory of the generated programs.
        directory: where the logs go.
        arguments: the command line of every process.
        backends: which made the slices.

    Raises:
        GMIError: E0711 when a program is missing.
    """
    cpus = assign_cpus(plan.gmis)
    processes = plan.processes()
    return [
        dataclasses.replace(
            request,
            environment=environment(processes[request.gmi], backends),
            cpus=sorted({cpu for gmi in processes[request.gmi] for cpu in cpus[gmi.id]}),
        )
        for request in bare_requests(plan, programs, directory, arguments)
    ]


def environment(gmis: Sequence[GMIPlan], backends: Mapping[str, GMIBackend]) -> dict[str, str]:
    """Variables of the process of ``gmis``: those of their slice, and of a GPU that serves many streams."""
    own = backends[gmis[0].backend].environment(gmis[0])
    return {**_MANY_STREAMS, **own} if len(gmis) > 1 and gmis[0].backend != "cpu" else own


def bare_requests(
    plan: LaunchPlan, programs: Path, directory: RunDirectory, arguments: Sequence[str]
) -> list[SpawnRequest]:
    """`spawn_requests` without what depends on the machine: cores and the environment of the slice.

    Raises:
        GMIError: E0711 when a program is missing.
    """
    requests: list[SpawnRequest] = []
    for first, gmis in plan.processes().items():
        for gmi in gmis:
            if not (programs / gmi.program).is_file():
                missing = (programs / gmi.program).resolve()
                raise error(LAUNCH_FAILED, f"the program of GMI {gmi.id} is missing: {missing}")
        program, *hosted = command(gmis, programs.resolve())
        log = str(directory.log(first))
        requests.append(
            SpawnRequest(gmi=first, program=program, arguments=[*hosted, *arguments], environment={}, cpus=[], log=log)
        )
    return requests


def command(gmis: Sequence[GMIPlan], programs: Path) -> list[str]:
    """What Python runs for the GMIs of one process: their program, or the host's file and their programs."""
    files = [str(programs / gmi.program) for gmi in gmis]
    return files if gmis[0].host is None else [str(Path(__file__).with_name("host.py")), *files]
