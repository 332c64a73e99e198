"""Compile a file for `gmiflow plan` and `explain`: the plan with its search, or the answer to `--what-if`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gmiflow.commands import what_if
from gmiflow.commands.plan_report import Evidence
from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import Hardware, detect
from gmiflow.ir.search import Algorithm, Search
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Compilation, Options, compile_file
from gmiflow.plan import LaunchPlan
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
        search: what the sizing looked at.
        before: the plan that a question was about, None without one.
        notes: sentences about the evidence.
    """

    compilation: Compilation
    search: Search | None
    evidence: Evidence | None
    before: LaunchPlan | None = None
    notes: tuple[str, ...] = ()


def answer(
    file: str, options: Options, asked: what_if.WhatIf, output: str = "text", algorithm: Algorithm = "improved"
) -> Answer:
    """Compile as `gmiflow run` does, and once more as asked; exits with the diagnostics of a file with errors.

    Args:
        file: the `.gmi` file.
        options: of the compiler.
        asked: `--what-if`.
        output: how diagnostics are written.
        algorithm: of the search.

    Raises:
        click.UsageError: for a question that has no answer.
    """
    hardware = detect()
    compilation = _compiled(file, options, hardware)
    _finish(compilation, output)
    assert compilation.workflow is not None
    if not asked:
        return _plain(compilation, hardware, algorithm)
    wished = what_if.asked(options, asked, compilation.workflow.target)
    second = _compiled(file, wished, hardware)
    _refuse_unknown_target(second.diagnostics, asked)
    _finish(second, output, known=compilation.diagnostics)
    assert second.workflow is not None
    if second.workflow.target == compilation.workflow.target:
        found = _plain(second, hardware, algorithm)
    else:
        found = _projected(second, hardware, algorithm)
    return Answer(
        compilation=found.compilation,
        search=found.search,
        evidence=found.evidence,
        before=compilation.plan,
        notes=found.notes,
    )


def _compiled(file: str, options: Options, hardware: Hardware) -> Compilation:
    return compile_file(file, options, hardware=hardware, stop_after="plan", require_workflow=True)


def _plain(compilation: Compilation, hardware: Hardware, algorithm: Algorithm) -> Answer:
    """With the profile of this machine, if there is a valid one."""
    workflow = compilation.workflow
    assert workflow is not None
    known = look_up(workflow, hardware)
    notes: tuple[str, ...] = ()
    given = compilation.evidence.stored if compilation.evidence is not None else None
    stored = given or known.valid
    profile = stored.profile if stored is not None else None
    if stored is None and known.nearest is not None and known.key is not None:
        notes = (_stale(known.nearest.profile.key, known.key, known.differences),)
    search, failure = _search(workflow, hardware, profile, algorithm)
    return Answer(compilation=compilation, search=search, evidence=_evidence(profile), notes=(*notes, *failure))


def _projected(compilation: Compilation, hardware: Hardware, algorithm: Algorithm) -> Answer:
    """With the stored profile that is nearest to the hardware in question, carried over to it."""
    from gmiflow.profiles.workload_key import key_of

    workflow = compilation.workflow
    assert workflow is not None
    goal = key_of(workflow, hardware)
    found = _nearest(workflow, goal)
    if found is None:
        search, failure = _search(workflow, hardware, None, algorithm)
        return Answer(compilation=compilation, search=search, evidence=None, notes=failure)
    profile, factor = found
    moved = project_profile(profile, goal, factor)
    search, failure = _search(workflow, hardware, moved, algorithm)
    return Answer(
        compilation=compilation,
        search=None if search is None else project_search(search, factor),
        evidence=_evidence(profile, factor.basis),
        notes=failure,
    )


def _nearest(workflow: Workflow, goal: ProfileKey) -> tuple[WorkloadProfile, Projection] | None:
    """The profile of the same workload whose processor is the most like the goal, None without any."""
    found: list[tuple[float, int, WorkloadProfile, Projection]] = []
    for index, stored in enumerate(workloads_of(workflow)):
        key = stored.profile.key
        factor = projection(key, goal)
        if factor is not None and set(key.differences(goal)) <= HARDWARE:
            found.append((factor.high / factor.low, index, stored.profile, factor))
    best = min(found, key=lambda item: item[:2], default=None)
    return None if best is None else best[2:]


def _search(
    workflow: Workflow, hardware: Hardware, profile: WorkloadProfile | None, algorithm: Algorithm
) -> tuple[Search | None, tuple[str, ...]]:
    """The search; None and why where no point can be run, or Algorithm 1 compares none."""
    target = workflow.target
    collectives = collectives_for(hardware, target.device, target.gpu, target.devices)
    try:
        return choose(space_of(workflow, hardware, collectives), profile, algorithm), ()
    except ValueError as problem:
        return None, (str(problem),)


def _evidence(profile: WorkloadProfile | None, basis: str = "") -> Evidence | None:
    if profile is None:
        return None
    return Evidence(
        source=profile.source,
        date=profile.date,
        processor=profile.key.processor,
        measurements=len(profile.measurements),
        basis=basis,
    )


def _stale(then: ProfileKey, now: ProfileKey, differences: tuple[str, ...]) -> str:
    """Why a stored profile does not count."""
    from gmiflow.profiles.workload_key import difference_text

    words = "; ".join(difference_text(name, then, now) for name in differences)
    return f"a stored profile does not count here: {words}"


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
