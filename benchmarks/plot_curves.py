"""Learning curves: return against wall clock, one picture per task, and a table of the same numbers.

    python benchmarks/plot_curves.py --out docs/images runs/train-20260101-120000 "H200=train_gpu.jsonl"
    python benchmarks/plot_curves.py --out docs/images --suffix cpu "gmiflow, 2 cores=runs/ant" runs/ball_balance

A source is a run directory of `gmiflow run`, or a file of JSON lines of train_gpu.py (rows "point") or train_cpu.py
(rows "progress"). ``LABEL=SOURCE`` names its curves. Writes curves_TASK.png, or curves_TASK_SUFFIX.png, and prints
a Markdown table. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gmiflow.tasks.catalog import TASKS

SHARES = (0.5, 0.9)
"""Shares of a curve's best return whose time the table has."""

COLOURS = ("#1f6feb", "#d1741f", "#2da44e", "#a371f7", "#6e7781")


@dataclass
class Curve:
    """Mean return of recent episodes against seconds of training."""

    task: str
    label: str
    seconds: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    env_steps: int | None = None

    def add(self, seconds: float, mean_return: float | None) -> None:
        """One point; None, when no episode has ended yet, is left out."""
        if mean_return is not None:
            self.seconds.append(seconds)
            self.returns.append(mean_return)

    def time_to(self, share: float) -> float:
        """Seconds until the return first reaches ``share`` of the way from the first to the best."""
        first, best = self.returns[0], max(self.returns)
        threshold = first + share * (best - first)
        return next(at for at, value in zip(self.seconds, self.returns, strict=True) if value >= threshold)


def rows_of(path: Path) -> Iterator[dict]:
    """The JSON objects of a file of JSON lines; other lines are skipped."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def from_run(folder: Path, label: str) -> list[Curve]:
    """The curve of every training of a run directory."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    curves = {}
    for training in plan["trainings"]:
        entry = next(stage["entry"] for stage in training["stages"] if stage["role"] == "simulator")
        task = next((info.name for info in TASKS.values() if info.entry == entry), entry.rsplit(":", 1)[-1])
        name = training["name"] if len(plan["trainings"]) > 1 else ""
        curves[training["name"]] = Curve(task, f"{label} {name}".strip())
    elapsed = defaultdict(float)
    for row in rows_of(folder / "metrics.jsonl"):
        elapsed[row["training"]] += row["seconds"]
        curve = curves[row["training"]]
        curve.add(elapsed[row["training"]], row["mean_return"])
        curve.env_steps = row["total_env_steps"]
    return list(curves.values())


def from_rows(path: Path, label: str) -> list[Curve]:
    """The curve of every task and side of a benchmark's output."""
    curves: dict[tuple[str, str], Curve] = {}
    for row in rows_of(path):
        if row.get("row") not in ("point", "progress"):
            continue
        key = row.get("task", "ant"), row["side"]
        curve = curves.setdefault(key, Curve(key[0], f"{label} {key[1]}".strip()))
        curve.add(row["train_s"], row["mean_return"])
    return list(curves.values())


def read(source: str) -> list[Curve]:
    """The curves of one argument."""
    label, equals, name = source.rpartition("=")
    path = Path(name)
    if path.is_dir():
        return from_run(path, label if equals else path.name)
    return from_rows(path, label)


def draw(task: str, curves: list[Curve], path: Path) -> None:
    """One picture of all curves of a task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), dpi=150, layout="constrained")
    for index, curve in enumerate(curves):
        axes.plot(curve.seconds, curve.returns, label=curve.label, color=COLOURS[index % len(COLOURS)], linewidth=1.6)
    axes.set(title=task, xlabel="wall clock (s)", ylabel="mean return of recent episodes")
    axes.set_xlim(left=0.0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def table(curves: list[Curve]) -> str:
    """First, best and last return of each curve, and how long its rise took."""
    heading = ["task", "run", "seconds", "env steps", "first", "best", "last"]
    heading += [f"{100 * share:.0f} % of the rise after" for share in SHARES]
    lines = [heading, ["---"] * len(heading)]
    for curve in curves:
        steps = "" if curve.env_steps is None else f"{curve.env_steps:,}"
        values = [curve.returns[0], max(curve.returns), curve.returns[-1]]
        times = [f"{curve.time_to(share):.0f} s" for share in SHARES]
        numbers = [f"{value:,.1f}" for value in values]
        lines.append([curve.task, curve.label, f"{curve.seconds[-1]:.0f}", steps, *numbers, *times])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", metavar="[LABEL=]SOURCE", help="run directory or file of JSON lines")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder of the pictures")
    parser.add_argument("--suffix", default="", help="added to the pictures' names")
    options = parser.parse_args()
    by_task: dict[str, list[Curve]] = defaultdict(list)
    for source in options.source:
        for curve in read(source):
            if curve.returns:
                by_task[curve.task].append(curve)
    if not by_task:
        parser.error("no episode ended in any of the sources")
    for task, curves in by_task.items():
        suffix = f"_{options.suffix}" if options.suffix else ""
        draw(task, curves, options.out / f"curves_{task}{suffix}.png")
    print(table([curve for curves in by_task.values() for curve in curves]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
