"""The plan that `gmiflow profile` chooses against the best of the whole grid, and its prediction against what it did.

    python benchmarks/sizing.py examples/quickstart.gmi examples/ant.gmi examples/ball_balance.gmi --target cpu
    python benchmarks/sizing.py examples/ant.gmi --gmis 1 2 4 --num-env 4096 16384 65536 --executions graph

For every file, with `num_env` and `gmi_per_gpu` left open: profiles from nothing within the budget, then measures
every point of the grid once and, in turns, those again that may be the best of it, beside the chosen one, until the
time (``--grid-budget``) is spent. Turns go forth and back, and all looks are fitted together with the drift of the
machine (`gmiflow.profiles.drift`), so what is compared was measured at the same time. One JSON line per point and one
per file: the median of the chosen point's paired ratios to the best of the grid, and the share by the fit; what was
predicted over what the grid then measured, of throughput and of memory; the points and the seconds of the profile.

Every look is a line at once. Ctrl-C ends the turns: what is known by then is reported, if every point was looked at.

``--record FILE`` keeps all that was measured as a profile, which the tests can replay. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gmiflow.hardware import detect
from gmiflow.ir.search import Candidate, Point
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.compare import combined
from gmiflow.profiles.drift import Levels, level
from gmiflow.profiles.search import choose
from gmiflow.profiles.space import Space, space_of
from gmiflow.profiles.workload import Look, Measurement
from gmiflow.profiling.runner import Runner
from gmiflow.profiling.session import Outcome, Request, profile_workflow
from gmiflow.profiling.signals import Interrupted
from gmiflow.profiling.trial import PACES

OPEN = (("workflow.num_env", "auto"), ("target.gmi_per_gpu", "auto"))

RIVAL = 0.3
"""Points of the grid that come so near to the best one are measured again."""

MOST_RIVALS = 4

LEAST_ROUNDS = 2
"""Of the rivals, whatever time is left."""


def emit(row: str, **values: object) -> None:
    sys.stdout.write(json.dumps({"row": row, **values}) + "\n")
    sys.stdout.flush()


class Grid:
    """What the points of a grid did, each look with its round."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._turns = 0
        self.found: dict[Point, Measurement] = {}
        self.rates: dict[Point, dict[int, float]] = {}

    def turn(self, points: Iterable[Point]) -> None:
        """Look at each of the points once, every second time in the opposite order."""
        self._turns += 1
        ordered = list(points)
        for point in ordered if self._turns % 2 else reversed(ordered):
            measured = self._runner.measure(point)
            if measured is None or measured.status != "ok":
                continue
            emit("look", point=str(point), turn=self._turns, steps_per_s=round(measured.steps_per_s))
            look = Look(at_s=round(time.time(), 1), steps_per_s=measured.steps_per_s)
            measured = dataclasses.replace(measured, looks=(look,))
            before = self.found.get(point)
            self.found[point] = measured if before is None else combined(before, measured)
            self.rates.setdefault(point, {})[self._turns] = measured.steps_per_s

    def levels(self, device: str) -> Levels:
        """The rates of all without the drift of the machine."""
        return level(list(self.found.values()), device)

    def best(self, device: str) -> tuple[Point, Mapping[Point, float]]:
        """The fastest point, and the rates of all."""
        rates = self.levels(device).rates
        return max(rates, key=lambda point: rates[point]), rates

    def paired(self, point: Point, other: Point) -> float:
        """Median over the rounds of both of the ratio of their rates."""
        mine, theirs = self.rates[point], self.rates[other]
        return statistics.median(mine[turn] / theirs[turn] for turn in mine.keys() & theirs.keys())


def measure_grid(grid: Grid, points: list[Point], chosen: Point, device: str, budget_s: float) -> Point:
    """Every point once, then the chosen one and its rivals in turns, until the time is over or Ctrl-C; the best."""
    begun = time.monotonic()
    grid.turn(points)
    rounds = 0
    with contextlib.suppress(Interrupted, KeyboardInterrupt):
        while rounds < LEAST_ROUNDS or time.monotonic() - begun < budget_s:
            best, rates = grid.best(device)
            near = sorted((p for p in rates if rates[p] >= (1 - RIVAL) * rates[best]), key=lambda p: -rates[p])
            grid.turn(dict.fromkeys([chosen, best, *near[:MOST_RIVALS]]))
            rounds += 1
    return grid.best(device)[0]


