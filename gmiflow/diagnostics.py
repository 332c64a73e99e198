"""The one message type of parser, passes, lint, command line and editor, and its text rendering.

JSON and SARIF renderings are in `gmiflow.diagnostic_formats`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gmiflow.codes import TITLES
from gmiflow.source import Span

Severity: TypeAlias = Literal["error", "warning", "note"]

_TAB = "    "
_MAX_COLUMNS = 140
_LONG_NAME = re.compile(r"`([^`]{60})[^`]{60,}([^`]{30})`")
_CONTROLS = {code: 0x2400 + code for code in range(32) if code != 9} | {127: 0x2421}
"""Control characters to their pictures: a source line must not steer the terminal."""
_COLORS = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "note": "\x1b[1;36m",
    "place": "\x1b[1;34m",
    "end": "\x1b[0m",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """A further place with what it has to do with the problem, for example "declared here"."""

    span: Span
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """Replace the text at ``span`` by ``text``."""

    span: Span
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fix:
    """A change that mends the problem; its edits do not overlap.

    Attributes:
        title: imperative phrase, for example "write `->`".
    """

    title: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnostic:
    """One problem in a user's input.

    Attributes:
        code: key of `gmiflow.codes.TITLES`.
        message: one line, lower case, names in backquotes.
        span: the place to point at, or None when there is none (a file that does not exist).
        label: short text beside the carets.
        secondary: further places.
        notes: one line each: why, or what to do.
        fixes: changes an editor can make.
    """

    code: str
    message: str
    span: Span | None
    severity: Severity = "error"
    label: str = ""
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    @property
    def title(self) -> str:
        """The title of the code."""
        return TITLES[self.code]

    @property
    def docs(self) -> str:
        """The page about the code, relative to the project root."""
        return f"docs/errors/{self.code}.md"


class DiagnosticError(Exception):
    """Carries diagnostics out of a pass that cannot go on."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("; ".join(d.message for d in diagnostics))
        self.diagnostics = diagnostics


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """A text after some edits of it, the last first; one that overlaps an earlier applied one is left out."""
    limit = len(text) + 1
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end), reverse=True):
        if edit.span.end <= limit:
            text = text[: edit.span.start] + edit.text + text[edit.span.end :]
            limit = edit.span.start
    return text


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sort by file (in order of first appearance) and place; drop exact repetitions."""
    unique = list(dict.fromkeys(diagnostics))
    files: dict[str, int] = {}
    for diagnostic in unique:
        if diagnostic.span:
            files.setdefault(diagnostic.span.source.name, len(files))

    def key(diagnostic: Diagnostic) -> tuple[int, int, str]:
        span = diagnostic.span
        return (files[span.source.name], span.start, diagnostic.code) if span else (-1, 0, diagnostic.code)

    return tuple(sorted(unique, key=key))


_ELSEWHERE = {
    "clip_param": "clip",
    "clip_range": "clip",
    "desired_kl": "kl_target",
    "ent_coef": "entropy",
    "entropy_coef": "entropy",
    "gae_lambda": "lam",
    "gpu": "cuda",
    "gpus": "devices",
    "learning_rate": "lr",
    "max_iterations": "iterations",
    "n_steps": "horizon",
    "num_gpus": "devices",
    "num_learning_epochs": "epochs",
    "num_mini_batches": "minibatches",
    "num_steps": "horizon",
    "num_steps_per_env": "horizon",
    "value_loss_coef": "value_coef",
    "vf_coef": "value_coef",
}
"""What other trainers (rsl_rl, Stable-Baselines3, rl_games) call it, to our name."""


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` is probably a misspelling of, or another program's name for; else None.

    A candidate counts when its edit distance is at most max(1, len(name) / 3) and something of the name is
    left; ties go to the first in alphabetical order.
    """
    known = sorted(set(candidates))
    if (here := _ELSEWHERE.get(name.lower())) in known:
        return here
    limit = max(1, len(name) // 3)
    best: tuple[int, str] | None = None
    for candidate in known:
        if candidate == name or abs(len(candidate) - len(name)) > limit:
            continue
        distance = _edit_distance(name.lower(), candidate.lower(), limit)
        if distance <= limit and distance < len(name) and (best is None or distance < best[0]):
            best = (distance, candidate)
    return best[1] if best else None


def suggestion(span: Span, name: str, candidates: Iterable[str]) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Notes and fixes of "did you mean" for a wrong ``name`` at ``span``; both empty without a close candidate."""
    close = closest(name, candidates)
    if close is None:
        return (), ()
    fix = Fix(title=f"write `{close}`", edits=(Edit(span=span, text=close),))
    return (f"did you mean `{close}`?",), (fix,)


def _edit_distance(left: str, right: str, limit: int) -> int:
    """Levenshtein distance where swapping two neighbours counts once; stops early above ``limit``."""
    before: list[int] = []
    previous = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        current = [i]
        for j, b in enumerate(right, 1):
            cost = min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, previous = previous, current
    return previous[-1]


def render_text(diagnostics: Sequence[Diagnostic], *, color: bool = False) -> str:
    """All diagnostics with source lines and carets, and a count at the end; empty without diagnostics."""
    if not diagnostics:
        return ""
    blocks = [_block(diagnostic, color) for diagnostic in diagnostics]
    counts = [
        f"{count} {severity}{'s' if count > 1 else ''}"
        for severity in ("error", "warning")
        if (count := sum(d.severity == severity for d in diagnostics))
    ]
    return "\n".join(blocks) + ("\n" + ", ".join(counts) + "\n" if counts else "")


def _block(diagnostic: Diagnostic, color: bool) -> str:
    def paint(kind: str, text: str) -> str:
        return f"{_COLORS[kind]}{text}{_COLORS['end']}" if color else text

    lines = [
        paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]") + f": {_shown(diagnostic.message)}"
    ]
    places = [Label(span=diagnostic.span, text=diagnostic.label)] if diagnostic.span else []
    places += diagnostic.secondary
    numbers = [place.span.source.position(place.span.start)[0] for place in places]
    width = len(str(max(numbers, default=1)))
    previous: tuple[str, int] | None = None
    for index, (place, number) in enumerate(zip(places, numbers, strict=True)):
        mark = paint(diagnostic.severity, "^") if index == 0 and diagnostic.span else paint("place", "-")
        excerpt = _excerpt(place, mark, width, paint)
        here = (place.span.source.name, number)
        if here == previous:
            excerpt = excerpt[3:]
        elif previous is not None and here[0] == previous[0]:
            excerpt = [f"{' ' * width} {paint('place', '...')}", *excerpt[2:]]
        lines += excerpt
        previous = here
    lines += [f"{' ' * width} = {_shown(note)}" for note in diagnostic.notes]
    return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    """A message without control characters, and with the middle of very long names left out."""
    return _LONG_NAME.sub(r"`\1...\2`", text).translate(_CONTROLS)


def _excerpt(place: Label, mark: str, width: int, paint: Callable[[str, str], str]) -> list[str]:
    """Place, an empty line, the source line, and under it the marks with their text."""
    span = place.span
    line, column = span.source.position(span.start)
    number = column
    text = span.source.line_text(span.start)
    length = max(1, min(span.end - span.start, len(text) - column + 1))
    text, column = _window(text.translate(_CONTROLS), column)
    before, marked = text[: column - 1], text[column - 1 : column - 1 + length]
    indent = " " * len(before.replace("\t", _TAB))
    carets = mark * max(1, len(marked.replace("\t", _TAB)))
    gutter = paint("place", "|")
    return [
        f"{' ' * width}{paint('place', '-->')} {span.source.name}:{line}:{number}",
        f"{' ' * width} {gutter}",
        f"{paint('place', str(line).rjust(width))} {gutter} " + text.replace("\t", _TAB).rstrip(),
        f"{' ' * width} {gutter} {indent}{carets}" + (f" {_shown(place.text)}" if place.text else ""),
    ]


def _window(text: str, column: int) -> tuple[str, int]:
    """The part of a very long line that is shown, and the column in it."""
    if len(text) <= _MAX_COLUMNS:
        return text, column
    start = max(0, column - 1 - _MAX_COLUMNS // 2)
    shown = text[start : start + _MAX_COLUMNS]
    head, tail = "..." if start else "", "..." if start + _MAX_COLUMNS < len(text) else ""
    return head + shown + tail, column - start + len(head)
