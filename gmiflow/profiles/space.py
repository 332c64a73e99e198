"""What a sizing search may choose from: the user's values are constraints, `auto` opens an axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from gmiflow.hardware import Hardware
from gmiflow.ir.search import Objective, Point
from gmiflow.ir.workflow import Auto, Component, Workflow
from gmiflow.plan import Backend, Execution, Template
from gmiflow.profiles.calibration import CollectiveProfile, built_in
from gmiflow.profiles.defaults import MAX_SEARCHED_GMIS, REFERENCE, STRATUM, devices_of
from gmiflow.profiles.pairs import are_paired, beside_pairs, stated_pairs
from gmiflow.profiles.volumes import gradient_bytes, reductions

GRID = {"cpu": tuple(2**power for power in range(6, 13)), "cuda": tuple(2**power for power in range(10, 17))}
"""Environments per device that are tried when the user leaves them open: 64 to 4,096, and 1,024 to 65,536."""

EXECUTIONS: tuple[Execution, ...] = ("eager", "graph", "overlap")
"""From the simplest to the one that asks the most of a stage: the order in which ties are broken."""

BACKENDS: tuple[Backend, ...] = ("cpu", "timeshare", "mps", "green", "mig")
"""Likewise."""

CRITICAL_BATCH = 262_144
"""Samples of one iteration beyond which more of them teach less, when nothing better is known: see `efficiency`."""

MAX_POINTS = 16
"""Points that a search measures at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """The points of a search and what they are judged by.

    Attributes:
        templates, gmis, num_env, executions: what each axis may be; one value where the user gave it. Numbers
            rise; the first execution is the one that is tried first. ``num_env`` counts one device.
        backends: (backend of one GMI alone on a device, backends of several).
        device: "cpu" or "cuda".
        devices: that one training spans.
        trainings: on each device, side by side.
        cores: CPU cores for everything.
        memory_bytes: of one device that the GMIs of all trainings may use together, on the CPU of the host; 0
            when unknown.
        horizon: steps of one iteration.
        batch_fixed: whether a choice is compared with the unsliced plan of as many environments (`batch = fixed`),
            or with the best unsliced one.
        reference: environments per device where the search starts, one of ``num_env``.
        critical_batch: samples; see `profiles.objective.efficiency`.
        memory_per_env, memory_fixed: bytes that the stages state under `needs`, 0 when they state none.
        communicate_s: (GMIs per device, seconds of one iteration spent on all-reduces inside of one device, and
            over all devices): the model's first guess.
        max_points: how many may be measured.
    """

    templates: tuple[Template, ...]
    gmis: tuple[int, ...]
    num_env: tuple[int, ...]
    executions: tuple[Execution, ...]
    backends: tuple[tuple[Backend, ...], tuple[Backend, ...]]
    device: str
    devices: int
    trainings: int
    cores: int
    memory_bytes: int
    horizon: int
    objective: Objective
    batch_fixed: bool
    reference: int
    critical_batch: int = CRITICAL_BATCH
    memory_per_env: int = 0
    memory_fixed: int = 0
    communicate_s: tuple[tuple[int, float, float], ...] = ()
    max_points: int = MAX_POINTS

    def points(self) -> Iterator[Point]:
        """Every point that can be run, in a fixed order."""
        for template in self.templates:
            for gmis in self.gmis:
                for execution in self.executions:
                    for backend in self.backends[0 if gmis == 1 else 1]:
                        for num_env in self.num_env:
                            if legal(gmis, num_env * self.devices, self.devices):
                                yield Point(
                                    template=template,
                                    gmis=gmis,
                                    num_env=num_env,
                                    execution=execution,
                                    backend=backend,
                                )

    @property
    def own_cores(self) -> int:
        """CPU cores of one training, when those side by side share them evenly."""
        return max(1, self.cores // self.trainings)

    @property
    def open(self) -> bool:
        """Whether anything is left to choose."""
        return len(list(self.points())) > 1


def legal(gmis: int, num_env: int, devices: int = 1) -> bool:
    """Whether every GMI gets a whole stratum (CONTRACT, "Slice invariance").

    Args:
        gmis: per device.
        num_env: of the training, over all devices.
        devices: of the training.
    """
    return num_env // math.gcd(STRATUM, num_env) >= gmis * devices


def space_of(workflow: Workflow, hardware: Hardware, collectives: CollectiveProfile | None = None) -> Space:
    """What a workflow leaves open on its target.

    Args:
        workflow: checked, with its target.
        hardware: this machine, for the cores.
        collectives: what all-reduces cost on the target; built-in numbers without.
    """
    target = workflow.target
    component = workflow.components[0]
    devices = len(devices_of(component, 0, workflow))
    trainings = max(1, math.ceil(len(workflow.components) * devices / target.devices))
    cores = target.cores or hardware.cores
    num_env, reference = _num_env(workflow, devices)
    gmis = _gmis(workflow, cores, trainings)
    fixed, per_env = _needs(component)
    return Space(
        templates=("dp_only",) if target.mapping == "auto" else (target.mapping,),
        gmis=gmis,
        num_env=num_env,
        executions=executions_of(workflow),
        backends=_backends(workflow, trainings, devices),
        device=target.device,
        devices=devices,
        trainings=trainings,
        cores=cores,
        memory_bytes=max(0, target.memory_bytes - target.reserve_bytes),
        horizon=workflow.horizon,
        objective=workflow.sizing.objective,
        batch_fixed=workflow.sizing.batch == "fixed",
        reference=reference,
        memory_per_env=per_env,
        memory_fixed=fixed,
        communicate_s=_communicate_s(workflow, component, gmis, devices, collectives),
    )


def executions_of(workflow: Workflow) -> tuple[Execution, ...]:
    """The lowerings that the mode and the target allow, the fastest by experience first."""
    if workflow.execution != "auto":
        return (workflow.execution,)
    if workflow.target.device == "cpu":
        return ("eager",)
    overlap = workflow.mode == "async" and workflow.max_staleness >= 1
    return ("overlap", "graph", "eager") if overlap else ("graph", "eager")


def _num_env(workflow: Workflow, devices: int) -> tuple[tuple[int, ...], int]:
    if workflow.num_env != "auto":
        per_device = max(1, workflow.num_env // devices)
        return (per_device,), per_device
    return GRID[workflow.target.device], REFERENCE[workflow.target.device]


def _gmis(workflow: Workflow, cores: int, trainings: int) -> tuple[int, ...]:
    """On the CPU at most one GMI per core, and once two: more only take turns. Split mappings take two at least."""
    given = workflow.target.gmi_per_gpu
    given = _stated(workflow) if given == "auto" else given
    if given != "auto":
        return (given,)
    if are_paired(workflow):
        apart = beside_pairs(workflow)
        most = (
            MAX_SEARCHED_GMIS
            if workflow.target.device == "cuda"
            else max(2 + apart, min(cores // trainings, MAX_SEARCHED_GMIS))
        )
        return tuple(range(2 + apart, most + 1, 2))
    least = 1 if workflow.target.mapping in ("auto", "dp_only") else 2
    if workflow.target.device == "cuda":
        return tuple(range(least, MAX_SEARCHED_GMIS + 1))
    own = max(1, cores // trainings)
    counts = {*range(1, min(own, MAX_SEARCHED_GMIS) + 1), min(2 * own, MAX_SEARCHED_GMIS)}
    return tuple(sorted(count for count in counts if count >= least)) or (least,)


def _stated(workflow: Workflow) -> int | Auto:
    """GMIs of a device of a split mapping, where the target says how many there are of either kind."""
    target = workflow.target
    if target.mapping in ("auto", "dp_only"):
        return "auto"
    if are_paired(workflow):
        pairs = stated_pairs(workflow)
        return 2 * min(pairs.values()) + beside_pairs(workflow) if pairs else "auto"
    counts = (target.agents, target.simulators if workflow.mode == "serve" else target.trainers)
    stated = [int(count) for count in counts if count != "auto"]
    return sum(stated) if len(stated) == 2 else "auto"


def _backends(workflow: Workflow, trainings: int, devices: int) -> tuple[tuple[Backend, ...], tuple[Backend, ...]]:
    """Backends of one GMI and of several; MIG is not searched, for it has to be set up on the machine first."""
    target = workflow.target
    if target.backend != "auto":
        return (target.backend,), (target.backend,)
    if target.device == "cpu":
        return ("cpu",), ("cpu",)
    foreign = any(stage.python for component in workflow.components for stage in component.stages)
    threads = not foreign and workflow.on_failure == "stop"
    alone: Backend = "timeshare" if trainings == 1 or (devices == 1 and not foreign) else "mps"
    return (alone,), ("mps", "green") if threads else ("mps",)


def _needs(component: Component) -> tuple[int, int]:
    """Bytes that the stages state under `needs`: fixed, and for each environment."""
    fixed = per_env = 0
    for stage in component.stages:
        needs = dict(stage.needs)
        fixed += cast("int", needs.get("memory", 0))
        per_env += cast("int", needs.get("memory_per_env", 0))
    return fixed, per_env


def _communicate_s(
    workflow: Workflow,
    component: Component,
    gmis: tuple[int, ...],
    devices: int,
    collectives: CollectiveProfile | None,
) -> tuple[tuple[int, float, float], ...]:
    """All-reduces of an iteration by GMIs per device: the cheapest composition, times the calls."""
    from gmiflow.profiles.candidates import candidates  # sizing without a profile needs the constants only

    profile = collectives or built_in(workflow.target.device, workflow.target.gpu)
    size, calls = gradient_bytes(component)[0], reductions(component)

    def seconds(count: int, devices: int) -> float:
        if calls == 0 or count * devices == 1:
            return 0.0
        if workflow.target.device == "cpu":
            return calls * (profile.host_s(count, size) or 0.0)
        known = [item.corrected_s for item in candidates(devices, count, size, profile) if item.corrected_s is not None]
        return calls * min(known, default=0.0)

    return tuple((count, seconds(count, 1), seconds(count, devices)) for count in gmis)
