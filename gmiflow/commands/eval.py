"""`gmiflow eval`: what a trained policy does, without exploration, in numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gmiflow.commands.report import finish
from gmiflow.commands.text_table import text_table
from gmiflow.diagnostics import Diagnostic
from gmiflow.evaluation.report import MAX_STEPS, SEED, as_row

if TYPE_CHECKING:
    from gmiflow.evaluation.episodes import Arena, Outcome
    from gmiflow.evaluation.subject import Subject
    from gmiflow.tasks.catalog import TaskInfo


@click.command(name="eval")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--training", metavar="NAME", help="One training of the run.  [default: all]")
@click.option("--best", is_flag=True, help="The checkpoint with the highest mean return, not the last one.")
@click.option("--episodes", type=click.IntRange(1, 65536), default=64, show_default=True, help="Side by side.")
@click.option("--max-steps", type=click.IntRange(min=1), help=f"Of one episode.  [default: the task's, or {MAX_STEPS}]")
@click.option("--seed", type=int, default=SEED, show_default=True, help="Of the episodes' starts.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="auto: a GPU if any.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    run: Path,
    training: str | None,
    best: bool,
    episodes: int,
    max_steps: int | None,
    seed: int,
    device: str,
    output: str,
) -> None:
    """Try the policies of RUN, a run directory or one checkpoint in it.

    The policy acts without exploration in the simulator that it was trained in; every environment makes one episode.
    Returns are sums of the reward as the simulator gives it. For a benchmark task the behaviour is measured too, in
    metres and seconds, and held against the task's goal (`gmiflow tasks show NAME`).
    """
    from gmiflow.runtime.failure import GMIError

    try:
        rows, info = _evaluated(run, training, best, episodes, max_steps, seed, device)
    except GMIError as problem:
        failure = problem.failure
        finish([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)], output)
        raise  # `finish` has ended the process
    if output == "json":
        document = {"run": str(run), "task": info.name if info else None, "seed": seed, "trainings": rows}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(table(rows, info)))


def _evaluated(
    run: Path, training: str | None, best: bool, episodes: int, max_steps: int | None, seed: int, device: str
) -> tuple[list[dict[str, Any]], TaskInfo | None]:
    """A row per training, and the task that they have for their simulator."""
    import torch

    from gmiflow.evaluation.episodes import Arena
    from gmiflow.evaluation.subject import find_subjects, make_act, make_simulator

    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch sees no GPU here")
    place = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(1)  # policies are small: threads would only wait for each other
    subjects = find_subjects(run, training, best=best)
    rows: list[dict[str, Any]] = []
    arenas: dict[str, Arena] = {}
    try:
        for subject in subjects:
            key = repr((subject.simulator, subject.observation, subject.action))
            if key not in arenas:  # replicas share one
                simulator = make_simulator(subject.training, episodes, device=place, seed=seed, threads=threads)
                ports = {"observation": subject.observation, "action": subject.action}
                arenas[key] = Arena(simulator, num_env=episodes, device=place, **ports)
            arena = arenas[key]
            limit = max_steps or (arena.info.episode_length if arena.info is not None else MAX_STEPS)
            rows.append(row(subject, arena.play(make_act(subject, place), limit)))
    finally:
        for arena in arenas.values():
            arena.close()
    infos = {arena.info.name: arena.info for arena in arenas.values() if arena.info is not None}
    return rows, next(iter(infos.values())) if len(infos) == len(arenas) == 1 else None


def row(subject: Subject, outcome: Outcome) -> dict[str, Any]:
    """What `--format json` writes of one training."""
    return {
        "training": subject.training.name,
        "seed": subject.training.seed,
        "checkpoint": subject.checkpoint.name,
        **as_row(outcome),
    }


def table(rows: Sequence[dict[str, Any]], info: TaskInfo | None) -> list[str]:
    """A line per training; below it what the goal asks for, and what it means."""
    measures = info.goal.measures if info is not None else ()
    titles = ["training", "episodes", "return", "+-", "steps", "survival"]
    titles += [f"{measure.name} {measure.unit}".rstrip() for measure in measures]
    lines = [
        [
            row["training"],
            str(row["episodes"]),
            *(_number(row[name]) for name in ("mean_return", "return_deviation", "episode_length", "survival")),
            *(_number(row["measures"].get(measure.name)) for measure in measures),
            {True: "solved", False: "not solved", None: ""}[row["solved"]],
        ]
        for row in rows
    ]
    if info is not None:
        goal = ["goal", "", f">= {info.goal.mean_return:g}", "", "", f">= {info.goal.survival:g}"]
        lines.append([*goal, *(measure.bound.removesuffix(measure.unit).rstrip() for measure in measures), ""])
    shown = text_table([*titles, ""], lines, right="l" + "r" * (len(titles) - 1))
    if any(row["unfinished"] for row in rows):
        left = sum(row["unfinished"] for row in rows)
        click.echo(f"note: {left} episodes had not ended after the most steps, and are left out", err=True)
    return shown


def _number(value: float | None) -> str:
    """Three digits or more; "-" for none."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
