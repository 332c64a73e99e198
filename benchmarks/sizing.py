"""The plan that `gmiflow profile` chooses against the best of the whole grid, and its prediction against what it did.

    python benchmarks/sizing.py examples/quickstart.gmi examples/ant.gmi examples/ball_balance.gmi --target cpu
    python benchmarks/sizing.py examples/ant.gmi --gmis 1 2 4 --num-env 4096 16384 65536 --executions graph

For every file, with `num_env` and `gmi_per_gpu` left open: profiles from nothing within the budget, then measures
every point of the grid ``--rounds`` times, in turns, so that a slower minute strikes all alike. One JSON line per
point and one per file: what was chosen, its median over the rounds as a share of the best median of the grid.
Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gmiflow.hardware import detect
from gmiflow.pipeline import Options, compile_file
from gmiflow.profiles.search import choose
from gmiflow.profiles.space import space_of
from gmiflow.profiling.runner import Runner
from gmiflow.profiling.session import Request, profile_workflow
from gmiflow.profiling.trial import PACES

OPEN = (("workflow.num_env", "auto"), ("target.gmi_per_gpu", "auto"))


def emit(row: str, **values: object) -> None:
    sys.stdout.write(json.dumps({"row": row, **values}) + "\n")
    sys.stdout.flush()


def compare(file: str, arguments: argparse.Namespace) -> None:
    hardware = detect()
    options = Options(workflow=arguments.workflow, target=arguments.target, overrides=OPEN)
    compilation = compile_file(file, options, hardware=hardware, stop_after="ir", require_workflow=True)
    workflow = compilation.workflow
    if workflow is None:
        raise SystemExit("\n".join(found.message for found in compilation.diagnostics))
    space = space_of(workflow, hardware)
    begun = time.monotonic()
    outcome = profile_workflow(
        Request(workflow=workflow, options=options, hardware=hardware, budget_s=arguments.budget, confirm=True)
    )
    profile_s = time.monotonic() - begun
    chosen = choose(space, outcome.profile, "improved").chosen
    pace = PACES[workflow.target.device]
    points = [
        point
        for point in space.points()
        if point == chosen.point
        or (
            point.gmis in (arguments.gmis or space.gmis)
            and point.num_env in (arguments.num_env or space.num_env)
            and point.execution in (arguments.executions or space.executions)
        )
    ]
    speeds: dict[object, list[float]] = {point: [] for point in points}
    memory: dict[object, int] = {}
    with Runner(workflow, options, hardware, pace) as runner:
        for _ in range(arguments.rounds):
            for point in points:
                measured = runner.measure(point)
                if measured is not None and measured.status == "ok":
                    speeds[point].append(measured.steps_per_s)
                    memory[point] = measured.device_memory_bytes or measured.host_memory_bytes
    medians = {point: statistics.median(values) for point, values in speeds.items() if values}
    for point, median in medians.items():
        emit("point", file=file, point=str(point), steps_per_s=round(median), rounds=[round(v) for v in speeds[point]])
    best = max(medians, key=lambda point: medians[point])
    own = medians[chosen.point]
    projected = chosen.device_memory.value or chosen.host_memory.value
    emit(
        "choice",
        file=file,
        chosen=str(chosen.point),
        steps_per_s=round(own),
        best=str(best),
        best_steps_per_s=round(medians[best]),
        share_of_best=round(own / medians[best], 3),
        predicted_over_measured=round(chosen.steps_per_s.value / own, 3),
        memory_predicted_over_measured=round(projected / memory[chosen.point], 3),
        points_profiled=outcome.new,
        profile_s=round(profile_s, 1),
        ended=outcome.ended,
        grid=len(points),
        load=round(os.getloadavg()[0], 1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workflow", default="train")
    parser.add_argument("--target")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of profiling")
    parser.add_argument("--rounds", type=int, default=2, help="times that each point of the grid is measured")
    parser.add_argument("--gmis", type=int, nargs="+", help="of the grid; default: all of the search")
    parser.add_argument("--num-env", type=int, nargs="+", help="of the grid; default: all of the search")
    parser.add_argument("--executions", nargs="+", help="of the grid; default: all of the search")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gmiflow-sizing-") as folder:
        os.environ["GMIFLOW_PROFILES"] = folder
        for file in arguments.files:
            compare(file, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
