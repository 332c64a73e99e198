"""What a step of a simulator costs in an interpreter of its own, against the same class in this process.

    python benchmarks/foreign.py --python /opt/py38/bin/python
    python benchmarks/foreign.py --python /opt/py38/bin/python --num-env 64 1024 4096 --think-us 200

One JSON line per number of environments. The class (tests/runtime/foreign/hosted_mass.py) is NumPy alone, so all sides
run the same code, in turn, in blocks; medians are compared. `in_process_us` is a step in gmiflow's own interpreter,
`alone_us` one in the other interpreter without gmiflow (its Python and NumPy have their own speed), `hosted_us` one
through the host, and `host_us` what the host adds to `alone_us`. `signals_us` is `hosted_us` of a class whose step
does nothing: the two signals and the calls around them. Before each step this process computes for `--think-us`, as an
agent would; a host that has slept longer is woken more slowly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

TESTS = Path(__file__).parents[1] / "tests" / "runtime"
sys.path[:0] = [str(TESTS), str(TESTS / "foreign")]

from foreign_support import set_up  # noqa: E402
from hosted_mass import PointMass  # noqa: E402

BLOCK = 100
"""Steps of one side before it is the next one's turn."""


def here(kind: type[Any], num_env: int) -> Callable[[dict[str, Any]], None]:
    """A step of the class in this process; tensors in, tensors out, as a simulator of gmiflow has them."""
    flags = {name: np.zeros(num_env, bool) for name in ("terminated", "truncated")}
    buffers = {"obs": np.zeros((num_env, 4), np.float32), "reward": np.zeros(num_env, np.float32), **flags}
    views = {name: torch.from_numpy(array) for name, array in buffers.items()}
    simulator = kind()
    simulator.setup(SimpleNamespace(num_env=num_env, seed=1, env_offset=0, buffers=buffers))
    simulator.reset()

    def step(inputs: dict[str, Any]) -> None:
        simulator.step({"action": inputs["action"].numpy()})
        assert views["obs"].shape[0] == num_env

    return step


def timed(step: Callable[[dict[str, Any]], Any], inputs: dict[str, Any], steps: int, think_us: float) -> list[float]:
    """Microseconds of each step, with a computation of ``think_us`` before it."""
    found: list[float] = []
    for _ in range(steps):
        until = time.perf_counter() + think_us * 1e-6
        while time.perf_counter() < until:
            pass
        start = time.perf_counter()
        step(inputs)
        found.append((time.perf_counter() - start) * 1e6)
    return found


ALONE = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from types import SimpleNamespace
from hosted_mass import PointMass
num_env = int(sys.argv[2])
flags = {name: np.zeros(num_env, bool) for name in ("terminated", "truncated")}
buffers = dict(flags, obs=np.zeros((num_env, 4), np.float32), reward=np.zeros(num_env, np.float32))
simulator = PointMass()
simulator.setup(SimpleNamespace(num_env=num_env, seed=1, env_offset=0, buffers=buffers))
simulator.reset()
action = {"action": np.random.RandomState(0).uniform(-1, 1, (num_env, 2)).astype(np.float32)}
think = float(sys.argv[3]) * 1e-6
for line in sys.stdin:
    for _ in range(int(line)):
        until = time.perf_counter() + think
        while time.perf_counter() < until:
            pass
        start = time.perf_counter()
        simulator.step(action)
        print((time.perf_counter() - start) * 1e6)
    print("end", flush=True)
"""


class Alone:
    """The class in the other interpreter, without gmiflow."""

    def __init__(self, python: str, num_env: int, think_us: float) -> None:
        arguments = [python, "-c", ALONE, str(TESTS / "foreign"), str(num_env), str(think_us)]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def timed(self, steps: int) -> list[float]:
        """Microseconds of each step."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(steps, file=self._process.stdin, flush=True)
        return [float(line) for line in iter(self._process.stdout.readline, "end\n")]

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def medians(python: str, num_env: int, rounds: int, think_us: float) -> dict[str, float]:
    """Median microseconds of a step on each side, measured in turn."""
    inputs = {"action": torch.rand(num_env, 2) * 2 - 1}
    hosts = {name: set_up(python, name, num_env=num_env) for name in ("PointMass", "Idle")}
    alone = Alone(python, num_env, think_us)
    inside = here(PointMass, num_env)
    sides: dict[str, Callable[[], list[float]]] = {
        "in_process_us": lambda: timed(inside, inputs, BLOCK, think_us),
        "alone_us": lambda: alone.timed(BLOCK),
        "hosted_us": lambda: timed(hosts["PointMass"].step, inputs, BLOCK, think_us),
        "signals_us": lambda: timed(hosts["Idle"].step, inputs, BLOCK, think_us),
    }
    for host in hosts.values():
        host.reset()
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(rounds + 1):
        for name, measure in sides.items():
            found = measure()
            samples[name] += found if round_ else []  # the first round warms all up
    for host in (*hosts.values(), alone):
        host.close()
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", required=True, help="interpreter with NumPy")
    parser.add_argument("--num-env", type=int, nargs="+", default=[64, 1024, 4096])
    parser.add_argument("--think-us", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=10, help="blocks of 100 steps per side")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for num_env in given.num_env:
        found = medians(given.python, num_env, given.rounds, given.think_us)
        row = {
            "num_env": num_env,
            **{name: round(value, 1) for name, value in found.items()},
            "host_us": round(found["hosted_us"] - found["alone_us"], 1),
            "think_us": given.think_us,
            "python": given.python,
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
            "machine": platform.processor() or platform.machine(),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
