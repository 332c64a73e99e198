"""A launcher process for tests that send it signals: ``python launcher.py DIR GMIS SIMULATOR ITERATIONS``.

Prints one word per event, so that a test knows when to act, and ends with the run's exit code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from plans import launch_plan, training_plan, write_programs

from gmiflow.runtime.events import Event, Iteration
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.supervisor import Limits


def say(event: Event) -> None:
    word = type(event).__name__
    print(f"{word} {event.iteration}" if isinstance(event, Iteration) else word, flush=True)


def main() -> None:
    base, gmis, simulator, iterations = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    plan = launch_plan(training_plan(simulator=simulator, iterations=iterations), gmis=gmis)
    programs = write_programs(plan, base / "programs")
    limits = Limits(collective_s=600)
    sys.exit(run_plan(plan, programs, base / "run", on_event=say, limits=limits).exit_code)


if __name__ == "__main__":
    main()
