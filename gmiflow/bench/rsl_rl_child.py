"""Trains rsl_rl's PPO on the simulator of a plan: ``python -m gmiflow.bench.rsl_rl_child PLAN RUN``.

RUN/metrics.jsonl gets the lines that a run of gmiflow writes too, as far as the benchmark reads them. SIGINT ends the
training after its iteration; the policy is evaluated as `gmiflow eval` does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch

from gmiflow.bench.rsl_rl import EpisodeSums, SimulatorEnv, learn, make_runner, policy_of
from gmiflow.evaluation.episodes import Arena
from gmiflow.evaluation.report import MAX_STEPS, SEED, as_row
from gmiflow.evaluation.subject import make_simulator, stage_of
from gmiflow.plan import LaunchPlan, Role, TrainingPlan
from gmiflow.runtime.merge import ReturnWindow


class Stopped(Exception):
    """SIGINT was heard."""


class Metrics:
    """Writes an iteration per line, as a run of gmiflow does; `iteration` is called at the end of each."""

    def __init__(self, file: TextIO, training: TrainingPlan, sums: EpisodeSums) -> None:
        self._file, self._training, self._sums = file, training, sums
        self._window, self._before = ReturnWindow(), [0.0, 0.0, 0.0]
        self._iteration = 0
        self._since = time.perf_counter()
        self.stop = False

    def iteration(self, **_: object) -> None:
        """rsl_rl calls it with what it would log."""
        totals = self._sums.totals.tolist()
        now = time.perf_counter()
        episodes, return_sum, length_sum = (new - old for new, old in zip(totals, self._before, strict=True))
        mean_return, length = self._window.add(round(episodes), return_sum, length_sum)
        self._iteration += 1
        env_steps = self._training.num_env * self._training.horizon
        line = {
            "training": self._training.name,
            "iteration": self._iteration,
            "env_steps": env_steps,
            "total_env_steps": self._iteration * env_steps,
            "seconds": now - self._since,
            "episodes": round(episodes),
            "mean_return": mean_return if mean_return is None or math.isfinite(mean_return) else None,
            "episode_length": length,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._since, self._before = now, totals
        if self.stop:
            raise Stopped


def train(training: TrainingPlan, device: torch.device, run: Path, *, graphed: bool) -> Any:  # noqa: ANN401 - a runner
    """Train until all iterations are made or SIGINT comes; rsl_rl's runner."""
    agent, trainer = (_params(training, role) for role in ("agent", "trainer"))
    threads = len(os.sched_getaffinity(0))
    simulator = make_simulator(training, training.num_env, device=device, seed=training.seed, threads=threads)
    sums = EpisodeSums(training.num_env, device)
    env = SimulatorEnv(
        simulator,
        num_env=training.num_env,
        action_size=stage_of(training, "agent").shapes["A"],
        device=str(device),
        reward_scale=_float(trainer["reward_scale"]),
        count=sums.add,
        graphed=graphed,
    )
    runner = make_runner(
        env,
        horizon=training.horizon,
        epochs=trainer["epochs"],
        minibatches=trainer["minibatches"],
        hidden=agent["hidden"],
        lr=_float(trainer["lr"]),
        kl_target=_float(trainer["kl_target"]),
        seed=training.seed,
        init_std=math.exp(_float(agent["init_log_std"])),
        algorithm={
            "clip_param": _float(trainer["clip"]),
            "gamma": _float(trainer["gamma"]),
            "lam": _float(trainer["lam"]),
            "entropy_coef": _float(trainer["entropy"]),
            "max_grad_norm": _float(trainer["max_grad_norm"]),
        },
    )
    with (run / "metrics.jsonl").open("w", encoding="utf-8") as file:
        metrics = Metrics(file, training, sums)
        setattr(runner.logger, "log", metrics.iteration)  # noqa: B010 - with fewer parameters than it declares
        signal.signal(signal.SIGINT, lambda *_: setattr(metrics, "stop", True))
        with contextlib.suppress(Stopped):
            learn(runner, training.iterations)
    simulator.close()
    return runner


def _params(training: TrainingPlan, role: Role) -> dict[str, Any]:
    return dict(stage_of(training, role).params)


def _float(value: Any) -> float:  # noqa: ANN401 - of a plan
    return float(value)


def evaluate(training: TrainingPlan, device: torch.device, runner: Any, episodes: int) -> dict[str, Any]:  # noqa: ANN401
    """What `gmiflow eval --format json` writes, of rsl_rl's policy."""
    threads = len(os.sched_getaffinity(0))
    simulator = make_simulator(training, episodes, device=device, seed=SEED, threads=threads)
    arena = Arena(simulator, num_env=episodes, device=device)
    try:
        limit = arena.info.episode_length if arena.info is not None else MAX_STEPS
        outcome = arena.play(policy_of(runner), limit)
    finally:
        arena.close()
    return {"trainings": [{"training": training.name, "seed": training.seed, **as_row(outcome)}]}


def main(arguments: list[str] | None = None) -> int:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--graphed", action="store_true", help="replay the simulator's step as one CUDA graph")
    parser.add_argument("--episodes", type=int, default=0, help="of the evaluation; 0 for none")
    parser.add_argument("--evaluation", type=Path, help="where it is written")
    given = parser.parse_args(arguments)
    plan = LaunchPlan.from_json(given.plan.read_text(encoding="utf-8"))
    (training,) = plan.trainings
    device = torch.device(plan.target.device)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    fast = training.precision != "f32"  # the same matrix products on both sides
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    runner = train(training, device, given.run, graphed=given.graphed)
    if given.episodes:
        found = evaluate(training, device, runner, given.episodes)
        given.evaluation.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
