"""Which trainings `gmiflow bench train` makes, told apart by everything that decides their numbers. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gmiflow import resources
from gmiflow.hardware import detect
from gmiflow.pipeline import Options, compile_file
from gmiflow.plan import LaunchPlan
from gmiflow.tasks.catalog import TASKS

GMIFLOW, RSL_RL, RSL_RL_GRAPHED = "gmiflow", "rsl_rl", "rsl_rl_graphed"
PEERS = (RSL_RL, RSL_RL_GRAPHED)
"""What can be trained against: rsl_rl's PPO as it ships, and the same with the simulator's step as one CUDA graph."""

EXAMPLES = {
    "ant": "ant.gmi",
    "humanoid": "humanoid.gmi",
    "anymal": "anymal.gmi",
    "ball_balance": "ball_balance.gmi",
    "franka_cabinet": "franka_cabinet.gmi",
    "shadow_hand": "shadow_hand.gmi",
    "cartpole": "quickstart.gmi",
}
"""Task to the example whose workflow `train` holds its usual settings."""

SIX = tuple(task for task in EXAMPLES if task != "cartpole")
"""The paper's tasks."""

CPU_NUM_ENV = 256
"""Environments on the CPU, unless asked otherwise: the examples' 4,096 are for GPUs."""

ENDLESS = 1_000_000
"""Iterations of a training that something else ends."""


class JobError(Exception):
    """A training that cannot be compiled; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When a training ends; the first of them counts.

    Attributes:
        seconds: of its iterations.
        iterations: of them.
        stop_at_return: a mean return that it reaches.
    """

    seconds: float | None = None
    iterations: int | None = None
    stop_at_return: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One training, or several seeds of it side by side.

    Attributes:
        task: of `EXAMPLES`.
        side: `GMIFLOW` or one of `PEERS`.
        seeds: of the trainings, counting up by one; several only for replicas.
        num_env: environments of each.
        target: a target of the standard library; None for this machine as it is.
        settings: further `--set` pairs.
        limits: when each ends.
        goal: return whose time is wanted.
        source: SHA-256 of the example.
    """

    task: str
    side: str
    seeds: tuple[int, ...]
    num_env: int
    target: str | None
    settings: tuple[str, ...]
    limits: Limits
    goal: float
    source: str

    @property
    def name(self) -> str:
        """Short and unique among the jobs of one call: the name of its directory."""
        seeds = f"seed{self.seeds[0]}" if len(self.seeds) == 1 else f"seeds{self.seeds[0]}-{self.seeds[-1]}"
        return f"{self.task}-{self.side}-{self.num_env}-{seeds}-{self.key(self.seeds[0])[:6]}"

    def key(self, seed: int) -> str:
        """What a row of this seed is known by: 16 hexadecimal digits of everything that decides its numbers."""
        facts = asdict(self)
        facts |= {"seeds": seed, "replicas": len(self.seeds)}
        del facts["goal"]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def file(self) -> Path:
        """The example."""
        return resources.examples_path() / EXAMPLES[self.task]

    def overrides(self) -> list[str]:
        """The `--set` pairs that make the example this training."""
        pairs = [f"workflow.num_env={self.num_env}", f"workflow.seed={self.seeds[0]}"]
        pairs.append(f"workflow.iterations={self.limits.iterations or ENDLESS}")
        if len(self.seeds) > 1:
            pairs.append(f"workflow.replicas={len(self.seeds)}")
        return [*pairs, *self.settings]

    def plan(self) -> LaunchPlan:
        """The launch plan.

        Raises:
            JobError: the settings do not compile.
        """
        return compiled(self.file, self.target, tuple(self.overrides()))


def compiled(file: Path, target: str | None, settings: Sequence[str]) -> LaunchPlan:
    """The plan of an example's workflow `train`.

    Raises:
        JobError: it does not compile; with every message of the compiler.
    """
    pairs = tuple((path, value) for path, _, value in (setting.partition("=") for setting in settings))
    options = Options(workflow="train", target=target, overrides=pairs)
    done = compile_file(str(file), options, hardware=detect(), stop_after="plan")
    if done.plan is None:
        raise JobError("; ".join(f"{problem.code}: {problem.message}" for problem in done.diagnostics))
    return done.plan


def make_jobs(
    tasks: Sequence[str],
    sides: Sequence[str],
    seeds: Sequence[int],
    *,
    num_env: int | None,
    target: str | None,
    settings: Sequence[str],
    limits: Limits,
    goal: float | None,
    replicas: bool,
) -> list[Job]:
    """All trainings, in the order in which they are made: the sides of one seed after each other.

    Args:
        tasks: of `EXAMPLES`.
        sides: `GMIFLOW` and those of `PEERS` that are wanted.
        seeds: of the trainings.
        num_env: environments; None for the task's own number on a GPU and at most `CPU_NUM_ENV` on the CPU.
        target: see `Job`.
        settings: see `Job`.
        limits: see `Job`; without any the example's own number of iterations counts.
        goal: return whose time is wanted; None for the task's own goal.
        replicas: whether gmiflow trains all seeds side by side.
    """
    jobs: list[Job] = []
    for task in tasks:
        info, file = TASKS[task], resources.examples_path() / EXAMPLES[task]
        plan = compiled(file, target, settings)
        wanted = num_env or (info.num_env if plan.target.device == "cuda" else min(CPU_NUM_ENV, info.num_env))
        own = limits
        if limits.seconds is None and limits.iterations is None:
            own = Limits(iterations=plan.trainings[0].iterations, stop_at_return=limits.stop_at_return)
        whole = Job(
            task=task,
            side=GMIFLOW,
            seeds=tuple(seeds),
            num_env=wanted,
            target=target,
            settings=tuple(settings),
            limits=own,
            goal=goal if goal is not None else info.goal.mean_return,
            source=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        together = GMIFLOW in sides and replicas
        if together:
            jobs.append(whole)
        apart = [side for side in sides if not (together and side == GMIFLOW)]
        jobs += [replace(whole, side=side, seeds=(seed,)) for seed in seeds for side in apart]
    return jobs
