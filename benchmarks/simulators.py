"""Throughput of the bare simulators: one JSON line per engine, task and number of environments.

    python benchmarks/simulators.py --num-env 256 4096 --threads 2
    python benchmarks/simulators.py --device cuda --num-env 4096 16384 --graph

For the CPU engine each line also has the bare `mujoco.batch` loop: the same model, substeps and random
controls, started from the task's own states, without observation, reward and restarts. Both are timed in
turn, and ``over_bare_loop`` is the median ratio over the rounds; ``cpu_over_bare_loop`` is the same of CPU seconds,
which says more on a machine that others use too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

# Before torch starts OpenMP: its threads are to sleep, not to spin, while the physics' own threads work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from mujoco.batch import Batch

from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim.mujoco import MujocoEngine
from gmiflow.sim.standalone import standalone_context
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import TASKS

ACTIONS = 16
"""Different actions, used in turn."""


def make(entry: str, num_env: int, device: str, threads: int, engine: str) -> Task:
    module, name = entry.split(":")
    task = getattr(importlib.import_module(module), name)()
    # The runtime's noise, because a torch generator's cannot be captured in a CUDA graph.
    noise = CounterNoise(seed=1, num_env=num_env, env_offset=0, device=device)
    task.setup(standalone_context(num_env, device=device, threads=threads, noise=noise, engine=engine))
    task.reset()
    return task


def seconds(run: Callable[[int], None], steps: int, device: str) -> tuple[float, float]:
    """Seconds and CPU seconds of all threads for ``steps`` steps, with the device's queue empty on both sides."""
    if device == "cuda":
        torch.cuda.synchronize()
    start, cpu_start = time.perf_counter(), time.process_time()
    run(steps)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, time.process_time() - cpu_start


class BareLoop:
    """`mujoco.batch` alone."""

    def __init__(self, engine: MujocoEngine, num_env: int, threads: int, substeps: int) -> None:
        self.batch = Batch(engine.model, num_env, threads)
        self.ctrl = self.batch.bind("ctrl")
        self.substeps = substeps
        shape = (ACTIONS, *self.ctrl.shape)
        self.controls = torch.rand(shape, dtype=torch.float64).mul_(2.0).sub_(1.0).numpy()

    def start_from(self, engine: MujocoEngine) -> None:
        for name, rows in engine.state_dict().items():
            self.batch.bind(name)[...] = rows.numpy()

    def run(self, steps: int) -> None:
        for step in range(steps):
            self.ctrl[...] = self.controls[step % ACTIONS]
            self.batch.step(nstep=self.substeps)


def stepper(task: Task, num_env: int, device: str, graph: bool) -> Callable[[int], None]:
    """A function that makes steps with random actions, eagerly or by replaying a CUDA graph."""
    # Cut up front: picking one is work of this script, not of the task.
    actions = (torch.rand(ACTIONS, num_env, task.info.action_size, device=device) * 2.0 - 1.0).unbind(0)

    def eager(steps: int) -> None:
        for step in range(steps):
            task.step({"action": actions[step % ACTIONS]})

    if not graph:
        return eager
    eager(3)
    captured = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(captured, stream=stream):
        eager(ACTIONS)

    def replayed(steps: int) -> None:
        for _ in range(steps // ACTIONS):
            captured.replay()

    return replayed


def measure(name: str, num_env: int, arguments: argparse.Namespace) -> dict[str, Any]:
    info = TASKS[name]
    task = make(info.entry, num_env, arguments.device, arguments.threads, arguments.engine)
    run = stepper(task, num_env, arguments.device, arguments.graph)
    # About a third of a second per round on the CPU, whole turns of the actions.
    steps = max(1, int(arguments.env_steps / num_env) // ACTIONS) * ACTIONS
    bare = None
    if isinstance(task.engine, MujocoEngine):
        bare = BareLoop(task.engine, num_env, arguments.threads, info.substeps)
    run(steps)
    times, ratios, cpu_ratios = [], [], []
    for _ in range(arguments.rounds):
        if bare is not None:
            bare.start_from(task.engine)
            bare_s, bare_cpu_s = seconds(bare.run, steps, arguments.device)
        elapsed_s, cpu_s = seconds(run, steps, arguments.device)
        times.append(elapsed_s)
        if bare is not None:
            ratios.append(elapsed_s / bare_s)
            cpu_ratios.append(cpu_s / bare_cpu_s)
    row: dict[str, Any] = {
        "task": name,
        "engine": type(task.engine).__name__.removesuffix("Engine").lower(),
        "device": arguments.device,
        "graph": arguments.graph,
        "num_env": num_env,
        "threads": arguments.threads,
        "steps_per_s": round(num_env * steps / statistics.median(times)),
        "step_ms": round(1e3 * statistics.median(times) / steps, 3),
    }
    if ratios:
        row["over_bare_loop"] = round(statistics.median(ratios), 3)
        row["cpu_over_bare_loop"] = round(statistics.median(cpu_ratios), 3)
    row |= task.diagnostics()
    task.close()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--num-env", nargs="+", type=int, default=[256, 4096])
    parser.add_argument("--engine", default="auto", choices=["auto", "mujoco", "mjwarp"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--graph", action="store_true", help="replay CUDA graphs of 16 steps")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--env-steps", type=int, default=30_000, help="environment steps per round, at least 16 steps")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    where = {"python": platform.python_version(), "torch": torch.__version__, "cores": torch.get_num_threads()}
    for name in arguments.task:
        for num_env in arguments.num_env:
            sys.stdout.write(json.dumps(measure(name, num_env, arguments) | where) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
