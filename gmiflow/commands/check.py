"""`gmiflow check`: every mistake in a file, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from gmiflow.commands.options import chosen_options, compile_options, format_option
from gmiflow.commands.report import finish
from gmiflow.hardware import detect
from gmiflow.passes.check import check_all
from gmiflow.passes.imports import ParsedOnce
from gmiflow.pipeline import Compilation, compile_checked, compile_file
from gmiflow.syntax import ast
from gmiflow.syntax.parser import Parsed


@click.command(name="check")
@click.argument("file", type=click.Path())
@compile_options
@format_option
def command(file: str, output: str, **chosen: Any) -> None:  # noqa: ANN401 - click
    """Check FILE and show every mistake in it.

    All passes up to communication lowering run on every workflow of the file on every target, unless
    options choose one, so that a file that checks also compiles. Nothing is written, and neither torch
    nor a simulator is loaded. Exit code 1 when there are errors.
    """
    options = dataclasses.replace(chosen_options(chosen), use_profiles=False)  # sizes are no matter of a check
    hardware, files = detect(), ParsedOnce()
    several = _targets(file, files) if options.target is None else []
    if len(several) > 1 and options.workflow is None and not options.overrides:
        results = check_all(file, hardware=hardware, files=files)
        compilations = [compile_checked(r, hardware=hardware, stop_after="comm", options=options) for r in results]
    else:
        compilations = [compile_file(file, options, hardware=hardware, stop_after="comm", files=files)]
        for name in _other_workflows(compilations[0]) if options.workflow is None else []:
            one = dataclasses.replace(options, workflow=name)
            compilations.append(compile_file(file, one, hardware=hardware, stop_after="comm", files=files))
    finish(list(dict.fromkeys(d for compilation in compilations for d in compilation.diagnostics)), output)
    for compilation in compilations:
        if output == "text" and compilation.workflow is not None:
            stages = sum(len(component.stages) for component in compilation.workflow.components)
            name = compilation.workflow.name
            name += f" on target {compilation.workflow.target.name}" if len(several) > 1 else ""
            click.echo(f"{file}: workflow {name} is well formed ({stages} stages)", err=True)


def _targets(file: str, files: ParsedOnce) -> list[str]:
    """Names of the file's targets that can be had without arguments."""
    parsed = files.parsed(Path(file), file)
    targets = (
        [item for item in parsed.module.items if isinstance(item, ast.Target)] if isinstance(parsed, Parsed) else []
    )
    return [item.name.text for item in targets if all(param.default is not None for param in item.params or ())]


def _other_workflows(compilation: Compilation) -> list[str]:
    """Names of the workflows that ``compilation`` is not of."""
    module, workflow = compilation.checked.module, compilation.workflow
    if module is None or workflow is None:
        return []
    names = [item.name.text for item in module.items if isinstance(item, ast.Workflow)]
    return [name for name in names if name != workflow.name]
