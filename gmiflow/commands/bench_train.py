"""`gmiflow bench train`: the benchmark tasks over several seeds, and beside rsl_rl on the same simulators."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gmiflow.bench.child import ChildError, OutOfTime
from gmiflow.bench.jobs import EXAMPLES, GMIFLOW, PEERS, RSL_RL_GRAPHED, SIX, Job, JobError, Limits, make_jobs
from gmiflow.bench.report import draw, markdown
from gmiflow.bench.rows import Row, Rows
from gmiflow.bench.training import identity, train
from gmiflow.commands.durations import Duration
from gmiflow.commands.report import finish
from gmiflow.commands.run_place import claimed
from gmiflow.diagnostics import Diagnostic
from gmiflow.hardware import detect
from gmiflow.runtime.failure import PACKAGE_MISSING

ROWS, TABLE, PLOT = "rows.jsonl", "table.md", "curves.png"
BESIDES_S = 40.0
"""What a row needs beyond its training seconds, before one of its kind has told: start, kernels, evaluation."""


class Names(click.ParamType):
    """Names separated by commas, each one of some."""

    name = "names"

    def __init__(self, known: Sequence[str], what: str) -> None:
        self._known, self._what = tuple(known), what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:  # noqa: ANN401
        """Each once, in the order given."""
        if isinstance(value, tuple):
            return value
        names = [word.strip() for word in str(value).split(",") if word.strip()]
        if unknown := [name for name in names if name not in self._known]:
            self.fail(f"there is no {self._what} {unknown[0]!r}; there are {', '.join(self._known)}")
        return tuple(dict.fromkeys(names))


@click.command(name="train")
@click.option(
    "--tasks", type=Names(tuple(EXAMPLES), "task"), default=",".join(SIX), show_default=True, help="With commas."
)
@click.option("--seeds", type=click.IntRange(1, 64), default=3, show_default=True, help="Trainings of every task.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first of them.")
@click.option(
    "--num-env", type=click.IntRange(min=16), help="Of a training.  [default: the task's on a GPU, 256 on the CPU]"
)
@click.option("--seconds", type=Duration(), metavar="TIME", help="Of the iterations of a training.")
@click.option("--iterations", type=click.IntRange(1, 1_000_000), help="Of a training.  [default: the example's]")
@click.option(
    "--stop-at-return", metavar="R", type=float, help="End a training there; and the goal, for the task's own."
)
@click.option(
    "--against",
    type=Names(PEERS, "peer"),
    default="",
    metavar="PEERS",
    help="rsl_rl, and rsl_rl_graphed on a GPU: with the simulator's step as one CUDA graph.",
)
@click.option("--only-against", is_flag=True, help="Train the peers alone.")
@click.option("--replicas", is_flag=True, help="gmiflow's seeds side by side: sooner, but steps/s are not those alone.")
@click.option("--target", metavar="NAME", help="A target of std.targets: h200, cpu, ...  [default: this machine]")
@click.option("--set", "settings", metavar="PATH=VALUE", multiple=True, help="Also set this, for every side.")
@click.option(
    "--episodes", type=click.IntRange(0, 65536), default=64, show_default=True, help="Of evaluations; 0: none."
)
@click.option(
    "--timeout", type=Duration(), metavar="TIME", help="Of a training.  [default: --seconds and 5 min, or a day]"
)
@click.option(
    "--budget", type=Duration(), metavar="TIME", help="Of the whole command: no row is begun that it cuts off."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="bench-train",
    show_default=True,
    metavar="DIR",
    help="Rows, table, picture and run directories.",
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def train_command(out: Path, output: str, **options: Any) -> None:  # noqa: ANN401 - click
    """Train the benchmark tasks over several seeds; beside rsl_rl on the same simulators, networks and updates.

    The settings are those of the examples. Every training is a process of its own, and so is its evaluation without
    exploration. DIR/rows.jsonl gets a line for each as soon as it is done; what is there already is not made again, so
    the same command goes on where it was stopped. At the end, and after every row, DIR/table.md has means with 95 %
    confidence intervals and the times to the same return, and DIR/curves.png the curves.
    """
    _require(options)
    with claimed(out, "--out"):
        rows = Rows(out / ROWS)
        jobs = _jobs(options)
        budget: float | None = options["budget"]
        session = _Session(
            rows=rows,
            out=out,
            keys=[job.key(seed) for job in jobs for seed in job.seeds],
            episodes=options["episodes"],
            timeout_s=options["timeout"],
            deadline=math.inf if budget is None else time.monotonic() + budget,
        )
        failed, left = session.work(jobs)
    found = rows.finished(session.keys)
    if output == "json":
        click.echo("".join(json.dumps(row) + "\n" for row in found), nl=False)
    elif found:
        click.echo(markdown(found), nl=False)
        click.echo(f"rows, this table and the runs are in {out}", err=True)
    if left:
        click.echo(f"{left} of {len(session.keys)} rows are left: the same command goes on", err=True)
    if failed:
        raise SystemExit(1)


def _require(options: dict[str, Any]) -> None:
    """Refuse before anything starts what cannot work."""
    if options["only_against"] and not options["against"]:
        raise click.UsageError("--only-against needs --against")
    if bad := [pair for pair in options["settings"] if "=" not in pair]:
        raise click.UsageError(f"--set {bad[0]}: expected PATH=VALUE")
    missing = [name for name in ("rsl_rl", "tensordict") if importlib.util.find_spec(name) is None]
    if options["against"] and missing:
        message = f"--against {options['against'][0]} needs the Python package {' and '.join(missing)}"
        mend = "install it by pip install rsl-rl-lib tensordict"
        finish([Diagnostic(code=PACKAGE_MISSING, message=message, span=None, notes=(mend,))])
    if RSL_RL_GRAPHED in options["against"] and (options["target"] == "cpu" or not detect().gpus):
        raise click.UsageError(f"--against {RSL_RL_GRAPHED}: CUDA graphs need a GPU; there is rsl_rl")
    if importlib.util.find_spec("matplotlib") is None:
        click.echo(f"note: no {PLOT}, which needs matplotlib: pip install matplotlib", err=True)


def _jobs(options: dict[str, Any]) -> list[Job]:
    limits = Limits(
        seconds=options["seconds"], iterations=options["iterations"], stop_at_return=options["stop_at_return"]
    )
    sides = [*([] if options["only_against"] else [GMIFLOW]), *options["against"]]
    first = options["seed"]
    try:
        return make_jobs(
            options["tasks"],
            sides,
            range(first, first + options["seeds"]),
            num_env=options["num_env"],
            target=options["target"] or (None if detect().gpus else "cpu"),
            settings=options["settings"],
            limits=limits,
            goal=options["stop_at_return"],
            replicas=options["replicas"],
        )
    except JobError as problem:
        raise click.UsageError(str(problem)) from problem


@dataclass(kw_only=True)
class _Session:
    """The work of one call.

    Attributes:
        keys: of the rows that it is to give, in order.
        deadline: of `time.monotonic`.
    """

    rows: Rows
    out: Path
    keys: list[str]
    episodes: int
    timeout_s: float | None
    deadline: float

    def work(self, jobs: Sequence[Job]) -> tuple[int, int]:
        """Make what is missing; how many jobs failed, and how many rows are left for another call."""
        failed = 0
        for index, job in enumerate(jobs):
            wanted = [seed for seed in job.seeds if job.key(seed) not in self.rows.done]
            if not wanted:
                continue
            if self.deadline - time.monotonic() < self._needs_s(job):
                continue  # a later one may be shorter
            click.echo(f"[{index + 1}/{len(jobs)}] {job.name}", err=True)
            try:
                done = train(
                    job,
                    self.out / "runs" / job.name,
                    episodes=self.episodes,
                    timeout_s=self.timeout_s,
                    deadline=self.deadline,
                )
            except OutOfTime:
                break
            except (ChildError, JobError) as problem:
                failed += 1
                click.echo(f"failed: {problem}", err=True)
                self.rows.add({"row": "failed", **identity(job, seed), "error": str(problem)} for seed in wanted)
                continue
            new = [row for row in done if row["seed"] in wanted]
            self.rows.add(new)
            for row in new:
                click.echo(f"  {_came_to(row)}", err=True)
            self._show()
        return failed, len(set(self.keys) - self.rows.done)

    def _needs_s(self, job: Job) -> float:
        """Seconds that a job is expected to take: what one of its kind took, else its training and some more."""
        kind = ("task", "side", "num_env", "replicas", "target")
        like = identity(job, job.seeds[0])
        took = [
            row["wall_s"] + row["evaluation_s"]
            for row in self.rows.finished(self.keys)
            if all(row[name] == like[name] for name in kind)
        ]
        return max(took) if took else (job.limits.seconds or 0.0) + BESIDES_S

    def _show(self) -> None:
        """Write table and picture of what is there."""
        found = self.rows.finished(self.keys)
        (self.out / TABLE).write_text(markdown(found), encoding="utf-8")
        if importlib.util.find_spec("matplotlib") is not None:
            draw(found, self.out / PLOT)


def _came_to(row: Row) -> str:
    """A training that is done, in a line."""
    evaluation, last = row["evaluation"], row["last_return"]
    reached = "no episode ended" if last is None else f"last return {last:,.1f}"
    if evaluation is not None and evaluation["mean_return"] is not None:
        reached += f", {evaluation['mean_return']:,.1f} without exploration"
    steps = f"{row['env_steps']:,} env steps in {row['train_s']:.1f} s"
    return f"seed {row['seed']}: {row['iterations']} iterations, {steps}, {reached}"
