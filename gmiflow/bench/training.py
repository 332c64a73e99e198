"""One job of `gmiflow bench train`: training and evaluation in children, and the rows of both. No torch."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gmiflow.bench.child import ChildError, Tail, execute
from gmiflow.bench.curves import Point, first_reached, thinned
from gmiflow.bench.jobs import GMIFLOW, RSL_RL_GRAPHED, Job, Limits
from gmiflow.bench.rows import DONE, Row
from gmiflow.hardware import detect
from gmiflow.plan import LaunchPlan, StagePlan

PACKAGES = ("torch", "mujoco", "mujoco-warp", "warp-lang", "rsl-rl-lib")
EVALUATION = "evaluation.json"
START_UP_S = 300.0
"""Beyond its iterations a training may take this long: imports, kernels to compile, checkpoints."""
EVALUATION_LIMIT_S = 600.0
LONGEST_S = 86_400.0


@dataclass(kw_only=True)
class Progress:
    """What a training has reported so far.

    Attributes:
        curve: its points.
        rates: environment steps per second of every iteration.
        seconds, env_steps, iterations: totals.
    """

    curve: list[Point] = field(default_factory=list[Point])
    rates: list[float] = field(default_factory=list[float])
    seconds: float = 0.0
    env_steps: int = 0
    iterations: int = 0

    def add(self, event: dict[str, Any]) -> None:
        """Count one iteration of metrics.jsonl."""
        self.seconds += event["seconds"]
        self.env_steps, self.iterations = event["total_env_steps"], event["iteration"]
        if event["seconds"] > 0:
            self.rates.append(event["env_steps"] / event["seconds"])
        value = event["mean_return"]
        if isinstance(value, int | float):  # not None, nor "nan": what is not finite is a text there
            self.curve.append((round(self.seconds, 4), self.env_steps, round(float(value), 4)))

    def enough(self, limits: Limits) -> str:
        """Why the training need not go on: "seconds", "return", "iterations", or ""."""
        if limits.stop_at_return is not None and self.curve and self.curve[-1][2] >= limits.stop_at_return:
            return "return"
        if limits.seconds is not None and self.seconds >= limits.seconds:
            return "seconds"
        return "iterations" if limits.iterations is not None and self.iterations >= limits.iterations else ""

    @property
    def steps_per_s(self) -> float | None:
        """Median over the iterations, the first third left out: kernels are compiled in it and caches filled."""
        settled = self.rates[len(self.rates) // 3 :]
        return round(statistics.median(settled), 1) if settled else None


def train(job: Job, folder: Path, *, episodes: int, timeout_s: float | None, deadline: float) -> list[Row]:
    """Make a job's trainings in ``folder``, which is emptied first.

    Args:
        job: what to train.
        folder: becomes a run directory, with the children's output beside the run's files.
        episodes: of the evaluation; 0 for none.
        timeout_s: seconds that the training's child may take; None for its limit and `START_UP_S`, or a day.
        deadline: of `time.monotonic`.

    Returns:
        a row per seed.

    Raises:
        ChildError: training or evaluation failed or took too long.
        OutOfTime: the deadline came first.
        JobError: the settings do not compile.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    plan = job.plan()
    names = [training.name for training in plan.trainings]
    progress = {name: Progress() for name in names}
    tail = Tail(folder / "run" / "metrics.jsonl")

    def enough() -> bool:
        for event in tail():
            progress[event["training"]].add(event)
        return all(one.enough(job.limits) for one in progress.values())

    limit_s = timeout_s or (job.limits.seconds + START_UP_S if job.limits.seconds is not None else LONGEST_S)
    command = _training_command(job, folder, plan, episodes)
    wall_s = execute(command, folder, "train", limit_s=limit_s, deadline=deadline, enough=enough)
    enough()
    if not all(one.iterations for one in progress.values()):
        raise ChildError("it ended without an iteration")
    evaluation_s = _evaluate(plan, folder, episodes, deadline) if job.side == GMIFLOW and episodes else 0.0
    found = json.loads((folder / EVALUATION).read_text(encoding="utf-8"))["trainings"] if episodes else []
    evaluations = dict(zip(names, found, strict=True)) if found else {}
    return [
        _row(job, plan, seed, progress[name], evaluations.get(name), (wall_s, evaluation_s))
        for seed, name in zip(job.seeds, names, strict=True)
    ]


