"""Compile a file for `gmiflow plan` and `explain`: the plan with its search, or the answer to `--what-if`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from gmiflow.commands import what_if
from gmiflow.commands.plan_report import Grounds
from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import Hardware, detect
from gmiflow.ir.search import Point, Search
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Compilation, Options, compile_checked, compile_file
from gmiflow.plan import LaunchPlan
from gmiflow.profiles.defaults import devices_of
from gmiflow.profiles.evidence import Evidence, searched
from gmiflow.profiles.projection import Projection, project_profile, project_search, projection
from gmiflow.profiles.search import choose, space_of
from gmiflow.profiles.store import collectives_for, look_up, workloads_of
from gmiflow.profiles.workload import ProfileKey, WorkloadProfile

NO_TARGET = "E0208"
"""Code of a target that does not exist."""

HARDWARE = frozenset(("device", "processor", "sm_count", "memory_bytes", "cores", "driver", "cuda", "torch"))
"""Fields of a profile's key that a question may be about; a profile that differs in others is of something else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was compiled and what it rests on.

    Attributes:
        search: what the sizing looked at; by the model alone where nothing was measured.
        before: the plan that a question was about, None without one.
        notes: sentences about the grounds.
    """

    compilation: Compilation
    search: Search | None
    grounds: Grounds | None
    before: LaunchPlan | None = None
    notes: tuple[str, ...] = ()


def answer(file: str, options: Options, asked: what_if.WhatIf, output: str = "text") -> Answer:
    """Compile as `gmiflow run` does, and once more as asked; exits with the diagnostics of a file with errors.

    Args:
        file: the `.gmi` file.
        options: of the compiler.
        asked: `--what-if`.
        output: how diagnostics are written.

    Raises:
        click.UsageError: for a question that has no answer.
    """
    hardware = detect()
    compilation = compile_file(file, options, hardware=hardware, stop_after="plan", require_workflow=True)
    _finish(compilation, output)
    if not asked:
        return _plain(compilation, hardware, options)
    assert compilation.workflow is not None
    base = compilation.workflow.target
    other = compilation.checked.target(asked.value("target") or "")
    wished = what_if.asked(options, asked, base, other)
    second = compile_file(file, wished, hardware=hardware, stop_after="check", require_workflow=True)
    _refuse_unknown_target(second.diagnostics, asked)
    _finish(second, output, known=compilation.diagnostics)
    assert second.workflow is not None
    if second.workflow.target == base:
        second = compile_checked(second.checked, hardware=hardware, stop_after="plan", options=wished)
        _finish(second, output, known=compilation.diagnostics)
        found = _plain(second, hardware, wished)
    else:
        found = _projected(second, hardware, wished)
        _finish(found.compilation, output, known=(*compilation.diagnostics, *second.diagnostics))
    return dataclasses.replace(found, before=compilation.plan)


def _plain(compilation: Compilation, hardware: Hardware, options: Options) -> Answer:
    """By what the compilation was decided by."""
    workflow, evidence = compilation.workflow, compilation.evidence
    assert workflow is not None
    if not searched(workflow) and evidence is not None and evidence.stored is not None:
        profile = evidence.stored.profile
        return Answer(
            compilation=compilation, search=None, grounds=_grounds(profile), notes=_measured(profile, compilation)
        )
    if evidence is None or evidence.search is None:
        search = _modelled(workflow, hardware, options)
        return Answer(
            compilation=compilation,
            search=search if search is not None and _agrees(search, compilation) else None,
            grounds=None,
            notes=_stale(workflow, hardware),
        )
    profile = evidence.stored.profile if evidence.stored is not None else None
    return Answer(compilation=compilation, search=evidence.search, grounds=_grounds(profile))


def _projected(checked: Compilation, hardware: Hardware, options: Options) -> Answer:
    """With the stored profile that is nearest to the hardware in question, carried over to it."""
    from gmiflow.profiles.workload_key import key_of

    workflow = checked.workflow
    assert workflow is not None
    goal = key_of(workflow, hardware)
    found = _nearest(_stored(workflow, options), goal)
    if found is None:
        plain = dataclasses.replace(options, use_profiles=False)
        made = compile_checked(checked.checked, hardware=hardware, stop_after="plan", options=plain)
        reason = _stale(workflow, hardware, HARDWARE - {"device"})
        return dataclasses.replace(_plain(made, hardware, options), notes=reason)
    profile, factor = found
    search = _modelled(workflow, hardware, options, project_profile(profile, goal, factor))
    search = project_search(search, factor) if search is not None else None
    made = compile_checked(
        checked.checked, hardware=hardware, stop_after="plan", options=options, evidence=Evidence(search=search)
    )
    return Answer(compilation=made, search=search, grounds=_grounds(profile, factor.basis))


def _stored(workflow: Workflow, options: Options) -> Sequence[WorkloadProfile]:
    """The profile that was named, or all that are kept of the workflow."""
    if options.profile is None:
        return [stored.profile for stored in workloads_of(workflow)]
    try:
        return [WorkloadProfile.from_json(Path(options.profile).read_text(encoding="utf-8"))]
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--profile {options.profile}: {error}") from error


def _nearest(profiles: Sequence[WorkloadProfile], goal: ProfileKey) -> tuple[WorkloadProfile, Projection] | None:
    """The profile of the same workload whose processor is the most like the goal, None without any."""
    found: list[tuple[float, int, WorkloadProfile, Projection]] = []
    for index, profile in enumerate(profiles):
        factor = projection(profile.key, goal)
        measured = any(m.status == "ok" for m in profile.measurements)
        if factor is not None and measured and set(profile.key.differences(goal)) <= HARDWARE:
            found.append((factor.high / factor.low, index, profile, factor))
    best = min(found, key=lambda item: item[:2], default=None)
    return None if best is None else best[2:]


def _modelled(
    workflow: Workflow, hardware: Hardware, options: Options, profile: WorkloadProfile | None = None
) -> Search | None:
    """A search; None where no point can be run, or Algorithm 1 compares none."""
    target = workflow.target
    if not searched(workflow):
        return None
    collectives = collectives_for(hardware, target.device, target.gpu, target.devices)
    try:
        return choose(space_of(workflow, hardware, collectives), profile, options.algorithm)
    except ValueError:
        return None


def _measured(profile: WorkloadProfile, compilation: Compilation) -> tuple[str, ...]:
    """What was measured of a plan that was not searched for, in one sentence, if it was."""
    sized, workflow = compilation.sized, compilation.workflow
    if sized is None or workflow is None:
        return ()
    devices = len(devices_of(workflow.components[0], 0, workflow))
    point = Point(
        template=sized.mapped.template,
        gmis=sized.gmi_per_gpu,
        num_env=sized.num_env // devices,
        execution=sized.execution,
        backend=sized.backend,
    )
    found = next((m for m in profile.measurements if m.point == point and m.status == "ok"), None)
    if found is None:
        return ()
    between = f"{found.steps_per_s_low:,.0f} to {found.steps_per_s_high:,.0f}"
    return (f"this plan was measured: {found.steps_per_s:,.0f} environment steps/s ({between})",)


def _agrees(search: Search, compilation: Compilation) -> bool:
    """Whether a search took what the compiler's defaults took, so that its numbers are about the plan."""
    sized, point = compilation.sized, search.chosen.point
    return sized is not None and (point.gmis, point.execution) == (sized.gmi_per_gpu, sized.execution)


