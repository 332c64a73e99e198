"""The six tasks of the paper on one GPU within a budget: trained, evaluated, drawn, and all of it in one folder.

    PYTHONPATH=. python benchmarks/solve_gpu.py                                    # 12 minutes, into $OUT
    PYTHONPATH=. python benchmarks/solve_gpu.py --tasks ant,humanoid --budget 300
    PYTHONPATH=. python benchmarks/solve_gpu.py --target cpu --tasks ball_balance --num-env 128 --budget 120   (a trial)
    PYTHONPATH=. python benchmarks/solve_gpu.py --join one two three --output all     (tables and picture of several)

Every task is trained by `gmiflow bench train --replicas`, its seeds side by side, for its share of the time that is
left. While the next task trains, the last one is evaluated (`gmiflow eval`) and the best seed drawn (`gmiflow render
--policy`), so steps per second are not those of an idle GPU: they are no result of this script.

The folder gets, as soon as each is there:

* ``rows.jsonl``: a line per training with its curve and evaluation; ``table.md`` and ``curves.png`` of them;
* ``policies/TASK``: plan and policies (weights with normalisers), which `gmiflow eval` and `gmiflow render --policy`
  take on any machine;
* ``TASK.mp4``, or the reason in ``TASK.render.err`` where there is no headless OpenGL: then draw the policy elsewhere;
* ``events.jsonl``: what happened when. A task that fails is a line there, and the next one begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gmiflow.bench.report import draw_against_steps, markdown
from gmiflow.bench.rows import rows_of
from gmiflow.tasks.catalog import TASKS

SECONDS = {"ant": 70, "ball_balance": 60, "franka_cabinet": 60, "anymal": 110, "humanoid": 180, "shadow_hand": 150}
"""Share of the training time, in the order of the work: what is quick comes first."""

SEEDS = {"franka_cabinet": 1, "shadow_hand": 1}
"""Seeds of a task; three of the others."""

START_S = 20.0
"""What a training costs besides its iterations."""

LAST_S = 60.0
"""Left at the end for the evaluation and the movie of the last task."""


class Suite:
    """Options, deadline, folder, and the children that work beside the trainings."""

    def __init__(self, options):
        self.options, self.end = options, time.monotonic() + options.budget
        self.out, self.work = options.output, Path(tempfile.mkdtemp(prefix="solve_gpu_"))
        self.out.mkdir(parents=True, exist_ok=True)
        self._events = (self.out / "events.jsonl").open("a", buffering=1)
        self._beside = []
        self.rows = []

    def left(self):
        """Seconds until the budget is spent."""
        return self.end - time.monotonic()

    def event(self, what, **fields):
        line = json.dumps({"event": what, "left_s": round(self.left(), 1), **fields})
        print(line, flush=True)
        self._events.write(line + "\n")

    def solve(self, task, share_s):
        """Train one task for ``share_s`` seconds; hand the rest of its work to children."""
        options, place = self.options, self.work / task
        arguments = ["bench", "train", "--tasks", task, "--replicas", "--episodes", "0", "--out", place]
        arguments += ["--seeds", options.seeds or SEEDS.get(task, 3), "--seconds", f"{share_s:.0f}s"]
        arguments += ["--timeout", f"{max(30.0, self.left() - LAST_S / 2):.0f}s", "--format", "json"]
        arguments += [] if options.num_env is None else ["--num-env", options.num_env]
        arguments += [] if options.target is None else ["--target", options.target]
        begun = time.monotonic()
        child = self.start(f"{task}.train", arguments)
        try:
            code = child.wait()
        finally:
            if child.poll() is None:  # Ctrl-C: the benchmark ends its training in order
                child.send_signal(signal.SIGINT)
                child.wait()
        took_s = round(time.monotonic() - begun, 1)
        rows = [row for row in rows_of(place / "rows.jsonl")] if (place / "rows.jsonl").exists() else []
        trained = [row for row in rows if row["row"] == "training"]
        if not trained:
            error = [row.get("error", "") for row in rows] or [(self.out / f"{task}.train.err").read_text()[-800:]]
            self.event("failed", task=task, code=code, wall_s=took_s, error=error[-1])
            return
        self.rows += trained
        returns = {row["seed"]: row["last_return"] for row in trained}
        self.event("trained", task=task, seconds=round(share_s), wall_s=took_s, last_return=returns)
        self.show()
        (run,) = (place / "runs").glob("*/run")
        self.carry(task, run)
        self.behave(task, trained)

    def carry(self, task, run):
        """Copy plan and policies."""
        target = self.out / "policies" / task
        base = run / "checkpoints"
        for place in (base, *base.iterdir()):
            for name in ("last", "best"):  # links: a copy of them is a directory
                if (place / name / "meta.json").is_file():
                    copy = target / (place / name).relative_to(run)
                    copy.mkdir(parents=True, exist_ok=True)
                    for file in ("meta.json", "policy.safetensors"):
                        shutil.copy(place / name / file, copy / file)
        shutil.copy(run / "plan.json", target / "plan.json")

    def behave(self, task, rows):
        """Evaluate all policies and draw the best, beside what comes next."""
        policies = self.out / "policies" / task
        device = "cpu" if self.options.target == "cpu" else "auto"
        evaluation = ["eval", policies, "--episodes", self.options.episodes, "--device", device, "--format", "json"]
        self._beside.append((task, "evaluation", self.start(f"{task}.evaluation", evaluation)))
        best = max(rows, key=lambda row: (row["last_return"] is not None, row["last_return"]))
        movie = ["render", "--policy", policies, "-o", self.out / f"{task}.mp4"]
        movie += ["--steps", min(self.options.steps, TASKS[task].episode_length)]
        if len(rows) > 1:
            movie += ["--training", f"train.{rows.index(best)}"]
        self._beside.append((task, "movie", self.start(f"{task}.render", movie)))

    def start(self, name, arguments):
        """A command of gmiflow; what it writes goes to NAME.out and NAME.err in the folder."""
        with (self.out / f"{name}.out").open("w") as out, (self.out / f"{name}.err").open("w") as err:
            command = [sys.executable, "-m", "gmiflow.cli", *map(str, arguments)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,  # a group of its own, which ends as a whole
            )

    def collect(self, patience_s=0.0):
        """Take what the children beside have finished; wait ``patience_s`` seconds for those that have not."""
        until = time.monotonic() + patience_s
        for task, what, child in list(self._beside):
            try:
                code = child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
            self._beside.remove((task, what, child))
            self.event(what, task=task, code=code, **(self.judged(task) if what == "evaluation" and not code else {}))
        self.show()

    def judged(self, task):
        """Put the evaluation of a task into its rows; what it says in short."""
        document = json.loads((self.out / f"{task}.evaluation.out").read_text())
        found = {one["seed"]: one for one in document["trainings"]}
        for row in self.rows:
            if row["task"] == task:
                row["evaluation"] = found[row["seed"]]
        return {
            "solved": [one["solved"] for one in found.values()],
            "mean_return": [one["mean_return"] for one in found.values()],
            "measures": [one["measures"] for one in found.values()],
        }

    def show(self):
        """Write rows, table and picture of what is there."""
        if not self.rows:
            return
        rows = self.out / "rows.jsonl"
        rows.with_suffix(".tmp").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        rows.with_suffix(".tmp").replace(rows)
        (self.out / "table.md").write_text(markdown(self.rows))
        with contextlib.suppress(ImportError):  # without matplotlib: the rows hold the curves
            draw_against_steps(self.rows, self.out / "curves.png")

    def close(self):
        """End what still works beside, and remove the run directories."""
        self.collect(max(5.0, self.left()))
        for task, what, child in self._beside:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            self.event("stopped", task=task, name=what)
        self._events.close()
        shutil.rmtree(self.work, ignore_errors=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(SECONDS), help="with commas; the order is that of the work")
    parser.add_argument("--budget", type=float, default=720.0, help="seconds for everything (%(default)g)")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", "solved")))
    parser.add_argument("--seeds", type=int, help="of every task (default: 3; FrankaCabinet and ShadowHand 1)")
    parser.add_argument("--num-env", type=int, help="of a training (default: the task's)")
    parser.add_argument("--target", help="a target of std.targets (default: this machine)")
    parser.add_argument("--episodes", type=int, default=256, help="of an evaluation (%(default)s)")
    parser.add_argument("--steps", type=int, default=600, help="of a movie (%(default)s)")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FOLDER", help="train nothing: show what these have")
    options = parser.parse_args()
    options.tasks = options.tasks.split(",")
    if unknown := set(options.tasks) - set(SECONDS):
        parser.error(f"unknown tasks: {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse()
    suite = Suite(options)
    if options.join:
        suite.rows = [row for folder in options.join for row in rows_of(folder / "rows.jsonl")]
        suite.show()
        suite.close()
        return
    try:
        for index, task in enumerate(options.tasks):
            rest = options.tasks[index:]
            usable = suite.left() - LAST_S - START_S * len(rest)
            share_s = usable * SECONDS[task] / sum(SECONDS[one] for one in rest)
            if share_s < 5.0:
                suite.event("skipped", task=task, reason="no time left for it")
                continue
            try:
                suite.solve(task, share_s)
                suite.collect()
            except Exception as problem:  # a GPU's time is short: the next task begins, whatever this one met
                traceback.print_exc()
                suite.event("failed", task=task, error=f"{type(problem).__name__}: {problem}")
    finally:
        suite.close()


if __name__ == "__main__":
    main()
