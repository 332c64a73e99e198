"""The key of a workload profile: everything that its measurements depend on (DESIGN, section 9).

Made without importing torch or a simulator: versions come from the metadata of installed packages, sources from
files that are found but not imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gmiflow import __version__
from gmiflow.hardware import GPU, Hardware
from gmiflow.ir.workflow import Component, Edge, Stage, Target, Workflow
from gmiflow.profiles.entry_sources import Sources, sources_of
from gmiflow.profiles.versions import cpu_model, cuda_of_torch, driver, version
from gmiflow.profiles.workload import ProfileKey

_DISTRIBUTIONS = {"mujoco_warp": "mujoco-warp", "warp": "warp-lang", "isaacgym": "isaacgym", "cv2": "opencv-python"}
"""Module to the package that brings it, where the names differ."""

_GPU_ENGINE = {"mujoco_warp", "warp"}


def key_of(workflow: Workflow, hardware: Hardware) -> ProfileKey:
    """The key of a workflow on this machine; the same for every size of it."""
    target = workflow.target
    gpu = present_gpu(target, hardware)
    cuda = target.device == "cuda"
    sources = sources_of(_entries(workflow), folder_of(workflow))
    return ProfileKey(
        device=target.device,
        processor=(gpu.name if gpu is not None else target.gpu) if cuda else cpu_model(),
        sm_count=(gpu.sm_count if gpu is not None else target.sm_count) if cuda else 0,
        memory_bytes=(gpu.memory_bytes if gpu is not None else target.memory_bytes) if cuda else 0,
        cores=target.cores or hardware.cores,
        driver=driver() if cuda and gpu is not None else "",
        cuda=cuda_of_torch() if cuda else "",
        torch=version("torch"),
        simulator=_simulators(workflow, sources),
        sources={entry: found.digest for entry, found in sources.items()},
        workload=workload_digest(workflow),
        gmiflow=__version__,
    )


def folder_of(workflow: Workflow) -> Path:
    """Folder of the `.gmi` file."""
    return Path(workflow.file).absolute().parent


def present_gpu(target: Target, hardware: Hardware) -> GPU | None:
    """The GPU of this machine that the target means, or None: the target is the CPU, or another machine."""
    if target.device == "cpu":
        return None
    wanted = target.gpu.lower()
    return next((gpu for gpu in hardware.gpus if wanted in gpu.name.lower()), None)


def workload_digest(workflow: Workflow) -> str:
    """SHA-256 of what the training is apart from its size, its seed and how it is cut."""
    what = {
        "mode": workflow.mode,
        "max_staleness": workflow.max_staleness,
        "horizon": workflow.horizon,
        "precision": workflow.precision,
        "gmi": workflow.gmi,
        "components": [_component(component) for component in workflow.components],
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _simulators(workflow: Workflow, sources: Mapping[str, Sources]) -> str:
    """Packages that the simulators import, with their versions; torch and NumPy are no simulators."""
    names: set[str] = set()
    for stage in _stages(workflow):
        if stage.role != "simulator":
            continue
        packages = set(sources[stage.entry].packages) - {"torch", "numpy"}
        engine = dict(stage.params).get("engine")
        if engine == "mujoco" or (workflow.target.device == "cpu" and engine != "mjwarp"):
            packages -= _GPU_ENGINE
        names |= packages
    found = [(_DISTRIBUTIONS.get(name, name.replace("_", "-")), name) for name in sorted(names)]
    versions = [(package, version(package)) for package, _ in found]
    return ", ".join(f"{package} {number}" for package, number in versions if number)


def _stages(workflow: Workflow) -> Sequence[Stage]:
    return [stage for component in workflow.components for stage in component.stages]


def _entries(workflow: Workflow) -> Sequence[str]:
    return sorted({stage.entry for stage in _stages(workflow)} | ({workflow.gmi} if workflow.gmi else set()))


def _component(component: Component) -> dict[str, Any]:
    return {
        "stages": [_stage(stage) for stage in component.stages],
        "edges": [_edge(edge) for edge in component.edges],
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "role": stage.role,
        "entry": stage.entry,
        "params": dict(stage.params),
        "shapes": dict(stage.shapes),
        "ports": [[port.name, port.direction, repr(port.type)] for port in stage.ports],
        "place": stage.place,
        "python": stage.python,
    }


def _edge(edge: Edge) -> list[Any]:
    ends = [edge.source_stage, edge.source_port, edge.target_stage, edge.target_port]
    return [*ends, edge.lift, edge.depth, edge.on_full]


def difference_text(name: str, then: ProfileKey, now: ProfileKey) -> str:
    """One field of two keys that differ, as a person reads it: "torch 2.12.0, this is 2.13.0"."""
    before, after = asdict(then)[name], asdict(now)[name]
    if name == "sources":
        changed = sorted(entry for entry in before.keys() | after.keys() if before.get(entry) != after.get(entry))
        return f"other source files of {', '.join(changed)}"
    if name == "workload":
        return "another workload (parameters, shapes, horizon, precision or mode)"
    if name == "memory_bytes":
        return f"a GPU of {before >> 20} MiB, this has {after >> 20} MiB"
    word = {"processor": "a machine with", "sm_count": "SM count", "cores": "CPU cores"}.get(name, name)
    return f"{word} {before or '(none)'}, this is {after or '(none)'}"
