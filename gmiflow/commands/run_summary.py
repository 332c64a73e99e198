"""What `gmiflow run` says at its end: what was reached, how fast, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from gmiflow.commands.launchers import Chosen
from gmiflow.commands.run_view import duration
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.events import RunResult, ServingSummary
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.run_directory import find_checkpoint


def summarise(plan: LaunchPlan, result: RunResult, directory: Path, launcher: Chosen) -> None:
    """Write a line per training, one per group of replicas, and how an early end is taken up again."""
    for training in plan.trainings:
        made = result.iterations.get(training.name, 0)
        value = result.mean_return.get(training.name)
        shown = "no episode ended" if value is None else f"mean return {value:,.1f}"
        if not made and result.status == "failed":
            click.echo(f"{training.name}: failed before an iteration was over, after {duration(result.wall_s)}")
            continue
        speed = _speed(result.env_steps.get(training.name, 0), result.wall_s, result.training_s.get(training.name, 0.0))
        click.echo(f"{training.name}: {result.status} after {made} iterations, {shown}, {speed}")
        if lags := result.lags.get(training.name):
            click.echo(f"{training.name}: {staleness_text(lags)}")
        if (serving := result.serving.get(training.name)) is not None:
            click.echo(f"{training.name}: {serving_text(serving)}")
    for replicas in result.replicas:
        if replicas.mean_return is not None:
            margin = f" ± {replicas.half_width:,.1f} (95 % confidence)" if replicas.half_width is not None else ""
            count = len(replicas.trainings)
            click.echo(f"{replicas.name}: {count} replicas, mean return {replicas.mean_return:,.1f}{margin}")
    if result.restarts:
        click.echo(f"restarted {result.restarts} time{'' if result.restarts == 1 else 's'}")
    click.echo(f"run directory {directory}")
    if result.status != "finished" and any(training.mode != "serve" for training in plan.trainings):
        click.echo(_how_to_go_on(plan, directory, launcher))


def staleness_text(lags: Mapping[int, int]) -> str:
    """How old the experience was that was trained on, from the number of parts of rollouts by lag."""
    mean = sum(lag * count for lag, count in lags.items()) / sum(lags.values())
    return f"experience was {mean:.2f} policy versions old in the mean, {max(lags)} at most"


def serving_text(serving: ServingSummary) -> str:
    """Throughput, latency and fairness of a training that only serves."""
    ends = ", ".join(f"{name} {value:.3g} ms" for name, value in serving.latency_ms.items())
    text = f"{serving.steps_per_s:,.0f} predictions per second; a step takes {ends}"
    if len(serving.gmis) > 1:
        between = f"{serving.slowest_steps_per_s:,.0f} to {serving.fastest_steps_per_s:,.0f} per second"
        text += f"; fairness {serving.fairness:.3f} over {len(serving.gmis)} GMIs ({between})"
    return text


def _speed(env_steps: int, wall_s: float, training_s: float) -> str:
    """Two speeds, each with what it is of: the whole run, and its iterations alone."""
    text = (
        f"{env_steps:,} env steps in {duration(wall_s)} with start-up ({env_steps / max(wall_s, 1e-9):,.0f} per second)"
    )
    if training_s > 0.0:
        text += f"; training alone {duration(training_s)} ({env_steps / training_s:,.0f} per second)"
    return text


def _how_to_go_on(plan: LaunchPlan, directory: Path, launcher: Chosen) -> str:
    """The command that resumes a run that ended early."""
    try:
        for training in plan.trainings:
            find_checkpoint(directory, training.name)
    except GMIError:
        return "there is no checkpoint to go on from"
    return f"go on with: {shlex.join(['gmiflow', 'run', '--resume', str(directory), *launcher.arguments()])}"
