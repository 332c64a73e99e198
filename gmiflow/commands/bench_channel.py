"""`gmiflow bench channel`: how the experience of the standard tasks crosses from agent to trainer on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gmiflow.commands.report import show
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import GPU, Hardware, detect
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

_NOT_IN_THE_PAPER = "cartpole"

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
{place}
  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{{reward, terminated, truncated}} -> learner
  learner.weights                     -> actor.weights
}}
target box {{
{where}
  mapping  = ea_t
  agents   = 1
  trainers = 1
}}
"""


_MEANING = {
    "direct": "collected in the slot that the other side reads, as runs do; only the slot's number is sent",
    "packed": "one copy into the slot for each group of tensors, and one number",
    "host": "the same through memory of the host, copied out of it again",
    "per_tensor": "a ring for each tensor: a copy and a number for each",
    "socket": "a message for each tensor over a Unix socket",
}
"""Ways of `gmiflow.runtime.comm.channel.measure`, in words."""


@click.command(name="channel")
@click.option(
    "--tasks",
    default="all",
    show_default=True,
    help="Modules of std.tasks, with commas; `paper`: the six of the GMI-DRL paper; `all`: these and cartpole.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto: a GPU if there is one.",
)
@click.option("--across", is_flag=True, help="Between the first two GPUs, into the memory of the second.")
@click.option("--num-env", type=click.IntRange(1, 65536), default=1024, show_default=True, help="Environments.")
@click.option("--horizon", type=click.IntRange(1, 1024), default=16, show_default=True, help="Steps of a rollout.")
@click.option("--rollouts", type=click.IntRange(min=10), default=200, show_default=True, help="Timed of each way.")
@click.option("--format", "output", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
def channel(tasks: str, device: str, across: bool, num_env: int, horizon: int, rollouts: int, output: str) -> None:
    """Time rollouts from one process to another: packed channels beside one message per tensor.

    In shared memory of the host, or between two processes on one GPU in its memory, or on two. The sizes are those of
    the tasks in std.tasks with std.algo.ppo.
    """
    names = _task_names(tasks)
    hardware = detect()
    cuda = device == "cuda" or (device == "auto" and bool(hardware.gpus))
    if cuda and not hardware.gpus:
        raise click.UsageError("--device cuda: this machine has no NVIDIA GPU")
    if across and (device == "cpu" or not hardware.peer_access):
        needed = "two NVIDIA GPUs that may write into each other's memory"
        raise click.UsageError(f"--across: needs {needed}; {_found(hardware)}")
    size = {"num_env": num_env, "horizon": horizon}
    plans = {name: plan_of(name, **size, hardware=hardware, cuda=cuda, across=across) for name in names}
    rows = _measured(plans, rollouts)
    if not rows:
        raise SystemExit(1)
    written = {"text": table, "json": _json, "markdown": markdown}
    click.echo(written[output](rows), nl=False)


def _found(hardware: Hardware) -> str:
    """The GPUs of this machine, for a message."""
    count = len(hardware.gpus)
    return f"this machine has {count}" + (", and they may not" if count > 1 and not hardware.peer_access else "")


def _task_names(tasks: str) -> list[str]:
    """The modules that ``--tasks`` names, in its order."""
    if tasks in ("all", "paper"):
        return [name for name in TASKS if tasks == "all" or name != _NOT_IN_THE_PAPER]
    names = [name.strip() for name in tasks.split(",")]
    if unknown := [name for name in names if name not in TASKS]:
        raise click.UsageError(f"--tasks: there is no task {unknown[0]!r}; the tasks are {', '.join(TASKS)}")
    return names


def _measured(plans: Mapping[str, LaunchPlan], rollouts: int) -> list[Crossing]:
    """The rows of all tasks; one that fails is reported, and the others are measured."""
    from gmiflow.runtime.comm.channel.measure import ACROSS, WAYS, measure_channel
    from gmiflow.runtime.failure import GMIError

    rows: list[Crossing] = []
    for name, plan in plans.items():
        click.echo(f"measuring the experience of {name}", err=True)
        try:
            ways = ACROSS if plan.channels[0].kind == "p2p" else WAYS
            rows += measure_channel(name, plan, rollouts=rollouts, ways=ways)
        except GMIError as problem:
            failure = problem.failure
            show([Diagnostic(code=failure.code, message=failure.message, span=None, notes=failure.notes)])
    return rows


def plan_of(
    task: str, num_env: int, horizon: int, *, hardware: Hardware, cuda: bool = False, across: bool = False
) -> LaunchPlan:
    """A training of a standard task with one GMI that collects and one that trains.

    Both are on the CPU or on the first GPU, or with ``across`` on one GPU each.
    """
    from gmiflow.pipeline import Options, compile_file

    where = _on_gpu(hardware.gpus[0], 1 + across) if cuda else "  base = targets.cpu"
    names = {"task": task, "simulator": TASKS[task], "where": where}
    names["place"] = "  place { sim = devices(0), learner = devices(1) }" if across else ""
    text = _SOURCE.format(**names, num_env=num_env, horizon=horizon)
    options = Options(use_profiles=False)
    done = compile_file("bench.gmi", options, text=text, hardware=hardware, stop_after="plan")
    if done.plan is None:
        raise click.ClickException("; ".join(diagnostic.message for diagnostic in done.diagnostics))
    return done.plan


def _on_gpu(gpu: GPU, count: int) -> str:
    """Fields of a target: two processes on a GPU, under MPS where that is installed, or on a GPU each."""
    backend = "mps" if count == 1 and shutil.which("nvidia-cuda-mps-control") is not None else "timeshare"
    fields = {"device": "cuda", "gpu": json.dumps(gpu.name), "devices": count, "sm_count": gpu.sm_count}
    fields |= {"memory": f"{gpu.memory_bytes // 2**20} MiB", "backend": backend}
    return "\n".join(f"  {name} = {value}" for name, value in fields.items())


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
    lines.append(
        "us: of one rollout at a time, the median, the lowest and the highest tenth; GB/s: with four under way"
    )
    lines.append("ratio, latency: how many times as fast as `per_tensor`, by GB/s and by us")
    lines += [f"{way}: {_MEANING[way]}" for way in dict.fromkeys(row.way for row in rows)]
    return "\n".join(lines) + "\n"


def markdown(rows: Sequence[Crossing]) -> str:
    """One line per task: microseconds of a rollout by each way with several under way, and the ratios."""
    ways = list(dict.fromkeys(row.way for row in rows))
    heading = ["task", "device", "MiB", *(f"{way} (us)" for way in ways)]
    heading += [f"{way} / {other}" for other in ways[:2] for way in ways[2:]]
    lines = [heading, ["---"] * len(heading)]
    for task in dict.fromkeys(row.task for row in rows):
        found = {row.way: row for row in rows if row.task == task}
        first = next(iter(found.values()))
        cells = [task, first.device, f"{first.bytes / 2**20:.2f}"]
        cells += [f"{found[way].pipelined_s * 1e6:,.1f}" for way in ways]
        cells += [f"{found[way].pipelined_s / found[other].pipelined_s:.2f}x" for other in ways[:2] for way in ways[2:]]
        lines.append(cells)
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _json(rows: Sequence[Crossing]) -> str:
    """One object per row and line."""
    return "".join(json.dumps({**asdict(row), "bytes_per_s": row.bytes_per_s}) + "\n" for row in rows)
