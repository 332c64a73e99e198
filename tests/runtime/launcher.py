"""A launcher process for tests that send it signals.

``python launcher.py DIR GMIS SIMULATOR ITERATIONS INTERRUPT_S ECHO_S PYTHON MAPPING``

Prints one line per event, so that a test knows when to act, and ends with the run's exit code. With a PYTHON, the
simulator is that of `hosted_mass` whose parameter `odd` is SIMULATOR, in that interpreter.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from plans import apart_plan, launch_plan, training_plan, write_programs

from gmiflow.runtime import supervisor
from gmiflow.runtime.events import Event, Failure, Iteration
from gmiflow.runtime.launch import run_plan


def say(event: Event) -> None:
    words = [type(event).__name__]
    if isinstance(event, Iteration):
        words.append(str(event.iteration))
    if isinstance(event, Failure):
        words += [event.failure.code, event.failure.message]
    print(*words, flush=True)


def main() -> None:
    base, gmis, simulator, iterations = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    supervisor.ECHO_S = float(sys.argv[6])
    if python := sys.argv[7]:
        training = training_plan(iterations=iterations)
        hosted = dataclasses.replace(
            training.stages[0],
            entry="hosted_mass:Odd",
            python=python,
            file=str(Path(__file__).parent / "foreign" / "mass.gmi"),
            params={"odd": simulator},
        )
        training = dataclasses.replace(training, stages=(hosted, *training.stages[1:]))
    else:
        training = training_plan(simulator=simulator, iterations=iterations)
    mapping = sys.argv[8]
    plan = launch_plan(training, gmis=gmis) if mapping == "dp_only" else apart_plan(training, mapping, pairs=gmis)
    programs = write_programs(plan, base / "programs")
    limits = supervisor.Limits(collective_s=600, interrupt_s=float(sys.argv[5]))
    sys.exit(run_plan(plan, programs, base / "run", on_event=say, limits=limits).exit_code)


if __name__ == "__main__":
    main()
