"""Tracebacks for people: the frames of their own code, not those of the runtime that called it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from gmiflow.runtime.failure import GMIError

__all__ = ["concise"]

_RUNTIME = str(Path(__file__).parent)
_NOT_THEIRS = (str(Path(__file__).parents[1]), *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
"""Where code lies that users did not write: gmiflow, Python and installed packages."""


def concise(problem: BaseException) -> str:
    """The traceback of ``problem`` without the runtime's frames, unless it has no others.

    A failure that the runtime explains needs none where no code of the user took part: then it is what it says.
    """
    whole = traceback.TracebackException.from_exception(problem)
    if isinstance(problem, GMIError) and not any(_is_theirs(frame.filename) for frame in _frames(whole)):
        return "\n".join((f"{problem.failure.code}: {problem}", *problem.failure.notes))
    _drop_own_frames(whole)
    return "".join(whole.format()).rstrip()


def _is_theirs(filename: str) -> bool:
    return not filename.startswith((*_NOT_THEIRS, "<"))


def _frames(part: traceback.TracebackException) -> Iterator[traceback.FrameSummary]:
    """Of an exception and of those behind it."""
    yield from part.stack
    for behind in (part.__cause__, part.__context__):
        if behind is not None:
            yield from _frames(behind)


def _drop_own_frames(part: traceback.TracebackException) -> None:
    others = [frame for frame in part.stack if not frame.filename.startswith(_RUNTIME)]
    if others:
        part.stack = traceback.StackSummary.from_list(others)
    for behind in (part.__cause__, part.__context__):
        if behind is not None:
            _drop_own_frames(behind)
