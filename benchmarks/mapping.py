"""Which mapping pays, and what a step takes: the paper's Figure 12, and serving on 1 to 8 GMIs.

    python benchmarks/mapping.py --target cpu
    python benchmarks/mapping.py --target h200 --tasks ant humanoid ball_balance --num-env 8192 --gmis 1 2 4 8

Two parts (`--parts`). `ablation` runs the same environments on the same number of GMIs (`--ablation-gmis`) with every
mapping that the mode has: serving with `dp_only`, `mp_dp` and `dp_mp`, synchronous training with `dp_only`, `ea_t`,
`e_at` and `dp_mp`, which has one GMI more: a trainer beside the pairs.
`scaling` serves with `dp_only` on each number of GMIs. Every row is a `gmiflow run` of its own that is stopped after
`--seconds` of iterations; rows are measured `--rounds` times, in turns, so that a slower minute strikes all alike.

One JSON line per row, with the error in place of numbers where it fails; at the end the medians as Markdown tables.
The paper has +110 % for `dp_only` in serving and +287.5 % in sync, and 9.5 % and 6.5 % more memory. Measure on an idle
machine; `--budget` ends the measuring in time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CLASSES = {
    "ant": "Ant",
    "anymal": "Anymal",
    "ball_balance": "BallBalance",
    "cartpole": "CartPole",
    "franka_cabinet": "FrankaCabinet",
    "humanoid": "Humanoid",
    "shadow_hand": "ShadowHand",
}
FILE = """edition 1
import std.tasks.{task}
import std.algo.ppo
import std.targets

simulator sim     = {task}.{name}()
agent     actor   = ppo.Actor(hidden = [256, 128, 64])
trainer   learner = ppo.Learner(minibatches = 2)

workflow sync {{
  mode = sync, num_env = {num_env}, horizon = 16, iterations = 1000000000, checkpoint_every = 0, precision = tf32
  sim.obs -> actor.obs
  actor.action -> sim.action
  actor.experience -> learner.experience
  actor.bootstrap -> learner.bootstrap
  sim.{{reward, terminated, truncated}} -> learner
  learner.weights -> actor.weights
}}
workflow serve {{
  mode = serve, num_env = {num_env}, horizon = 16, iterations = 1000000000, precision = tf32
  sim.obs -> actor.obs
  actor.action -> sim.action
}}
"""
DEFAULTS = {"cpu": (["ant"], 512), "h200": (["ant", "humanoid", "ball_balance"], 8192)}
"""Tasks and environments by target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing to measure."""

    part: str
    task: str
    mode: str
    mapping: str
    gmis: int


def rows_of(arguments: argparse.Namespace) -> list[Row]:
    """All rows of a round."""
    found: list[Row] = []
    for task in arguments.tasks:
        if "ablation" in arguments.parts:
            gmis = arguments.ablation_gmis
            shapes = [
                ("serve", "dp_only", gmis),
                ("serve", "mp_dp", gmis),
                ("serve", "dp_mp", gmis),
                ("sync", "dp_only", gmis),
                ("sync", "ea_t", gmis),
                ("sync", "e_at", gmis),
                ("sync", "dp_mp", gmis + 1),
            ]
            found += [Row(part="ablation", task=task, mode=mode, mapping=name, gmis=n) for mode, name, n in shapes]
        if "scaling" in arguments.parts:
            found += [Row(part="scaling", task=task, mode="serve", mapping="dp_only", gmis=n) for n in arguments.gmis]
    return found


def measure(row: Row, arguments: argparse.Namespace, folder: Path, number: int) -> dict[str, Any]:
    """Run a row; its numbers, or {"error": ...}."""
    file, run_dir = folder / f"{row.task}.gmi", folder / f"run-{number}"
    file.write_text(FILE.format(task=row.task, name=CLASSES[row.task], num_env=arguments.num_env), encoding="utf-8")
    words = ["run", str(file), "-w", row.mode, "--target", arguments.target, "--format", "json", "--no-profile"]
    words += ["--mapping", row.mapping, "--gmi-per-gpu", str(row.gmis), "--run-dir", str(run_dir), *arguments.option]
    log = folder / f"run-{number}.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "gmiflow.cli", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        try:
            late = watch(process, arguments)
        except KeyboardInterrupt:  # ours, not the one that ends a row: leave nothing running
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    report = run_dir / "report.json"
    if late:
        return {"error": f"not done after {arguments.limit:g} s"}
    if not report.exists():
        return {"error": last_words(log)}
    data = json.loads(report.read_text(encoding="utf-8"))
    if data["status"] == "failed" or not data["trainings"]:
        return {"error": "; ".join(failure["message"] for failure in data["failures"]) or last_words(log)}
    return numbers(data["trainings"][row.mode])


def watch(process: subprocess.Popen[str], arguments: argparse.Namespace) -> bool:
    """Ask for the end after so many seconds of iterations; whether the time limit of a row ended it."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.terminate()

    limit = threading.Timer(arguments.limit, end)
    limit.start()
    begun: float | None = None
    asked = False
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] != "Iteration" or asked:
            continue
        now = time.monotonic()
        begun = begun or now
        if now - begun >= arguments.seconds:
            process.send_signal(signal.SIGINT)  # ends at the next iteration, with a report
            asked = True
    process.wait()
    limit.cancel()
    return late.is_set()


