"""Compile a file for `gmiflow plan` and `explain`: the plan, or the answer to `--what-if`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gmiflow.commands import what_if
from gmiflow.commands.plan_report import Evidence
from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic
from gmiflow.ir.search import Search
from gmiflow.pipeline import Compilation, Options, compile_file
from gmiflow.plan import LaunchPlan

NO_TARGET = "E0208"
"""Code of a target that does not exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was compiled and what it rests on.

    Attributes:
        search: what the sizing looked at, None when it had nothing to choose.
        before: the plan that a question was about, None without one.
        notes: sentences about the evidence.
    """

    compilation: Compilation
    search: Search | None
    evidence: Evidence | None
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
    compilation = _compiled(file, options, output)
    if not asked:
        return Answer(compilation=compilation, search=None, evidence=None)
    assert compilation.workflow is not None
    wished = what_if.asked(options, asked, compilation.workflow.target)
    second = compile_file(file, wished, stop_after="plan", require_workflow=True)
    _refuse_unknown_target(second.diagnostics, asked)
    _finish(second, output, known=compilation.diagnostics)
    return Answer(compilation=second, search=None, evidence=None, before=compilation.plan)


def _compiled(file: str, options: Options, output: str) -> Compilation:
    compilation = compile_file(file, options, stop_after="plan", require_workflow=True)
    _finish(compilation, output)
    return compilation


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
