"""Several generated programs in one process, a thread each: how in-process GMIs are started.

    python -m gmiflow.runtime.host gmi_00.py gmi_01.py --rendezvous DIR

The launcher uses it for GMIs that the plan gives one `host`.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from gmiflow.runtime.process import add_options, chosen_options, run_programs
from gmiflow.runtime.program import Program

__all__ = ["load_program", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the programs of the command line and leave the process, as a generated program does."""
    parser = argparse.ArgumentParser(
        prog="python -m gmiflow.runtime.host", description="Run several GMIs of one device in one process."
    )
    parser.add_argument("programs", nargs="+", type=Path, metavar="PROGRAM", help="generated program")
    add_options(parser)
    given = parser.parse_args(arguments)
    try:
        programs = [load_program(path) for path in given.programs]
    except ValueError as problem:
        parser.error(str(problem))
    sys.exit(run_programs(programs, chosen_options(given)))


def load_program(path: Path) -> Program:
    """The constants of a generated program.

    Raises:
        ValueError: when the file is missing or is not a generated program.
    """
    try:
        found = runpy.run_path(str(path), run_name="gmiflow_program").get("PROGRAM")
    except OSError as problem:
        raise ValueError(f"cannot read {path}: {problem.strerror}") from problem
    if not isinstance(found, Program):
        raise ValueError(f"{path} is not a program that gmiflow wrote: it has no PROGRAM")
    return found


if __name__ == "__main__":
    main()