def _evaluate(plan: LaunchPlan, folder: Path, episodes: int, deadline: float) -> float:
    """Evaluate the policies of a run of gmiflow; the seconds that it took."""
    command = ["gmiflow.cli", "eval", str(folder / "run"), "--episodes", str(episodes), "--format", "json"]
    command += ["--device", plan.target.device]
    taken_s = execute(command, folder, "evaluation", limit_s=EVALUATION_LIMIT_S, deadline=deadline)
    shutil.copy(folder / "evaluation.out", folder / EVALUATION)
    return taken_s


def _training_command(job: Job, folder: Path, plan: LaunchPlan, episodes: int) -> list[str]:
    """Module and arguments of the child that trains."""
    if job.side != GMIFLOW:
        (folder / "run").mkdir()
        (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        command = ["gmiflow.bench.rsl_rl_child", str(folder / "plan.json"), str(folder / "run")]
        command += ["--episodes", str(episodes), "--evaluation", str(folder / EVALUATION)]
        return [*command, *(["--graphed"] if job.side == RSL_RL_GRAPHED else [])]
    command = ["gmiflow.cli", "run", str(job.file), "-w", "train", "--run-dir", str(folder / "run")]
    command += ["--no-profile", "--format", "json"]
    command += [] if job.target is None else ["--target", job.target]
    return [*command, *(part for pair in job.overrides() for part in ("--set", pair))]


def _row(
    job: Job,
    plan: LaunchPlan,
    seed: int,
    progress: Progress,
    evaluation: dict[str, Any] | None,
    took_s: tuple[float, float],
) -> Row:
    reached = first_reached(progress.curve, job.goal)
    return {
        "row": DONE,
        **identity(job, seed),
        **_setting(plan),
        "stopped_by": progress.enough(job.limits) or "the run",
        "iterations": progress.iterations,
        "env_steps": progress.env_steps,
        "train_s": round(progress.seconds, 3),
        "wall_s": round(took_s[0], 3),
        "evaluation_s": round(took_s[1], 3),
        "steps_per_s": progress.steps_per_s,
        "last_return": progress.curve[-1][2] if progress.curve else None,
        "best_return": max((value for _, _, value in progress.curve), default=None),
        "goal": job.goal,
        "goal_s": reached[0] if reached else None,
        "goal_env_steps": reached[1] if reached else None,
        "evaluation": evaluation,
        "curve": thinned(progress.curve),
    }


def identity(job: Job, seed: int) -> Row:
    """What every row begins with, also that of a failure."""
    return {
        "key": job.key(seed),
        "task": job.task,
        "side": job.side,
        "seed": seed,
        "num_env": job.num_env,
        "replicas": len(job.seeds),
        "target": job.target,
        "date": time.strftime("%Y-%m-%d"),
    }


def _setting(plan: LaunchPlan) -> Row:
    """What was trained on what, for whoever reads the row alone."""
    training, hardware = plan.trainings[0], detect()
    cuda = plan.target.device == "cuda"
    machine = hardware.gpus[0].name if cuda and hardware.gpus else f"{plan.target.cores} CPU cores"
    agent, trainer = (_params(training.stages, role) for role in ("agent", "trainer"))
    update = {name: trainer[name] for name in ("epochs", "minibatches", "lr", "kl_target", "reward_scale")}
    return {
        "machine": machine,
        "horizon": training.horizon,
        "hidden": agent["hidden"],
        **update,
        "execution": training.execution,
        "gmis": len(plan.gmis),
        "versions": {name: found for name in PACKAGES if (found := _version(name)) is not None},
    }


def _params(stages: Sequence[StagePlan], role: str) -> dict[str, Any]:
    return next(dict(stage.params) for stage in stages if stage.role == role)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
