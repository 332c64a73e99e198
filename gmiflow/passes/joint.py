"""Joint pass, a part of the sizing: which trainings of a device share one simulator.

In: the slices of a workflow with several trainings. Out: the same slices, where some name the first of those whose
environments one simulator steps. A batch of physics costs less than the sum of its parts: a GPU makes 3.3 million
steps/s of 4,096 Ants, and 10.8 million of 65,536 (docs/performance.md, "Bare simulators").
The class of the simulator has to allow it (`gmiflow.api.Simulator.joinable`). Where its text does not tell, that is
known when it is loaded, and a class that does not say so gets a simulator per training in the same process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.sized import Slice
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.python_entry import says_joinable
from gmiflow.plan import Backend

AUTO_ON_GPU = 4
"""Trainings of a GPU that `auto` joins. Of eight of Ant with 4,096 environments on an H200, joining 4 (10.6 % faster
than apart) wins before 8 (10.1 %) and 2 (7.4 %): the rollouts of some run beside the updates of others."""


def join(
    workflow: Workflow, slices: tuple[Slice, ...], backend: Backend, cores: int, origins: list[tuple[str, str]]
) -> tuple[Slice, ...]:
    """Decide, and say why in ``origins`` when there are several trainings; ``cores`` are the CPU's for all of them.

    Raises:
        DiagnosticError: E0503 when `joint` asks for what cannot be.
    """
    if len(workflow.components) == 1:
        return slices
    wished = workflow.joint
    obstacle = _obstacle(workflow, slices, backend)
    if wished == 1:
        origins.append(("joint", "given"))
        return slices
    if obstacle:
        if wished != "auto":
            raise DiagnosticError(_impossible(workflow, wished, obstacle))
        origins.append(("joint", f"default: {obstacle}"))
        return slices
    most, reason = (wished, "given") if wished != "auto" else _automatic(workflow, cores)
    origins.append(("joint", reason))
    return _joined(workflow, slices, most) if most > 1 else slices


def _automatic(workflow: Workflow, cores: int) -> tuple[int, str]:
    """How many trainings share a simulator, and why.

    On the CPU at most those that would share a core anyway, because more would leave cores idle. That neither wins
    nor loses (docs/performance.md, "What lost").
    """
    if workflow.target.device == "cuda":
        return AUTO_ON_GPU, f"default: {AUTO_ON_GPU} trainings that share a simulator win most on a GPU"
    most = math.ceil(len(workflow.components) / cores)
    if most == 1:
        return 1, f"default: every training has a core of its own ({cores} cores)"
    return most, f"default: {most} trainings that share a core share one simulator too ({cores} cores)"


def _joined(workflow: Workflow, slices: tuple[Slice, ...], most: int) -> tuple[Slice, ...]:
    """As few groups as can be, as even as can be, of at most ``most`` slices with the same device and simulator."""
    alike: dict[tuple[int, str], list[int]] = {}
    likeness = _likeness(workflow)
    for index, part in enumerate(slices):
        alike.setdefault((part.device, likeness[part.component]), []).append(index)
    first: dict[int, int] = {}
    for members in alike.values():
        count = math.ceil(len(members) / most)
        bounds = [math.ceil(group * len(members) / count) for group in range(count + 1)]
        for group in (members[begin:end] for begin, end in pairwise(bounds)):
            if len(group) > 1:  # who is alone stays apart
                first |= dict.fromkeys(group, group[0])
    return tuple(
        replace(part, joint=first[index], host=first[index] if part.host is None else part.host)
        if index in first
        else part
        for index, part in enumerate(slices)
    )


def _likeness(workflow: Workflow) -> dict[str, str]:
    """By training, a text that is equal for those whose simulators can be one."""
    apart = _not_joinable(workflow)
    found: dict[str, str] = {}
    for component in workflow.components:
        simulator = component.stage("simulator")
        text = "" if simulator is None else f"{simulator.entry} {simulator.params}"
        found[component.name] = f"{text} of {component.name}" if simulator and simulator.entry in apart else text
    return found


def _not_joinable(workflow: Workflow) -> set[str]:
    """Entries of simulators whose classes do not say that they may be shared."""
    simulators = [component.stage("simulator") for component in workflow.components]
    entries = {simulator.entry for simulator in simulators if simulator is not None}
    folder = Path(workflow.file).absolute().parent
    return {entry for entry in entries if says_joinable(entry, folder) is False}


def _obstacle(workflow: Workflow, slices: Sequence[Slice], backend: Backend) -> str:
    """Why no two trainings of the workflow can share a simulator, or ""."""
    stages = [component.stage("simulator") for component in workflow.components]
    if workflow.mode == "serve":
        return "what serves is timed step by step, each for itself"
    if len(slices) > len(workflow.components):
        return "a training of several GMIs has a simulator in each"
    if workflow.gmi is not None:
        return "a class of `gmi` may do with its simulator what it likes"
    if any(stage is not None and stage.python for stage in stages):
        return "a simulator in an interpreter of its own serves one training"
    if backend not in ("cpu", "timeshare"):
        return f"backend `{backend}` gives each training a part of its own"
    likeness = _likeness(workflow)
    places = [(part.device, likeness[part.component]) for part in slices]
    if len(set(places)) == len(places):
        if apart := _not_joinable(workflow):
            return f"the class `{min(apart)}` does not say `joinable = True`"
        return "no two trainings of a device have the same simulator"
    if backend == "timeshare" and all(part.host is None for part in slices):
        return "backend `timeshare`, when it is given, makes a process of each training"
    return ""


def _impossible(workflow: Workflow, wished: int, obstacle: str) -> Diagnostic:
    return Diagnostic(
        code="E0503",
        message=f"joint = {wished} cannot be: {obstacle}",
        span=workflow.at("joint"),
        notes=("`joint = auto` becomes what fits, and `joint = 1` a simulator for each training",),
    )
