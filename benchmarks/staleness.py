"""How well a task learns from experience that is exactly so many policy versions old: returns by updates, no times.

    PYTHONPATH=. python benchmarks/staleness.py --task ant --lags 0 1 2 4 --updates 70
    PYTHONPATH=. python benchmarks/staleness.py --task cartpole --lags 1 2 4 --corrections clip vtrace --updates 30

One process collects and trains in turn with the stages and sizes of asynchronous.py. The agent acts with the weights of
``lag`` updates before, the oldest that `max_staleness = lag` admits; a real run is younger. On one machine the numbers
repeat exactly, however busy it is. One JSON line per lag, correction and seed, and a Markdown table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from asynchronous_setting import TASKS, Setting, Side

from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.program import Program
from gmiflow.runtime.stages import build_stages, build_trainer

CPU = torch.device("cpu")
POINTS = 7
"""Returns of a training that are shown; each is over the episodes since the one before."""


class Lagging:
    """A training of `ea_t` in one process, every rollout ``lag`` versions old as soon as there are as many."""

    def __init__(self, setting, lag, threads):
        plan = setting.plan()
        training = plan.trainings[0]
        self._clock = StageClock([stage.name for stage in training.stages])
        agents, trainers = (self._context(plan, gmi, threads) for gmi in plan.gmis)
        dispenser = Dispenser(training)
        shape = {"horizon": training.horizon, "num_env": training.num_env}
        tensors = {kind.name: torch.zeros(kind.shape(**shape), dtype=kind.dtype) for kind in dispenser.kinds}
        self._batch = dispenser.ports(tensors)
        self._stages = build_stages(agents, self._clock)
        self.episodes = EpisodeStatistics(training.num_env, CPU)
        rollout = Rollout(Routes(training), **shape, device=CPU, storage=tensors)
        self._execution = EagerExecution(training, self._stages, self.episodes, rollout, self._clock)
        self._execution.start(resumed=False)
        self._trainer, _ = build_trainer(trainers, self._clock)
        self._versions = deque([self._weights()], maxlen=lag + 1)

    def _context(self, plan, gmi, threads):
        program = Program(
            gmis=len(plan.gmis),
            gmi=dataclasses.replace(gmi, threads=threads),
            training=plan.trainings[0],
            collectives=(),
            channels=plan.channels,
        )
        control = LocalGroup(f"alone.{gmi.id}", (gmi.id,)).member(0)
        return GMIContext(program=program, device=CPU, collectives={}, control=control)

    def _weights(self):
        return {name: value.clone() for name, value in self._trainer.weights().items()}

    def iterate(self):
        """One rollout and one update; the trainer's metrics."""
        self._stages.agent.load_weights(self._versions[0])
        self._execution.collect()
        metrics = self._trainer.update(self._batch)
        self._versions.append(self._weights())
        return metrics


def train(setting, lag, options):
    """The row of one training."""
    training = Lagging(setting, lag, options.threads)
    returns, clipped, before = [], [], training.episodes.totals.clone()
    for update in range(1, options.updates + 1):
        metrics = training.iterate()
        clipped.append(float(metrics["clip_fraction"]))
        if update * POINTS // options.updates > (update - 1) * POINTS // options.updates:
            episodes, return_sum, _ = (training.episodes.totals - before).tolist()
            before = training.episodes.totals.clone()
            returns.append([update, round(return_sum / episodes, 1) if episodes else None])
    share = round(sum(clipped) / len(clipped), 3)
    return {"returns": returns, "clip_fraction": share, "kl": round(float(metrics["kl"]), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(TASKS["cpu"]), default="ant")
    parser.add_argument("--lags", nargs="+", type=int, default=[0, 1, 2, 4])
    parser.add_argument("--corrections", nargs="+", choices=["clip", "vtrace"], default=["clip"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--updates", type=int, default=70)
    parser.add_argument("--num-env", type=int, help="default: as in asynchronous.py")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = TASKS["cpu"][options.task]
    if options.num_env:
        task = dataclasses.replace(task, num_env=options.num_env)
    rows = []
    for seed in options.seeds:
        for lag in options.lags:
            for correction in options.corrections:
                side = Side(mapping="ea_t", max_staleness=lag, gmis=2)
                setting = Setting(task=task, device="cpu", side=side, correction=correction, seed=seed)
                where = {"task": options.task, "lag": lag, "correction": correction, "seed": seed}
                rows.append({"row": "staleness", **where, **train(setting, lag, options)})
                print(json.dumps(rows[-1]), flush=True)
    heading = [
        "task",
        "lag",
        "correction",
        "seed",
        *(f"update {update}" for update, _ in rows[0]["returns"]),
        "clipped",
    ]
    for line in [heading, ["---"] * len(heading)]:
        print("| " + " | ".join(line) + " |")
    for row in rows:
        cells = [row["task"], str(row["lag"]), row["correction"], str(row["seed"])]
        cells += [str(value) for _, value in row["returns"]] + [f"{100 * row['clip_fraction']:.0f} %"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
