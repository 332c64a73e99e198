"""`gmiflow render`: a picture or a movie of a benchmark task."""

from __future__ import annotations

from pathlib import Path

import click

from gmiflow.commands.report import finish
from gmiflow.commands.tasks import find
from gmiflow.diagnostics import Diagnostic
from gmiflow.runtime.failure import NOT_DRAWN, GMIError

SUFFIXES = (".png", ".mp4", ".gif")


@click.command(name="render")
@click.argument("name", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; .png, .mp4 or .gif.  [default: NAME.png, or NAME.mp4 of a policy]",
)
@click.option(
    "--policy",
    type=click.Path(exists=True, path_type=Path),
    metavar="RUN",
    help="Act with the policy of a run directory or of one checkpoint in it; NAME is then not needed.",
)
@click.option("--training", metavar="NAME", help="Which training of that run.  [default: the first]")
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=0,
    help="Control steps, with random actions or the policy's. Without it a picture shows the body at rest (of a "
    "policy: after 200), and a movie has 200 (500).",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the start and of the actions.")
def command(
    name: str | None, output: Path | None, policy: Path | None, training: str | None, steps: int, seed: int
) -> None:
    """Draw the task NAME, or what a trained policy does, into a picture (.png) or a movie (.mp4, .gif).

    Drawing needs no display and runs in a process of its own. Movies need the extra `gmiflow[render]`.
    """
    if name is None and policy is None:
        raise click.UsageError("name a task, or a run with --policy")
    if policy is None and training is not None:
        raise click.UsageError("--training says which policy: it needs --policy")
    if name is not None:
        find(name)
    task = str(name) if policy is None else _task_of(policy, training, name)
    path = output or Path(f"{task}.png" if policy is None else f"{task}.mp4")
    _require_place(path)
    _draw(task, path, policy, training, steps, seed)
    click.echo(str(path))


def _require_place(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise click.UsageError(f"{path}: the file's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {path.parent}")


def _task_of(policy: Path, training: str | None, name: str | None) -> str:
    """The task that a policy was trained in; it must be ``name``, where that is given."""
    from gmiflow.evaluation.movie import policy_subject

    try:
        task = policy_subject(policy, training)[1].name
    except GMIError as problem:
        failure = problem.failure
        finish([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)])
        raise  # `finish` has ended the process
    if name not in (None, task):
        raise click.UsageError(f"--policy {policy}: it was trained in {task}, not in {name}")
    return task


def _draw(task: str, path: Path, policy: Path | None, training: str | None, steps: int, seed: int) -> None:
    """Draw, or end with E0715."""
    from gmiflow.tasks.render import RenderError, render

    try:
        if policy is None:
            render(task, path, steps=steps, seed=seed)
        else:
            from gmiflow.evaluation.movie import render_policy

            render_policy(policy, path, training=training, steps=steps, seed=seed)
    except RenderError as error:
        finish([Diagnostic(code=NOT_DRAWN, message=error.message, span=None, notes=error.notes)])
