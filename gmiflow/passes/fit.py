"""Does the workflow fit its target? What can be said before mapping and sizing decide anything."""

from __future__ import annotations

import math
from collections import Counter
from typing import cast

from gmiflow.diagnostics import Edit, Fix
from gmiflow.ir.workflow import Component, Stage, Workflow
from gmiflow.passes.effect import check_effect
from gmiflow.passes.groups import stated_groups
from gmiflow.passes.placement import group_devices
from gmiflow.passes.report import Report
from gmiflow.passes.settings import MAX_DEVICES, MAX_GMIS
from gmiflow.passes.templates import groups_of
from gmiflow.passes.workflows import CheckedWorkflow
from gmiflow.plan import Role
from gmiflow.profiles.defaults import STRATUM
from gmiflow.profiles.pairs import are_paired, beside_pairs, leaves_pairs, stated_pairs
from gmiflow.source import Span
from gmiflow.syntax import ast

PAIRS = "pairs of GMIs"
"""Who shares the environments where each GMI that simulates has one that acts for it."""

OPEN = ""
"""Who shares the environments where sizing decides it."""


def check_fit(workflow: Workflow, checked: CheckedWorkflow, report: Report) -> None:
    """Report minibatches that do not divide, uneven shards, missing devices and needs beyond the target."""
    span = checked.found["num_env"].value_span if "num_env" in checked.found else workflow.span
    seen: set[tuple[str, ...]] = set()
    for index, component in enumerate(workflow.components):
        names = tuple(stage.name for stage in component.stages)
        if names in seen:  # replicas say nothing new
            continue
        seen.add(names)
        _check_minibatches(workflow, component, checked, report)
        for stage in component.stages:
            _check_place(workflow, stage, report)
        _check_needs(workflow, component, index, report)
    _check_count(workflow, report)
    _check_shards(workflow, span, report)
    check_effect(workflow, report)


def _check_minibatches(workflow: Workflow, component: Component, checked: CheckedWorkflow, report: Report) -> None:
    """The samples of one stratum are cut evenly into the trainer's `minibatches`."""
    trainer = component.stage("trainer")
    minibatches = dict(trainer.params).get("minibatches") if trainer is not None else None
    if trainer is None or not isinstance(minibatches, int) or minibatches < 1:
        return
    stratum = math.gcd(STRATUM, workflow.num_env) if isinstance(workflow.num_env, int) else STRATUM
    samples = workflow.horizon * stratum
    if samples % minibatches:
        divisors = _divisors(samples)
        below = max(d for d in divisors if d < minibatches)
        above = min((d for d in divisors if d > minibatches), default=None)
        legal = f"{below} or {above}" if above else str(below)
        notes = [
            f"every {stratum} environments give {samples} samples (horizon {workflow.horizon}), "
            "and each minibatch takes the same share of them",
            f"nearest legal numbers: minibatches = {legal}",
        ]
        message = f"{minibatches} minibatches do not divide {samples} samples"
        place = _argument(checked, trainer, "minibatches")
        written = place.text == str(minibatches)  # not a parameter, nor a calculation
        numbers = [number for number in (below, above) if number is not None and written]
        fixes = tuple(Fix(title=f"write `{n}`", edits=(Edit(span=place, text=str(n)),)) for n in numbers)
        report.add("E0411", message, place, notes=notes, fixes=fixes)


def _divisors(number: int) -> set[int]:
    """All divisors; the square root of ``number`` steps."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return {*small, *(number // d for d in small)}


def _argument(checked: CheckedWorkflow, stage: Stage, name: str) -> Span:
    """Where a stage is given a parameter; the stage itself when the parameter has its default."""
    declared = next(s.declaration for group in checked.components for s in group if s.name == stage.name)
    given = next((a.value for a in declared.arguments or () if a.name is not None and a.name.text == name), None)
    replaced = isinstance(given, ast.Constant) and given.value != dict(stage.params)[name]  # by `--set`
    return stage.span if given is None or replaced else given.span


def _check_place(workflow: Workflow, stage: Stage, report: Report) -> None:
    beyond = [device for device in stage.place or () if device >= workflow.target.devices]
    if beyond:
        count = workflow.target.devices
        has = f"{count} devices, 0 to {count - 1}" if count > 1 else "one device, 0"
        message = f"`{stage.name}` is placed on device {beyond[0]}, and target `{workflow.target.name}` has {has}"
        notes = _elsewhere(workflow, stage)
        report.add("E0506", message, stage.place_span or stage.span, secondary=[(stage.span, "the stage")], notes=notes)


def _elsewhere(workflow: Workflow, stage: Stage) -> list[str]:
    """How to compile a file whose stages are on more devices than the target has."""
    most = max(device for c in workflow.components for s in c.stages for device in s.place or ())
    if most >= MAX_DEVICES:
        return [f"devices are counted from 0, and there are at most {MAX_DEVICES:,}"]
    parameter = f"{stage.name}_device"
    return [
        f"a target of {most + 1} GPUs has it, for example `targets.h200(gpus = {most + 1})`; the CPU is one device",
        f"one file for several machines: `param {parameter} : int = {max(stage.place or ())}` and "
        f"`{stage.name} = devices({parameter})`, then `--set {parameter}=0`",
    ]


def _check_needs(workflow: Workflow, component: Component, index: int, report: Report) -> None:
    target = workflow.target
    for stage in component.stages:
        needs = dict(stage.needs)
        if needs.get("gpu") and target.device == "cpu":
            message = f"`{stage.name}` needs a GPU, and target `{target.name}` is the CPU"
            report.add("E0505", message, stage.span)
        for name, has, what in (("cores", target.cores, "CPU cores"), ("sm_count", target.sm_count, "SMs per GPU")):
            wanted = cast("int", needs.get(name, 0))
            if has and wanted > has:
                message = f"`{stage.name}` needs {wanted} {what}, and target `{target.name}` has {has}"
                report.add("E0505", message, stage.span)
    memory = _memory_bytes(workflow, component, index)
    available = target.memory_bytes - target.reserve_bytes
    if target.memory_bytes and memory > available:
        has = f"target `{target.name}` has {_gib(available)}"
        message = f"training `{component.name}` needs {_gib(memory)} per device, and {has}"
        notes = ["memory is what the stages state under `needs`, for the environments of one device"]
        report.add("E0505", message, workflow.span, notes=notes)


def _memory_bytes(workflow: Workflow, component: Component, index: int) -> int:
    """What the stages of a component state under `needs`, on the device that has most of it."""
    num_env = workflow.num_env if isinstance(workflow.num_env, int) else 1
    stratum = math.gcd(STRATUM, num_env)
    found: dict[int, int] = {}
    for group, devices in _placed(workflow, component, index):
        share = math.ceil(num_env // stratum / len(devices)) * stratum  # of whole strata, as slices are
        for needs in (dict(stage.needs) for stage in component.stages if stage.role in group):
            size = cast("int", needs.get("memory", 0)) + cast("int", needs.get("memory_per_env", 0)) * share
            for device in devices:
                found[device] = found.get(device, 0) + size
    return max(found.values())


def _placed(workflow: Workflow, component: Component, index: int) -> list[tuple[tuple[Role, ...], tuple[int, ...]]]:
    """Groups of roles that share GMIs, with the devices of each; ``index`` is the component's in its workflow."""
    mapping = workflow.target.mapping
    groups = groups_of("dp_only" if mapping == "auto" else mapping, workflow)
    return list(zip(groups, group_devices(groups, workflow, component, index), strict=True))