def _grounds(profile: WorkloadProfile | None, basis: str = "") -> Grounds | None:
    if profile is None:
        return None
    return Grounds(
        source=profile.source,
        date=profile.date,
        processor=profile.key.processor,
        measurements=len(profile.measurements),
        basis=basis,
    )


def _stale(workflow: Workflow, hardware: Hardware, ignored: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Why the nearest stored profile does not count, in one sentence, if there is one.

    Args:
        workflow: on its target.
        hardware: this machine.
        ignored: fields of the key that are no reason.
    """
    from gmiflow.profiles.workload_key import difference_text

    known = look_up(workflow, hardware)
    if known.nearest is None or known.key is None:
        return ()
    then = known.nearest.profile.key
    words = [difference_text(name, then, known.key) for name in known.differences if name not in ignored]
    return (f"a stored profile does not count here: {'; '.join(words)}",) if words else ()


def _finish(compilation: Compilation, output: str, known: tuple[Diagnostic, ...] = ()) -> None:
    """Show what is not ``known`` and exit if it is an error; stdout is for the plan unless there is none."""
    new = [problem for problem in compilation.diagnostics if problem not in known]
    finish(new, output if compilation.failed else "text")


def _refuse_unknown_target(diagnostics: tuple[Diagnostic, ...], asked: what_if.WhatIf) -> None:
    """A target that does not exist is a wrong question, not a mistake in the file."""
    for problem in diagnostics:
        if problem.code == NO_TARGET and asked.value("target") is not None:
            hint = f"; {problem.notes[0]}" if problem.notes else ""
            raise click.UsageError(f"--what-if target={asked.value('target')}: {problem.message}{hint}")
