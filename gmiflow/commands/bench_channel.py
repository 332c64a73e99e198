"""`gmiflow bench channel`: how the experience of the standard tasks crosses from agent to trainer on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gmiflow.commands.report import show
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import detect
from gmiflow.plan import LaunchPlan

if TYPE_CHECKING:
    from gmiflow.runtime.comm.channel.measure import Crossing

TASKS = {
    "cartpole": "CartPole",
    "ball_balance": "BallBalance",
    "ant": "Ant",
    "humanoid": "Humanoid",
    "anymal": "Anymal",
    "franka_cabinet": "FrankaCabinet",
    "shadow_hand": "ShadowHand",
}
"""Module of the standard library to its simulator."""

_SOURCE = """edition 1
import std.tasks.{task}
import std.algo.ppo
import std.targets
simulator sim     = {task}.{simulator}()
agent     actor   = ppo.Actor()
trainer   learner = ppo.Learner()
workflow bench {{
  mode    = async {{ max_staleness = 1 }}
  num_env = {num_env}
  horizon = {horizon}
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{{reward, terminated, truncated}} -> learner
  learner.weights                     -> actor.weights
}}
target box {{
  base     = targets.cpu
  mapping  = ea_t
  agents   = 1
  trainers = 1
}}
"""


@click.command(name="channel")
@click.option("--tasks", default=",".join(TASKS), show_default=True, help="Modules of std.tasks, with commas.")
@click.option("--num-env", type=click.IntRange(1, 65536), default=1024, show_default=True, help="Environments.")
@click.option("--horizon", type=click.IntRange(1, 1024), default=16, show_default=True, help="Steps of a rollout.")
@click.option("--rollouts", type=click.IntRange(min=10), default=200, show_default=True, help="Timed of each way.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def channel(tasks: str, num_env: int, horizon: int, rollouts: int, output: str) -> None:
    """Time rollouts from one process to another: packed channels beside one message per tensor.

    In shared memory of the host. The sizes are those of the tasks in std.tasks with std.algo.ppo.
    """
    names = [name.strip() for name in tasks.split(",")]
    if unknown := [name for name in names if name not in TASKS]:
        raise click.UsageError(f"--tasks: there is no task {unknown[0]!r}; the tasks are {', '.join(TASKS)}")
    rows = _measured(names, num_env, horizon, rollouts)
    if not rows:
        raise SystemExit(1)
    click.echo(_json(rows) if output == "json" else table(rows), nl=False)


def _measured(names: Sequence[str], num_env: int, horizon: int, rollouts: int) -> list[Crossing]:
    """The rows of all tasks; one that fails is reported, and the others are measured."""
    from gmiflow.runtime.comm.channel.measure import measure_channel
    from gmiflow.runtime.failure import GMIError

    rows: list[Crossing] = []
    for name in names:
        click.echo(f"measuring the experience of {name}", err=True)
        try:
            rows += measure_channel(name, plan_of(name, num_env, horizon), rollouts=rollouts)
        except GMIError as problem:
            failure = problem.failure
            show([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)])
    return rows


def plan_of(task: str, num_env: int, horizon: int) -> LaunchPlan:
    """A training of a standard task with one GMI that collects and one that trains."""
    from gmiflow.pipeline import Options, compile_file

    text = _SOURCE.format(task=task, simulator=TASKS[task], num_env=num_env, horizon=horizon)
    options = Options(use_profiles=False)
    done = compile_file("bench.gmi", options, text=text, hardware=detect(), stop_after="plan")
    if done.plan is None:
        raise click.ClickException("; ".join(diagnostic.message for diagnostic in done.diagnostics))
    return done.plan


def table(rows: Sequence[Crossing]) -> str:
    """One line per task and way, and how many times as fast as one message per tensor it is."""
    head = f"{'task':<15} {'way':<10} {'bytes':>12} {'messages':>8} {'us':>10} {'lowest':>10} {'highest':>10}"
    lines = [f"{head} {'GB/s':>8} {'ratio':>7} {'latency':>8}"]
    base = {row.task: row for row in rows if row.way == "per_tensor"}
    for row in rows:
        other = base[row.task]
        lines.append(
            f"{row.task:<15} {row.way:<10} {row.bytes:>12,} {row.messages:>8} {row.lockstep_s * 1e6:>10.1f} "
            f"{row.low_s * 1e6:>10.1f} {row.high_s * 1e6:>10.1f} {row.bytes_per_s / 1e9:>8.2f} "
            f"{other.pipelined_s / row.pipelined_s:>7.2f} {other.lockstep_s / row.lockstep_s:>8.2f}"
        )
    lines.append("us: of one rollout at a time; GB/s: with four under way; ratios: against `per_tensor`, of both")
    return "\n".join(lines) + "\n"


def _json(rows: Sequence[Crossing]) -> str:
    """One object per row and line."""
    return "".join(json.dumps({**asdict(row), "bytes_per_s": row.bytes_per_s}) + "\n" for row in rows)