def report(file: str, chosen: Candidate, grid: Grid, best: Point, device: str) -> dict[str, object]:
    """The sums of one file."""
    levels = grid.levels(device)
    point = chosen.point
    for other in sorted(levels.rates):
        emit(
            "point",
            file=file,
            point=str(other),
            steps_per_s=round(levels.rates[other]),
            share_of_best=round(levels.rates[other] / levels.rates[best], 3),
            looks=[round(rate) for rate in grid.rates[other].values()],
        )
    found = grid.found[point]
    used = found.device_memory_bytes or found.host_memory_bytes
    projected = chosen.device_memory.value or chosen.host_memory.value
    return {
        "chosen": str(point),
        "steps_per_s": round(levels.rates[point]),
        "best": str(best),
        "best_steps_per_s": round(levels.rates[best]),
        "share_of_best": round(grid.paired(point, best), 3),
        "share_of_best_fitted": round(levels.rates[point] / levels.rates[best], 3),
        "share_error": round(levels.error_between(point, best), 3),
        "rounds_of_both": len(grid.rates[point].keys() & grid.rates[best].keys()),
        "predicted_steps_per_s": round(chosen.steps_per_s.value),
        "throughput_predicted_over_measured": round(chosen.steps_per_s.value / levels.rates[point], 3),
        "memory_predicted_bytes": round(projected),
        "memory_predicted_over_measured": round(projected / used, 3),
        "noise_of_a_look": round(levels.noise, 3),
        "machine_speed_plus_minus": round(levels.spread, 3),
    }


def compare(file: str, arguments: argparse.Namespace) -> None:
    hardware = detect()
    options = Options(workflow=arguments.workflow, target=arguments.target, overrides=OPEN)
    compilation = compile_file(file, options, hardware=hardware, stop_after="ir", require_workflow=True)
    workflow = compilation.workflow
    if workflow is None:
        raise SystemExit("\n".join(found.message for found in compilation.diagnostics))
    device, space = workflow.target.device, space_of(workflow, hardware)
    outcome = profile_workflow(
        Request(workflow=workflow, options=options, hardware=hardware, budget_s=arguments.budget)
    )
    chosen = choose(space, outcome.profile, "improved").chosen
    points = grid_points(space, chosen.point, arguments)
    with Runner(workflow, options, hardware, PACES[device]) as runner:
        grid = Grid(runner)
        best = measure_grid(grid, points, chosen.point, device, arguments.grid_budget)
    emit(
        "choice",
        file=file,
        **report(file, chosen, grid, best, device),
        points_profiled=outcome.new,
        looks_profiled=sum(len(m.looks) for m in outcome.profile.measurements),
        profile_s=round(outcome.elapsed_s, 1),
        ended=outcome.ended,
        grid=len(points),
        load=round(os.getloadavg()[0], 1),
    )
    if arguments.record is not None:
        record(arguments.record, outcome, grid)


def grid_points(space: Space, chosen: Point, arguments: argparse.Namespace) -> list[Point]:
    """The points of the grid, the chosen one among them."""
    return [
        point
        for point in space.points()
        if point == chosen
        or (
            point.gmis in (arguments.gmis or space.gmis)
            and point.num_env in (arguments.num_env or space.num_env)
            and point.execution in (arguments.executions or space.executions)
        )
    ]


def record(file: Path, outcome: Outcome, grid: Grid) -> None:
    """Keep everything that was measured as one profile."""
    known = {m.point: m for m in outcome.profile.measurements}
    for point, measured in grid.found.items():
        known[point] = combined(known[point], measured) if point in known else measured
    whole = dataclasses.replace(outcome.profile, measurements=tuple(known.values()))
    file.write_text(whole.to_json(), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workflow", default="train")
    parser.add_argument("--target")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of profiling")
    parser.add_argument("--grid-budget", type=float, default=110.0, help="seconds of measuring the grid")
    parser.add_argument("--gmis", type=int, nargs="+", help="of the grid; default: all of the search")
    parser.add_argument("--num-env", type=int, nargs="+", help="of the grid; default: all of the search")
    parser.add_argument("--executions", nargs="+", help="of the grid; default: all of the search")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep what was measured (one file alone)")
    arguments = parser.parse_args()
    if arguments.record is not None and len(arguments.files) > 1:
        parser.error("--record takes one file")
    with tempfile.TemporaryDirectory(prefix="gmiflow-sizing-") as folder:
        os.environ["GMIFLOW_PROFILES"] = folder
        for file in arguments.files:
            compare(file, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
