"""Tracebacks for people: the frames of their own code, not those of the runtime that called it."""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["concise"]

_RUNTIME = str(Path(__file__).parent)


def concise(problem: BaseException) -> str:
    """The traceback of ``problem`` without the runtime's frames, unless it has no others."""
    whole = traceback.TracebackException.from_exception(problem)
    _drop_own_frames(whole)
    return "".join(whole.format()).rstrip()


def _drop_own_frames(part: traceback.TracebackException) -> None:
    others = [frame for frame in part.stack if not frame.filename.startswith(_RUNTIME)]
    if others:
        part.stack = traceback.StackSummary.from_list(others)
    for behind in (part.__cause__, part.__context__):
        if behind is not None:
            _drop_own_frames(behind)