def last_words(log: Path) -> str:
    """The end of what a run wrote to stderr."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    found = [line for line in lines if line.startswith("error")]
    return (found or lines or ["no output"])[-1][:300]


def numbers(training: dict[str, Any]) -> dict[str, Any]:
    """What counts of a training in report.json."""
    measured = training["measured"] or {}
    memory = measured.get("device_memory_bytes") or measured.get("host_memory_bytes") or 0
    serves = "latency_ms" in training
    found: dict[str, Any] = {
        "steps_per_s": round(training["env_steps_per_s"] if serves else measured.get("steps_per_s", 0.0)),
        "memory_mib": round(memory / 2**20),
        "iterations": training["iterations"],
        "execution": training["execution"],
    }
    if serves:
        found |= {f"{name}_ms": value for name, value in training["latency_ms"].items()}
        found["fairness"] = training["fairness"]["jain"]
    if not found["steps_per_s"]:
        return {"error": "it ended in its warm-up: give more --seconds"}
    return found


def medians(rows: list[Row], found: dict[Row, list[dict[str, Any]]]) -> dict[Row, dict[str, float]]:
    """The median of every number over the rounds, of the rows that have some."""
    names = ("steps_per_s", "memory_mib", "p50_ms", "p95_ms", "p99_ms", "fairness")
    return {
        row: {name: statistics.median(one[name] for one in found[row]) for name in names if name in found[row][0]}
        for row in rows
        if found.get(row)
    }


def tables(rows: list[Row], values: dict[Row, dict[str, float]]) -> str:
    """Markdown."""
    ablation = [_ablation(row, values) for row in rows if row.part == "ablation" and row in values]
    scaling = [_scaling(row, values[row]) for row in rows if row.part == "scaling" and row in values]
    heads = ["task", "mode", "GMIs", "mapping", "env steps/s", "dp_only over it", "memory MiB", "dp_only over it"]
    found = _markdown(heads, ablation)
    heads = ["task", "GMIs", "env steps/s", "p50 ms", "p95 ms", "p99 ms", "fairness", "memory MiB"]
    return "\n\n".join(table for table in (found, _markdown(heads, scaling)) if table)


def _ablation(row: Row, values: dict[Row, dict[str, float]]) -> list[str]:
    whole = (row.part, row.task, row.mode, "dp_only")
    base = next((found for r, found in values.items() if (r.part, r.task, r.mode, r.mapping) == whole), None)
    own = values[row]
    speed, memory = (
        f"{base[name] / own[name]:.2f}x"
        if base is not None and row.mapping != "dp_only" and base[name] and own[name]
        else "-"
        for name in ("steps_per_s", "memory_mib")
    )
    first = [row.task, row.mode, str(row.gmis), row.mapping, f"{own['steps_per_s']:,.0f}", speed]
    return [*first, _memory(own), memory]


def _scaling(row: Row, own: dict[str, float]) -> list[str]:
    times = [f"{own[f'{name}_ms']:.3g}" for name in ("p50", "p95", "p99")]
    return [row.task, str(row.gmis), f"{own['steps_per_s']:,.0f}", *times, f"{own['fairness']:.3f}", _memory(own)]


def _memory(own: dict[str, float]) -> str:
    """A run that is too short was never sampled."""
    return f"{own['memory_mib']:,.0f}" if own["memory_mib"] else "-"


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def emit(**values: object) -> None:
    """One line."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=sorted(DEFAULTS), default="cpu")
    parser.add_argument("--tasks", nargs="+", choices=sorted(CLASSES), help="default: by the target")
    parser.add_argument("--num-env", type=int, help="of all GMIs together; default: by the target")
    parser.add_argument("--parts", nargs="+", choices=["ablation", "scaling"], default=["ablation", "scaling"])
    parser.add_argument("--ablation-gmis", type=int, default=2, help="GMIs of every mapping; even")
    parser.add_argument("--gmis", type=int, nargs="+", default=[1, 2, 4, 8], help="of the scaling")
    parser.add_argument("--seconds", type=float, default=15.0, help="of iterations in a row")
    parser.add_argument("--rounds", type=int, default=2, help="times that every row is measured")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds that a row may take, its start included")
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds after which no further row is begun")
    parser.add_argument("--option", nargs="*", default=[], help="further words for `gmiflow run`")
    arguments = parser.parse_args()
    tasks, num_env = DEFAULTS[arguments.target]
    arguments.tasks = arguments.tasks or tasks
    arguments.num_env = arguments.num_env or num_env
    return arguments


def main() -> int:
    """Measure all rows; 1 when one had no numbers."""
    arguments = parsed()
    # Children must hear the SIGINT that ends a row, also where this script was started with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    deadline = time.monotonic() + arguments.budget
    rows = rows_of(arguments)
    found: dict[Row, list[dict[str, Any]]] = {}
    # Ctrl-C ends the measuring; what is there is shown.
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="gmiflow-mapping-") as folder:
        for number, (turn, row) in enumerate((turn, row) for turn in range(arguments.rounds) for row in rows):
            name = {"part": row.part, "task": row.task, "mode": row.mode, "mapping": row.mapping, "gmis": row.gmis}
            if time.monotonic() >= deadline:
                emit(row=number, round=turn, **name, error="not begun: the budget is spent")
                continue
            result = measure(row, arguments, Path(folder), number)
            emit(row=number, round=turn, **name, num_env=arguments.num_env, **result, load=round(os.getloadavg()[0], 1))
            if "error" not in result:
                found.setdefault(row, []).append(result)
    sys.stdout.write("\n" + tables(rows, medians(rows, found)) + "\n")
    return 0 if all(row in found for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
