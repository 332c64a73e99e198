"""`gmiflow tasks`: the benchmark tasks, and what each of them is exactly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from gmiflow.diagnostics import closest
from gmiflow.tasks.catalog import TASKS, TaskInfo
from gmiflow.tasks.goals import Goal

PLACES = {"mujoco": "CPU", "mjwarp": "GPU"}
"""Where `engine = auto` chooses each engine."""

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to write it.",
)


@click.group(name="tasks", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """The benchmark tasks: simulators that `std.tasks` declares. Alone, it lists them."""
    if context.invoked_subcommand is None:
        context.invoke(list_command, output="text")


@command.command(name="list")
@format_option
def list_command(output: str) -> None:
    """Every task in one line."""
    if output == "json":
        click.echo(json.dumps([as_data(info) for info in TASKS.values()], indent=2))
        return
    heading = ("task", "obs", "act", "steps", "envs", "what it is")
    rows = [
        (info.name, info.observation_size, info.action_size, info.episode_length, info.num_env, info.description)
        for info in TASKS.values()
    ]
    click.echo("\n".join(_aligned([heading, *rows], numbers=(1, 2, 3, 4))))


@command.command(name="show")
@click.argument("name")
@format_option
def show_command(name: str, output: str) -> None:
    """Sizes, observation, reward, start and end of the task NAME."""
    info = find(name)
    click.echo(json.dumps(as_data(info), indent=2) if output == "json" else as_text(info))


def find(name: str) -> TaskInfo:
    """The task called ``name``.

    Raises:
        click.UsageError: there is none; the message has the nearest name, or all of them.
    """
    if name in TASKS:
        return TASKS[name]
    close = closest(name, TASKS)
    hint = f"did you mean {close}?" if close else "there are " + ", ".join(TASKS)
    raise click.UsageError(f"there is no task {name}; {hint}")


def as_data(info: TaskInfo) -> dict[str, Any]:
    """What `--format json` writes: the catalogue's fields, and where the task is declared."""
    pairs = {
        "observation": [{"name": name, "size": size} for name, size in info.observation],
        "reward": [{"name": name, "formula": formula} for name, formula in info.reward],
    }
    return dataclasses.asdict(info) | pairs | {"module": info.module, "stage": info.stage}


def as_text(info: TaskInfo) -> str:
    """The task on about a screen."""
    physics_ms = 1e3 * info.control_dt / info.substeps
    facts = [
        ("declared as", f"{info.module}: {info.stage}"),
        ("engines", ", ".join(f"{engine} ({PLACES[engine]})" for engine in info.engines)),
        ("observation", f"{info.observation_size} floats"),
        ("action", f"{info.action_size} floats in -1..1"),
        ("control step", f"{1e3 * info.control_dt:g} ms = {info.substeps} physics steps of {physics_ms:g} ms"),
        ("episode", f"{info.episode_length} control steps = {info.episode_length * info.control_dt:g} s"),
        ("num_env", f"{info.num_env} by default"),
        ("horizon", f"{info.horizon} by default"),
        ("reward scale", f"{info.reward_scale:g} in the reference settings; the terms below are unscaled"),
    ]
    sections = [
        ("Observation", _aligned(_ranges(info.observation))),
        ("Reward of one step, a sum", _aligned(info.reward)),
        ("Start of an episode", list(info.start)),
        ("Terminated when", [info.end]),
        ("Solved when", [info.solved, *_aligned(_goal(info.goal))]),
    ]
    lines = [f"{info.name}: {info.description}", "", *(f"  {line}" for line in _aligned(facts))]
    for title, body in sections:
        lines += ["", title, *(f"  {line}" for line in body)]
    return "\n".join(lines)


def _goal(goal: Goal) -> Iterable[tuple[str, str, str]]:
    """What `gmiflow eval` holds a policy against, a row each: the number, what is asked for, what it is."""
    yield "mean_return", f">= {goal.mean_return:g}", "of episodes without exploration, of the unscaled reward"
    if goal.survival:
        yield "survival", f">= {goal.survival:g}", "share of episodes that last their whole time"
    for measure in goal.measures:
        over = {"mean": "mean", "sum": "sum", "max": "highest", "last": "last"}[measure.over]
        yield measure.name, measure.bound, f"{measure.meaning}; {over} of an episode"


def _ranges(parts: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """The columns that each part takes, and its name."""
    rows: list[tuple[str, str]] = []
    first = 0
    for name, size in parts:
        rows.append((str(first) if size == 1 else f"{first}..{first + size - 1}", name))
        first += size
    return rows


def _aligned(rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> list[str]:
    """Rows as lines with columns of equal width; the columns ``numbers`` to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in numbers else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    ]
