"""`gmiflow render`: a picture or a movie of a benchmark task."""

from __future__ import annotations

from pathlib import Path

import click

from gmiflow.commands.report import finish
from gmiflow.commands.tasks import find
from gmiflow.diagnostics import Diagnostic
from gmiflow.runtime.failure import NOT_DRAWN

SUFFIXES = (".png", ".mp4", ".gif")


@click.command(name="render")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; .png, .mp4 or .gif.  [default: NAME.png]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=0,
    help="Control steps with random actions. Without it a picture shows the body at rest, and a movie has 200.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the start and of the actions.")
def command(name: str, output: Path | None, steps: int, seed: int) -> None:
    """Draw the task NAME into a picture (.png) or a movie (.mp4, .gif).

    Drawing needs no display and runs in a process of its own. Movies need the extra `gmiflow[render]`.
    """
    find(name)
    path = output or Path(f"{name}.png")
    if path.suffix not in SUFFIXES:
        raise click.UsageError(f"{path}: the file's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {path.parent}")
    from gmiflow.tasks.render import RenderError, render

    try:
        render(name, path, steps=steps, seed=seed)
    except RenderError as error:
        finish([Diagnostic(code=NOT_DRAWN, message=error.message, span=None, notes=error.notes)])
    click.echo(str(path))