def _check_count(workflow: Workflow, report: Report) -> None:
    """The GMIs of all trainings together: each is a program, and a process or a thread."""
    counts: Counter[tuple[int, int]] = Counter()
    for index, component in enumerate(workflow.components):
        shared = _shared(workflow, component, index)
        devices = len({device for _, _, where in shared for device in where})
        counts[devices, sum((2 if who == PAIRS else 1) * each * len(where) for who, each, where in shared)] += 1
    count = sum(number * gmis for (_, gmis), number in counts.items())
    if count > MAX_GMIS:
        message = f"a run has at most {MAX_GMIS:,} GMIs, not {count:,}"
        parts = [f"{number} x {gmis} on {_devices(devices)}" for (devices, gmis), number in sorted(counts.items())]
        notes = [f"trainings x GMIs of each: {', '.join(parts)}"]
        report.add("E0408", message, workflow.span, notes=notes)


def _devices(count: int) -> str:
    return f"{count} device{'s' if count > 1 else ''}"


def _check_shards(workflow: Workflow, span: Span, report: Report) -> None:
    """Say what happens when the environments do not divide evenly: some GMIs take one stratum more."""
    num_env = workflow.num_env
    if isinstance(num_env, str):
        return
    trainings = (_shared(workflow, component, index) for index, component in enumerate(workflow.components))
    for parts, who in dict.fromkeys((each * len(where), who) for shared in trainings for who, each, where in shared):
        if who != OPEN:
            _check_shard(num_env, parts, who, span, report)


def _shared(workflow: Workflow, component: Component, index: int) -> list[tuple[str, int, tuple[int, ...]]]:
    """Who shares the environments of a component, how many a device has at least, and which devices have them."""
    placed, stated = _placed(workflow, component, index), _groups(workflow)
    if not stated:
        return [(OPEN, 1, where) for _, where in placed]
    found: list[tuple[str, int, tuple[int, ...]]] = []
    for who, each in stated:
        role = "trainer" if who == "trainers" else "agent"
        # A mapping of another mode, which is refused later, has no group with the role.
        found.append((who, each, next((where for group, where in placed if role in group), placed[0][1])))
    return found


def _groups(workflow: Workflow) -> list[tuple[str, int]]:
    """Who shares the environments, and how many of them a device has, as far as the target says it."""
    target = workflow.target
    if target.mapping == "ea_t":
        stated = stated_groups(target)
        if stated is None or target.gmi_per_gpu not in ("auto", sum(stated)):
            return []  # open, or refused by sizing
        return [("agents", stated[0]), ("trainers", stated[1])]
    if workflow.mode == "serve" and target.mapping in ("dp_mp", "mp_dp"):
        return []  # simulators and agents hold the same environments, and nobody waits for the others
    if are_paired(workflow):
        if not leaves_pairs(workflow):
            return []  # sizing refuses it
        stated, apart = stated_pairs(workflow), beside_pairs(workflow)
        return [(PAIRS, min(stated.values())), *([("trainers", apart)] if apart else [])] if stated else []
    return [] if target.gmi_per_gpu == "auto" else [("GMIs", target.gmi_per_gpu)]


def _check_shard(num_env: int, parts: int, who: str, span: Span, report: Report) -> None:
    stratum = math.gcd(STRATUM, num_env)
    small, larger = divmod(num_env // stratum, parts) if parts > 0 else (0, 0)
    if not small or not larger:
        return
    message = f"{num_env} environments do not divide evenly over {parts} {who}"
    notes = [
        f"{larger} of them {_get(larger)} {(small + 1) * stratum} environments, "
        f"{parts - larger} {_get(parts - larger)} {small * stratum}; "
        "the batch stays the same, and the others wait for the larger ones",
    ]
    report.add("W0502", message, span, severity="warning", notes=notes)


def _get(count: int) -> str:
    return "gets" if count == 1 else "get"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
