"""Asynchronous training: return against wall clock beside sync, and throughput beside processes without GMIs.

    PYTHONPATH=. python benchmarks/asynchronous.py --output results --budget 700                    (two CPU cores)
    PYTHONPATH=. python benchmarks/asynchronous.py --device cuda --output results --budget 540       (one GPU)
    PYTHONPATH=. python benchmarks/asynchronous.py --report --output results --images docs/images    (picture, tables)

Sections (``--only``):

* ``curve``: every side trains by `gmiflow run` for the same number of seconds. Sides: ``sync`` (all roles in one GMI
  with all cores), ``async_S`` (half of the GMIs collect, half train, at most S versions behind), on the CPU ``sync_2``
  (two GMIs with all roles, a core each), and on a GPU ``overlap_1``.
* ``throughput``: predictions per second (PPS) and training samples per second (TTOP) of agents and trainers apart,
  beside the baseline of asynchronous_baseline.py, in turns; where agents wait for the trainer (``block``: both are the
  same number), and where they do not (``drop``). On the CPU the baseline runs with one thread and with all in each
  process, on a GPU calling every stage (``eager``) and replaying gmiflow's CUDA graphs (``graph``); there is a ratio
  to each.

One JSON line per row on stdout and in asynchronous.jsonl in --output. Started again with the same --output it measures
what is missing; what fails is a row with "error" and is tried again. A measurement begins only if it fits the budget.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from asynchronous_report import read, report
from asynchronous_runs import RunError, run_for, summary
from asynchronous_setting import TASKS, Setting, Side, sides_of
from children import ChildError

from gmiflow.runtime import speed

START_S = {"cpu": 60.0, "cuda": 150.0}
"""What a run may need besides its seconds; on a GPU kernels may have to be compiled."""


class Bench:
    """Options, deadline, the rows that are there already, and a place for runs."""

    def __init__(self, options):
        self.options = options
        self._end = time.monotonic() + options.budget
        options.output.mkdir(parents=True, exist_ok=True)
        self._file = options.output / "asynchronous.jsonl"
        self.done = {tuple(row["key"]) for row in read(self._file) if "key" in row and "error" not in row}
        self.folder = Path(tempfile.mkdtemp(prefix="asynchronous_"))
        self._number = itertools.count()

    def left(self):
        """Seconds until the budget is spent."""
        return self._end - time.monotonic()

    def new_folder(self):
        """A name for the files of a run."""
        return self.folder / f"{next(self._number):03d}"

    def emit(self, row, **fields):
        """Print and store one row."""
        line = json.dumps({"row": row, **fields})
        print(line, flush=True)
        with self._file.open("a") as file:
            file.write(line + "\n")

    def measure(self, row, where, seconds, work):
        """Emit ``work(limit_s)`` as one row, unless it is there already or does not fit the time that is left.

        Args:
            row: its kind.
            where: what it measures; its values make the key.
            seconds: of measuring; the start comes on top.
            work: returns the row's fields.
        """
        key = [row, *map(str, where.values())]
        limit_s = seconds + START_S[self.options.device]
        if tuple(key) in self.done:
            return
        if self.left() < seconds + 15.0:
            self.emit("skipped", **where, reason="no time left for it")
            return
        begun = time.monotonic()
        try:
            fields = work(min(limit_s, self.left()))
            self.done.add(tuple(key))
        except (RunError, ChildError, ValueError) as problem:
            fields = {"error": str(problem)[-900:]}
        load = round(os.getloadavg()[0], 1)
        self.emit(row, key=key, **where, **fields, wall_s=round(time.monotonic() - begun, 1), load=load)

    def close(self):
        """Remove the runs."""
        shutil.rmtree(self.folder, ignore_errors=True)


def curve(bench):
    """Seeds first: when time runs out, all sides have as many."""
    options = bench.options
    sides = {name: side for name, side in sides_of(options.device, options.staleness).items()}
    chosen = {name: side for name, side in sides.items() if options.sides is None or name in options.sides}
    for seed in range(options.seeds):
        for task in options.tasks:
            for name, side in chosen.items():
                for correction in options.corrections if side.max_staleness else ["clip"]:
                    setting = Setting(
                        task=TASKS[options.device][task],
                        device=options.device,
                        side=side,
                        correction=correction,
                        seed=seed,
                    )
                    where = {"task": task, "device": options.device, "side": name, "correction": correction}
                    seconds = options.seconds[options.tasks.index(task) % len(options.seconds)]
                    where |= {"seed": seed, "seconds": seconds}
                    bench.measure("curve", where, seconds, lambda limit, s=setting: one_curve(bench, s, limit))


def one_curve(bench, setting, limit_s):
    """Points of return against seconds of training, and the throughput."""
    options, folder = bench.options, bench.new_folder()
    seconds = options.seconds[options.tasks.index(setting.task.name) % len(options.seconds)]
    rows = run_for(setting, folder, seconds, limit_s)
    elapsed, points = 0.0, []
    for row in rows:
        elapsed += row["seconds"]
        if row["mean_return"] is not None:
            points.append([round(elapsed, 2), row["total_env_steps"], round(row["mean_return"], 2)])
    shutil.rmtree(folder, ignore_errors=True)
    return {**summary(rows, min(warm_up_of(setting), max(0, len(rows) - 1))), "points": points}


def warm_up_of(setting):
    """Iterations that the graphs of all sets of buffers take to be captured, which no measurement counts."""
    return speed.warm_up_of(setting.plan().trainings[0], on_gpu=setting.device == "cuda")


def throughput(bench):
    """Rounds in which every side has one turn."""
    options = bench.options
    cores = len(os.sched_getaffinity(0))
    ways = {"eager": (1, False), "graph": (1, True)}
    if options.device == "cpu":
        ways = {f"{count} threads": (count, False) for count in sorted({1, cores})}
    for round_number in range(options.rounds):
        for task in options.tasks:
            for regime in options.regimes:
                drops = regime == "drop"
                side = Side(mapping="ea_t", max_staleness=options.bound, gmis=options.gmis, drops=drops)
                setting = Setting(task=TASKS[options.device][task], device=options.device, side=side)
                where = {"task": task, "device": options.device, "regime": regime}
                where |= {"bound": options.bound, "round": round_number, "seconds": options.window_s}
                compare(bench, setting, where, ways)


def compare(bench, setting, where, ways):
    """One turn of gmiflow and of the baseline in each of its ways: (threads, whether there are CUDA graphs) by name."""
    window_s = bench.options.window_s

    def gmiflow(limit_s):
        folder = bench.new_folder()
        warm_up = warm_up_of(setting)
        rows = run_for(setting, folder, 1.5 * window_s, limit_s, warm_up)  # nor does the first third count
        shutil.rmtree(folder, ignore_errors=True)
        return summary(rows, warm_up)

    def baseline(limit_s, threads, graphs):
        from asynchronous_baseline import measure

        setup_s = max(10.0, limit_s - window_s)
        folder = bench.new_folder()
        return measure(setting, folder, threads=threads, graphs=graphs, seconds=window_s, setup_s=setup_s)

    bench.measure("throughput", {**where, "side": "gmiflow"}, 1.5 * window_s, gmiflow)
    for name, way in ways.items():
        side = {"side": f"baseline, {name}"}
        bench.measure("throughput", {**where, **side}, window_s, lambda limit, way=way: baseline(limit, *way))
    overlap = Side(mapping="dp_only", max_staleness=1, gmis=1)
    if setting.device == "cuda" and not setting.side.drops:
        setting = Setting(task=setting.task, device="cuda", side=overlap)
        bench.measure("throughput", {**where, "side": "gmiflow, overlap"}, 1.5 * window_s, gmiflow)


RUN = {"curve": curve, "throughput": throughput}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(RUN), default=["throughput", "curve"])
    parser.add_argument("--device", choices=list(TASKS), default="cpu")
    parser.add_argument("--tasks", nargs="+", help="default: all that the device has")
    parser.add_argument("--budget", type=float, default=700.0, help="seconds for everything (%(default)g)")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--staleness", nargs="+", type=int, default=[1, 2, 4], help="of the curves (%(default)s)")
    parser.add_argument("--corrections", nargs="+", choices=["clip", "vtrace"], default=["clip"])
    parser.add_argument("--sides", nargs="+", help="of the curves; default: all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", nargs="+", type=float, help="of a curve, by task (default: 20 and 55; GPU: 40)")
    parser.add_argument("--regimes", nargs="+", choices=["block", "drop"], default=["block", "drop"])
    parser.add_argument("--bound", type=int, default=2, help="max_staleness of the throughput (%(default)s)")
    parser.add_argument("--gmis", type=int, default=2, help="of the throughput, half of them agents (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="of the throughput (%(default)s)")
    parser.add_argument("--window-s", type=float, default=6.0, help="of the throughput (%(default)g)")
    parser.add_argument("--report", action="store_true", help="measure nothing; picture and tables of what is there")
    parser.add_argument("--images", type=Path, help="folder of the pictures (default: --output)")
    options = parser.parse_args()
    options.tasks = options.tasks or list(TASKS[options.device])
    options.seconds = options.seconds or ([20.0, 55.0] if options.device == "cpu" else [40.0])
    if unknown := set(options.tasks) - set(TASKS[options.device]):
        parser.error(f"--tasks: {', '.join(unknown)} is not measured on {options.device}")
    return options


def main():
    options = parse()
    if not options.report:
        bench = Bench(options)
        try:
            for name in options.only:
                RUN[name](bench)
        finally:
            bench.close()
    report(options.output / "asynchronous.jsonl", options.images or options.output)


if __name__ == "__main__":
    main()
