"""`gmiflow graph`: a picture of a workflow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gmiflow.commands.options import chosen_options, compile_options
from gmiflow.commands.output import write_output
from gmiflow.commands.report import ERRORS_FOUND, show
from gmiflow.graphs.diagram import Diagram, diagram
from gmiflow.graphs.svg import svg
from gmiflow.graphs.text_formats import dot, mermaid
from gmiflow.pipeline import compile_file

DRAWERS: dict[str, Callable[[Diagram], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}


@click.command(name="graph")
@click.argument("file", type=click.Path())
@compile_options
@click.option("--format", "form", type=click.Choice([*DRAWERS]), help="By default from -o's ending, else mermaid.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here instead of stdout.")
def command(file: str, form: str | None, output: str | None, **chosen: Any) -> None:  # noqa: ANN401 - click
    """Draw a workflow of FILE: its stages, and every edge with its shape."""
    compilation = compile_file(file, chosen_options(chosen), stop_after="check")
    show(compilation.diagnostics)
    if compilation.failed:
        sys.exit(ERRORS_FOUND)
    if compilation.workflow is None:
        raise click.UsageError(f"{file} has no workflow to draw")
    text = DRAWERS[form or _form_of(output)](diagram(compilation.workflow))
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text)


def _form_of(output: str | None) -> str:
    """The format that a file's ending means."""
    endings = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".md": "mermaid"}
    if output is None:
        return "mermaid"
    ending = Path(output).suffix
    if ending not in endings:
        known = ", ".join(endings)
        raise click.UsageError(f"no format is known for `{output}`: use one of {known}, or --format")
    return endings[ending]
