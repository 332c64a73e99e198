"""`gmiflow check`: every mistake in a file, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from gmiflow.commands.options import chosen_options, compile_options, format_option
from gmiflow.commands.report import finish
from gmiflow.hardware import detect
from gmiflow.passes.imports import ParsedOnce
from gmiflow.pipeline import Compilation, compile_file
from gmiflow.syntax import ast


@click.command(name="check")
@click.argument("file", type=click.Path())
@compile_options
@format_option
def command(file: str, output: str, **chosen: Any) -> None:  # noqa: ANN401 - click
    """Check FILE and show every mistake in it.

    All passes up to communication lowering run on every workflow of the file (or on the one of -w), so
    that a file that checks also compiles. Nothing is written, and neither torch nor a simulator is
    loaded. Exit code 1 when there are errors.
    """
    options = dataclasses.replace(chosen_options(chosen), use_profiles=False)  # sizes are no matter of a check
    hardware, files = detect(), ParsedOnce()
    compilations = [compile_file(file, options, hardware=hardware, stop_after="comm", files=files)]
    others = _other_workflows(compilations[0]) if options.workflow is None else []
    for name in others:
        one = dataclasses.replace(options, workflow=name)
        compilations.append(compile_file(file, one, hardware=hardware, stop_after="comm", files=files))
    finish(list(dict.fromkeys(d for compilation in compilations for d in compilation.diagnostics)), output)
    for compilation in compilations:
        if output == "text" and compilation.workflow is not None:
            stages = sum(len(component.stages) for component in compilation.workflow.components)
            name = compilation.workflow.name
            click.echo(f"{file}: workflow {name} is well formed ({stages} stages)", err=True)


def _other_workflows(compilation: Compilation) -> list[str]:
    """Names of the workflows that ``compilation`` is not of."""
    module, workflow = compilation.checked.module, compilation.workflow
    if module is None or workflow is None:
        return []
    names = [item.name.text for item in module.items if isinstance(item, ast.Workflow)]
    return [name for name in names if name != workflow.name]
