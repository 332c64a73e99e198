"""End-to-end training on one GPU: gmiflow beside rsl_rl's PPO on the same simulator, and what it makes of the GPU.

    PYTHONPATH=. python benchmarks/train_gpu.py --only machine speed --budget 540
    PYTHONPATH=. python benchmarks/train_gpu.py --only curve --seconds 60
    PYTHONPATH=. python benchmarks/train_gpu.py --device cpu --tasks ant --num-env 64 --window-s 0.5   (a trial)

Sections (``--only``):

* ``speed``: environment steps per second. Sides: gmiflow `graph` (sync), `overlap` (max_staleness 1) and `eager`;
  ``rsl_rl`` as it ships; ``rsl_rl_graphed``, the same with the simulator's step replayed as one CUDA graph. Every
  side is a process of its own; they take turns of a window each, one works at a time, and ratios are per turn.
* ``curve``: return against wall clock, `graph` beside ``rsl_rl_graphed``, and the time to the same return.
* ``replicas``: 8 seeds one after the other, side by side as streams of one process, and with simulators that 8 or 4
  of them share (``--joint``).
* ``equal``: weights of `graph`, `overlap` without staleness and replicas against those of `eager`.
* ``slicing``: 1, 2, 4, 8 GMIs of each backend, and replicas, through `gmiflow run`.
* ``simulators``: bare simulators, through simulators.py.

One JSON line per row on stdout and in train_gpu.jsonl in $OUT (or --output). A configuration that fails or hangs is
a row with "error", and the next one begins. Needs rsl-rl-lib and tensordict for the baselines.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from children import ChildError
from train_bench import Bench, Sides
from train_commands import simulators, slicing
from train_curve import curve, mean_return
from train_setting import BASELINES, SETTINGS

DEFAULT = ("machine", "compile", "speed", "equal", "replicas", "curve")
SIDES = ("graph", "overlap", "eager", "rsl_rl", "rsl_rl_graphed")


def machine(bench):
    bench.relay(0, 120, "machine", "machine")


def compile_section(bench):
    """Kernels of all tasks at once, so that later sections find them in the caches."""
    options = bench.options
    tasks = [*options.tasks, "point_mass"] if "equal" in options.only else options.tasks
    settings = {task: small(bench, task) for task in tasks}
    children = {task: bench.child(f"compile_{task}", "compile_kernels", one) for task, one in settings.items()}
    for task, child in children.items():
        try:
            for row in child.rows(min(300, bench.left())):
                bench.emit("compile", **row)
        except ChildError as problem:
            bench.emit("error", name=f"compile {task}", error=str(problem)[-900:])
        finally:
            child.close()


def speed(bench):
    options = bench.options
    sizes = {"ant": options.num_env or [4096, 1024, 16384, 65536]}
    rows = [(task, (sizes.get(task) or options.num_env or [4096])[0]) for task in options.tasks]
    rows += [("ant", num_env) for num_env in sizes["ant"][1:] if "ant" in options.tasks]
    for task, num_env in rows:
        if bench.left() < 40:
            bench.emit("skipped", name=f"speed {task} {num_env}", reason="no time left for it")
            continue
        compare_speed(bench, bench.setting(task, num_env=num_env))


def compare_speed(bench, setting):
    """Rounds of one window per side."""
    options, begun = bench.options, time.monotonic()
    sides = Sides(bench, setting, options.sides)
    try:
        iteration_s = sides.ask(90, "warm")
        counts = {name: max(2, min(500, round(options.window_s / took))) for name, took in iteration_s.items()}
        windows = {name: [] for name in counts}
        for _ in range(options.rounds + 1):
            if bench.left() < 15:
                break
            answers = sides.each(lambda name, child: child.ask(60, "run", counts[name]))
            for name, (seconds, totals) in answers.items():
                windows[name].append((counts[name] * setting.samples / seconds, totals))
        splits, facts = sides.ask(60, "split", 5), sides.ask(30, "describe")
        report_speed(bench, setting, {name: windows[name] for name in sides.alive}, splits, facts)
    finally:
        sides.close()
    bench.emit("wall", name=f"speed {setting.task} {setting.num_env}", wall_s=round(time.monotonic() - begun, 1))


def report_speed(bench, setting, windows, splits, facts):
    """A row per side and one per pair of a side of gmiflow and a baseline. The first round is left out."""
    where = {"task": setting.task, "num_env": setting.num_env, "horizon": setting.horizon}
    where |= {"update": f"{setting.epochs}x{setting.minibatches}", "hidden": list(setting.hidden)}
    rates = {name: [rate for rate, _ in rounds[1:]] for name, rounds in windows.items() if len(rounds) > 1}
    for name, values in rates.items():
        steps_per_s = statistics.median(values)
        collect_ms, learn_ms = splits[name]
        first, last = windows[name][0][1], windows[name][-1][1]
        bench.emit(
            "side",
            **where,
            side=name,
            steps_per_s=round(steps_per_s),
            spread=[round(min(values)), round(max(values))],
            rounds=len(values),
            iteration_ms=round(1e3 * setting.samples / steps_per_s, 2),
            collect_ms=collect_ms,
            learn_ms=learn_ms,
            first_return=mean_return((0, 0, 0), first),
            last_return=mean_return(windows[name][-2][1], last) or mean_return(first, last),
            **facts.get(name, {}),
        )
    for name in rates.keys() - set(BASELINES):
        for base in [base for base in BASELINES if base in rates]:
            ratios = [ours / theirs for ours, theirs in zip(rates[name], rates[base], strict=False)]
            middle = round(statistics.median(ratios), 2)
            spread = [round(min(ratios), 2), round(max(ratios), 2)]
            bench.emit("ratio", **where, side=name, against=base, ratio=middle, spread=spread, rounds=len(ratios))


def replicas(bench):
    options = bench.options
    setting = bench.setting("ant", num_env=(options.num_env or [4096])[0])
    for execution in ("graph", "overlap"):
        arguments = (setting, execution, options.replicas, options.rounds, 2 * options.window_s, tuple(options.joint))
        bench.relay(60, 240, f"replicas_{execution}", "replicas", *arguments)


def small(bench, task):
    """A small training of ``task``."""
    num_env = min([1024, *(bench.options.num_env or ())])
    if task == "point_mass":
        return dataclasses.replace(bench.setting("ant"), task=task, num_env=num_env)
    return bench.setting(task, num_env=num_env)


def equal(bench):
    setting = small(bench, "point_mass")
    bench.relay(20, 120, "equal_point_mass", "equal", setting, 8, True)
    ant = bench.setting("ant", num_env=(bench.options.num_env or [4096])[0])
    for iterations in (3, 8):
        bench.relay(40, 180, f"equal_ant_{iterations}", "equal", ant, iterations, bench.options.device == "cpu")


RUN = {
    "machine": machine,
    "compile": compile_section,
    "speed": speed,
    "curve": curve,
    "replicas": replicas,
    "equal": equal,
    "slicing": slicing,
    "simulators": simulators,
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = list(SETTINGS["speed"])
    parser.add_argument("--only", nargs="+", choices=list(RUN), default=list(DEFAULT))
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for everything (%(default)g)")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks)
    parser.add_argument("--num-env", nargs="+", type=int, help="default: 4096, and for the speed of Ant three more")
    parser.add_argument(
        "--settings", choices=list(SETTINGS), default="speed", help="one update for all, or each task's"
    )
    parser.add_argument("--horizon", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--minibatches", type=int)
    parser.add_argument("--hidden", nargs="+", type=int)
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16"], help="of gmiflow; rsl_rl has TF32 on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, "rsl_rl_compiled"], default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=5, help="measured windows per side, after one that is not")
    parser.add_argument("--window-s", type=float, default=0.8, help="length of a window (%(default)g)")
    parser.add_argument(
        "--curve-sides", nargs="+", choices=[*SIDES, "rsl_rl_compiled"], default=["graph", "rsl_rl_graphed"]
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="training time per side and curve")
    parser.add_argument("--turn-s", type=float, default=5.0, help="training time of a side before the other's turn")
    parser.add_argument("--goal", type=float, help="return whose time is wanted; default: parts of what both reach")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument(
        "--joint", nargs="*", type=int, default=[8, 4], help="replicas of one simulator (%(default)s; none: only apart)"
    )
    parser.add_argument("--slices", nargs="+", type=int, default=[2, 4, 8], help="GMIs per GPU (%(default)s)")
    parser.add_argument("--backends", nargs="+", default=["mps", "green"], help="of the section slicing")
    parser.add_argument("--iterations", type=int, default=60, help="of a `gmiflow run` in the section slicing")
    parser.add_argument("--limit-s", type=float, default=120.0, help="of one command of slicing and simulators")
    parser.add_argument("--env-steps", type=int, default=1_000_000, help="per round of the section simulators")
    return parser.parse_args()


def main():
    bench = Bench(parse())
    try:
        for name, section in RUN.items():
            if name in bench.options.only:
                begun = time.monotonic()
                section(bench)
                bench.emit("section", name=name, wall_s=round(time.monotonic() - begun, 1))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
