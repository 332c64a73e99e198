"""Children of `gmiflow bench train`: their output in files, their metrics followed while they run. No torch."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gmiflow.runtime.linux import die_with_parent

LOOK_EVERY_S = 0.1
STOP_PATIENCE_S = 30.0
"""How long a child that was asked to stop may take: it finishes its iteration and saves."""
CUT_OFF_PATIENCE_S = 5.0
"""The same of one whose work is lost anyway."""
LAST_CHARACTERS = 600
"""Of a child's last words: a traceback's end."""


class ChildError(Exception):
    """A child failed or took too long; the text has the last lines that it wrote."""


class OutOfTime(Exception):
    """The budget ended while a child was at work."""


class Tail:
    """A file of JSON lines that another process writes: each call gives the objects that are new and whole."""

    def __init__(self, path: Path) -> None:
        """Begin at the start of ``path``, which need not exist yet."""
        self._path, self._offset = path, 0

    def __call__(self) -> list[dict[str, Any]]:
        """New objects."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._offset += end
        return [json.loads(line) for line in data[:end].splitlines()]


def execute(
    arguments: Sequence[str],
    folder: Path,
    name: str,
    *,
    limit_s: float,
    deadline: float,
    enough: Callable[[], bool] = lambda: False,
) -> float:
    """Run ``python -m ARGUMENTS`` to its end; NAME.out and NAME.err in ``folder`` receive what it writes.

    Args:
        arguments: module and its arguments.
        folder: that exists.
        name: of the files.
        limit_s: seconds that the child may take.
        deadline: of `time.monotonic`, when the whole benchmark has to end.
        enough: looked at several times a second; when it is true, the child is asked to stop (SIGINT), which it does
            in order.

    Returns:
        the seconds that it took.

    Raises:
        ChildError: it failed, or took longer than ``limit_s``.
        OutOfTime: the deadline came first. In every case the child has ended.
    """
    begun = time.monotonic()
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            start_new_session=True,  # Ctrl-C is for the parent, which stops the child
            preexec_fn=functools.partial(die_with_parent, os.getpid()),
        )
    asked, patience_s = False, STOP_PATIENCE_S
    try:
        while process.poll() is None:
            now = time.monotonic()
            if now >= deadline:
                patience_s = CUT_OFF_PATIENCE_S
                raise OutOfTime
            if now >= begun + limit_s:
                patience_s = CUT_OFF_PATIENCE_S
                raise ChildError(f"not ready after {limit_s:.0f} s: {last_words(folder, name)}")
            if not asked and enough():
                asked = True
                process.send_signal(signal.SIGINT)
            time.sleep(LOOK_EVERY_S)
    finally:
        _end(process, patience_s)
    # Asked while it was ending by itself, when nothing listens to the signal any more, it is killed by it.
    stopped = asked and process.returncode in (128 + signal.SIGINT, -signal.SIGINT)
    if process.returncode != 0 and not stopped:
        raise ChildError(f"exit status {process.returncode}: {last_words(folder, name)}")
    return time.monotonic() - begun


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """End a child that is still there: in order, then not. Those that it started end with it."""
    for number, patience in ((signal.SIGINT, patience_s), (signal.SIGTERM, CUT_OFF_PATIENCE_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def last_words(folder: Path, name: str) -> str:
    """The end of what a child wrote to stderr."""
    try:
        text = (folder / f"{name}.err").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text[-LAST_CHARACTERS:].strip()
