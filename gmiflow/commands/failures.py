"""Run-time failures as diagnostics: they point back at the `.gmi` line of the stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gmiflow.diagnostics import Diagnostic
from gmiflow.runtime.events import Failure
from gmiflow.runtime.failure import CONSEQUENCES
from gmiflow.source import Source, Span


def as_diagnostics(failures: Sequence[Failure]) -> list[Diagnostic]:
    """The failures of a run, those first that explain the others.

    What the survivors say, that they missed somebody, is kept short where it is known who: their logs tell no more.
    """
    causes = [event for event in failures if event.failure.code not in CONSEQUENCES]
    others = [event for event in failures if event.failure.code in CONSEQUENCES]
    return [as_diagnostic(event) for event in causes] + [as_diagnostic(event, tail=not causes) for event in others]


def as_diagnostic(event: Failure, *, tail: bool = True) -> Diagnostic:
    """One failure of a run, with the last lines of the GMI's log if ``tail``."""
    failure = event.failure
    who = f"GMI {event.gmi}: " if event.gmi is not None else ""
    where = f", in stage `{failure.stage}`" if failure.stage else ""
    span = _line(failure.file, failure.line)
    notes = [f"{event.reason}{where}", *failure.notes]
    if span is None and failure.file and failure.line:
        notes.append(f"declared at {failure.file}:{failure.line}")
    if tail and (news := _news(event)):
        notes.append("last lines of its log:")
        notes += [f"  {line}" for line in news]
    if event.log is not None:
        notes.append(f"whole log: {event.log}")
    return Diagnostic(code=failure.code, message=who + failure.message, span=span, notes=tuple(notes))


def _news(event: Failure) -> list[str]:
    """The last lines of the log, unless they only repeat the failure."""
    failure = event.failure
    told = {f"{failure.code}: {failure.message}", *failure.notes}
    rest = [line for line in event.log_tail if line.strip() not in told and not line.endswith(" gives up")]
    return list(event.log_tail) if rest else []


def _line(file: str | None, line: int) -> Span | None:
    """The text of a line, without its indentation; None when the file is not there any more."""
    if file is None or line < 1:
        return None
    try:
        source = Source(file, Path(file).read_text(encoding="utf-8").removeprefix("\ufeff"))
    except (OSError, UnicodeDecodeError):
        return None
    lines = source.text.splitlines(keepends=True)
    if line > len(lines):
        return None
    start = sum(map(len, lines[: line - 1]))
    text = lines[line - 1].rstrip()
    return Span(source, start + len(text) - len(text.lstrip()), start + len(text))
