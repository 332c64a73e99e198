"""How long the compiler takes, and how much memory: a file of 1,000 stages and 5,000 edges, and small commands.

    python benchmarks/compiler.py            # JSON lines: one per measurement
    python benchmarks/compiler.py --write big.gmi

The file declares 333 independent trainings of a simulator, an agent and a trainer, each with 15 edges (the last
one 20), and one stage that no workflow uses. Everything is measured in fresh processes, as a user runs it: wall
time, CPU time and peak resident memory: the median of ``--repeat`` runs, and the least of the times, which a
machine with other work on it disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAININGS = 333
EDGES = 5_000
GMIFLOW = "from gmiflow.cli import main; main()"

PORTS = {
    "simulator": (
        "in action : f32[env, 8] range -1 .. 1",
        "out obs : f32[env, 60]",
        "out reward : f32[env]",
        "out terminated : bool[env]",
        "out truncated : bool[env]",
    ),
    "agent": (
        "in obs : f32[env, O]",
        "in weights : weights",
        "out action : f32[env, A]",
        "out bootstrap : f32[env]",
        "out experience : ppo.Experience",
    ),
    "trainer": (
        "in experience : ppo.Experience[time]",
        "in bootstrap : f32[env]",
        "in reward : f32[time, env]",
        "in terminated : bool[time, env]",
        "in truncated : bool[time, env]",
        "out weights : weights",
    ),
}
ENTRIES = {
    "simulator": "gmiflow.tasks.ant:Ant",
    "agent": "gmiflow.rl.ppo:Actor",
    "trainer": "gmiflow.rl.ppo:Learner",
}
LOOP = (
    "sim.obs -> actor.obs",
    "actor.action -> sim.action",
    "actor.experience -> learner.experience",
    "actor.bootstrap -> learner.bootstrap",
    "sim.reward -> learner.reward",
    "sim.terminated -> learner.terminated",
    "sim.truncated -> learner.truncated",
    "learner.weights -> actor.weights",
)


def large_file() -> str:
    """The text of the large `.gmi` file."""
    most = EDGES - (TRAININGS - 1) * (EDGES // TRAININGS) - len(LOOP)
    lines = ["edition 1", "", "import std.algo.ppo", ""]
    for role, ports in PORTS.items():
        extra = {"simulator": "out info_{} : f32[env, 4]", "trainer": "in info_{} : f32[time, env, W] optional"}
        more = [extra[role].format(i) for i in range(most)] if role in extra else []
        lines += [f"{role} {role.capitalize()} {{", f'  entry = py "{ENTRIES[role]}"']
        lines += [f"  {port}" for port in (*ports, *more)] + ["}", ""]
    for index in range(TRAININGS):
        lines += [f"simulator sim_{index} = Simulator()", f"agent actor_{index} = Agent()"]
        lines += [f"trainer learner_{index} = Trainer()"]
    lines += [
        "simulator spare = Simulator()",
        "",
        "workflow train {",
        "  mode = sync",
        "  num_env = 4096",
        "  horizon = 16",
    ]
    left = EDGES
    for index in range(TRAININGS):
        count = EDGES // TRAININGS if index < TRAININGS - 1 else left
        names = [*LOOP] + [f"sim.info_{i} -> learner.info_{i}" for i in range(count - len(LOOP))]
        lines += [f"  {_numbered(edge, index)}" for edge in names]
        left -= count
    return "\n".join([*lines, "}", ""])


def _numbered(edge: str, index: int) -> str:
    for stage in ("sim", "actor", "learner"):
        edge = edge.replace(f"{stage}.", f"{stage}_{index}.")
    return edge


def measure(arguments: list[str], folder: Path) -> dict[str, float]:
    """Run gmiflow once: wall and CPU seconds and peak resident MiB of the process."""
    command = [sys.executable, "-c", GMIFLOW, *arguments]
    with open(os.devnull, "wb") as null:
        start = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        redirect = [(os.POSIX_SPAWN_DUP2, null.fileno(), 1), (os.POSIX_SPAWN_DUP2, null.fileno(), 2)]
        before = os.getcwd()
        os.chdir(folder)
        pid = os.posix_spawn(sys.executable, command, environment, file_actions=redirect)
        os.chdir(before)
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.perf_counter() - start
    if status:
        raise SystemExit(f"gmiflow {' '.join(arguments)} failed")
    return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def results(repeat: int) -> Iterator[dict[str, object]]:
    """Every measurement, as the median of ``repeat`` runs after one that is thrown away."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "large.gmi").write_text(large_file(), encoding="utf-8")
        ant = str(ROOT / "examples" / "ant.gmi")
        cases = {
            "--help": ["--help"],
            "check examples/ant.gmi": ["check", ant, "--target", "cpu"],
            "compile examples/ant.gmi": ["compile", ant, "--target", "cpu"],
            "check large.gmi": ["check", "large.gmi", "--target", "h200"],
            "compile large.gmi": ["compile", "large.gmi", "--target", "h200"],
        }
        for case, arguments in cases.items():
            measure(arguments, folder)
            runs = [measure(arguments, folder) for _ in range(repeat)]
            values = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
            least = {f"{key}_min": round(min(run[key] for run in runs), 3) for key in ("wall_s", "cpu_s")}
            yield {"case": case, "runs": repeat, **values, **least}


def machine() -> dict[str, object]:
    """Where and with what the numbers were taken."""
    model = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "lark": version("lark"),
        "click": version("click"),
        "jinja2": version("jinja2"),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--write", type=Path, help="write the large file here and measure nothing")
    arguments = parser.parse_args()
    if arguments.write:
        arguments.write.write_text(large_file(), encoding="utf-8")
        return
    print(json.dumps(machine()))
    for result in results(arguments.repeat):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
