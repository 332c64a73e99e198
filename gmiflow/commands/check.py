"""`gmiflow check`: every mistake in a file, and nothing else."""

from __future__ import annotations

from typing import Any

import click

from gmiflow.commands.options import chosen_options, compile_options, format_option
from gmiflow.commands.report import finish
from gmiflow.pipeline import compile_file


@click.command(name="check")
@click.argument("file", type=click.Path())
@compile_options
@format_option
def command(file: str, output: str, **chosen: Any) -> None:  # noqa: ANN401 - click
    """Check FILE and show every mistake in it.

    All passes up to communication lowering run, so that a file that checks also compiles. Nothing is
    written, and neither torch nor a simulator is loaded. Exit code 1 when there are errors.
    """
    compilation = compile_file(file, chosen_options(chosen), stop_after="comm")
    finish(compilation.diagnostics, output)
    if output == "text" and compilation.workflow is not None:
        stages = sum(len(component.stages) for component in compilation.workflow.components)
        name = compilation.workflow.name
        click.echo(f"{file}: workflow {name} is well formed ({stages} stages)", err=True)
