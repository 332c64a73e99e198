"""Run-time failures: one dataclass with a code, which the command line turns into a diagnostic.

Nothing here imports torch: the launcher uses it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

STAGE_RAISED: Final = "E0701"
GMI_DIED: Final = "E0702"
GMI_SILENT: Final = "E0703"
PEER_LOST: Final = "E0704"
COLLECTIVE_TIMED_OUT: Final = "E0705"
WEIGHTS_DIFFER: Final = "E0706"
CHECKPOINT_UNUSABLE: Final = "E0707"
PORT_MISMATCH: Final = "E0708"
ENTRY_UNUSABLE: Final = "E0709"
NOT_SUPPORTED: Final = "E0710"
LAUNCH_FAILED: Final = "E0711"
SLICE_UNPROVEN: Final = "E0712"
GPU_FAULT: Final = "E0713"
GPU_MEMORY: Final = "E0714"
DIVERGED: Final = "E0716"
NOT_DRAWN: Final = "E0715"
INTERPRETER_UNUSABLE: Final = "E0717"
INTERPRETER_LOST: Final = "E0718"
PACKAGE_MISSING: Final = "E0719"
CODES: Final = {
    STAGE_RAISED: "a stage raised an exception",
    GMI_DIED: "a GMI process ended unexpectedly",
    GMI_SILENT: "a GMI gave no sign of life",
    PEER_LOST: "a collective lost a member",
    COLLECTIVE_TIMED_OUT: "a collective timed out",
    WEIGHTS_DIFFER: "the GMIs of a training hold different weights",
    CHECKPOINT_UNUSABLE: "a checkpoint cannot be written or used",
    PORT_MISMATCH: "a stage returned something other than its ports declare",
    ENTRY_UNUSABLE: "the Python entry of a stage cannot be loaded",
    NOT_SUPPORTED: "the plan asks for something that this runtime does not have",
    LAUNCH_FAILED: "the GMIs could not be started",
    SLICE_UNPROVEN: "a GMI did not get the slice that the plan gives it",
    GPU_FAULT: "a GPU or its MPS daemon failed under its GMIs",
    GPU_MEMORY: "a GMI ran out of GPU memory",
    DIVERGED: "a training has numbers that are not finite",
    NOT_DRAWN: "a task cannot be drawn",
    INTERPRETER_UNUSABLE: "the interpreter that a simulator asks for cannot be used",
    INTERPRETER_LOST: "the interpreter of a simulator ended or fell silent",
    PACKAGE_MISSING: "a Python package that a benchmark needs is missing",
}
"""What each code means, in a few words."""

CONSEQUENCES: Final = frozenset({PEER_LOST, COLLECTIVE_TIMED_OUT})
"""Codes that the survivors of a failure report; another GMI's failure explains them better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFailure:
    """What went wrong at run time.

    Attributes:
        code: one of `CODES`.
        message: one sentence, without a final full stop.
        stage: stage that was at work, or None when it was none of them.
        file, line: declaration of that stage in the `.gmi` file; line 0 when unknown.
        notes: further facts, one sentence each.
    """

    code: str
    message: str
    stage: str | None = None
    file: str | None = None
    line: int = 0
    notes: tuple[str, ...] = ()

    def at(self, stage: str | None, file: str | None, line: int) -> RuntimeFailure:
        """The same failure at a stage; one that names a stage already is returned as it is."""
        return self if self.stage is not None else replace(self, stage=stage, file=file, line=line)


class GMIError(Exception):
    """Carries a `RuntimeFailure` up to the process boundary, where it is reported."""

    def __init__(self, failure: RuntimeFailure) -> None:
        """Wrap ``failure``; the text of the exception is its message."""
        super().__init__(failure.message)
        self.failure = failure


def error(code: str, message: str, *notes: str) -> GMIError:
    """A `GMIError` without a place; the runtime adds the stage at work."""
    return GMIError(RuntimeFailure(code=code, message=message, notes=notes))
