"""Allow comments: `// gmi: allow(W0203) reason` silences a warning on its line or on the next.

In: a source and diagnostics. Out: what no comment allows, what one does, and what is wrong with the comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gmiflow.codes import TITLES
from gmiflow.diagnostics import Diagnostic, Edit, Fix
from gmiflow.source import Source, Span
from gmiflow.syntax import comments

_MARK = re.compile(r"//\s*gmi:")
_ALLOW = re.compile(r"//\s*gmi:\s*allow\(([^)]*)\)\s*(.*)")


@dataclass(kw_only=True, slots=True)
class Allow:
    """One allow comment: the codes it allows and the lines that it speaks about."""

    span: Span
    codes: tuple[str, ...]
    lines: range
    used: set[str] = field(default_factory=set[str])

    def speaks_about(self, diagnostic: Diagnostic) -> bool:
        """Whether this comment silences a diagnostic."""
        span = diagnostic.span
        return (
            span is not None
            and span.source == self.span.source
            and diagnostic.code in self.codes
            and span.line in self.lines
        )


def read_allows(source: Source) -> tuple[list[Allow], list[Diagnostic]]:
    """The allow comments of a file, and warnings about those that cannot be read."""
    allows: list[Allow] = []
    problems: list[Diagnostic] = []
    if "gmi:" not in source.text:
        return allows, problems
    for start, end in comments.places(source.text):
        span = Span(source, start, end)
        if _MARK.match(span.text):
            read = _read(span)
            if isinstance(read, Allow):
                allows.append(read)
            else:
                problems.append(read)
    return allows, problems


def split(allows: Sequence[Allow], found: Iterable[Diagnostic]) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """Diagnostics that no comment allows, and those that one does; the comments remember what they silenced."""
    kept: list[Diagnostic] = []
    silenced: list[Diagnostic] = []
    for diagnostic in found:
        allow = next((a for a in allows if a.speaks_about(diagnostic)), None)
        if allow is None:
            kept.append(diagnostic)
        else:
            allow.used.add(diagnostic.code)
            silenced.append(diagnostic)
    return kept, silenced


def without_allowed(found: Sequence[Diagnostic]) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """As `split`, with the comments of the files that the warnings are in."""
    sources = {d.span.source for d in found if d.severity == "warning" and d.span is not None}
    allows = [allow for source in sources for allow in read_allows(source)[0]]
    return split(allows, found)


def unused(allows: Iterable[Allow]) -> list[Diagnostic]:
    """Warnings about comments that silenced nothing."""
    return [_unused(allow, code) for allow in allows for code in allow.codes if code not in allow.used]


def _read(span: Span) -> Allow | Diagnostic:
    found = _ALLOW.fullmatch(span.text)
    if found is None:
        notes = ("written `// gmi: allow(W0203) reason`",)
        return _warning("W0103", "this `gmi:` comment cannot be read", span, notes)
    codes = tuple(code.strip() for code in found.group(1).split(","))
    for code in codes:
        if not code.startswith("W") or code not in TITLES:
            known = code in TITLES
            notes = ("errors cannot be allowed",) if known else ("`gmiflow explain CODE` shows what a code means",)
            message = f"`{code}` is an error, not a warning" if known else f"there is no warning `{code}`"
            return _warning("W0103", message, span, notes)
    if not found.group(2).strip():
        notes = (f"add why, for example `// gmi: allow({codes[0]}) kept for the ablation`",)
        return _warning("W0101", "an allow comment needs a reason", span, notes)
    return Allow(span=span, codes=codes, lines=_lines_of(span))


def _lines_of(span: Span) -> range:
    """The comment's own line; alone on it, also those up to the next line that is neither blank nor a comment."""
    source, line = span.source, span.line
    if source.line_text(span.start)[: source.position(span.start)[1] - 1].strip():
        return range(line, line + 1)
    following = source.text[span.end :].split("\n")[1:]
    skipped = 0
    while skipped < len(following) and (not following[skipped].strip() or following[skipped].lstrip().startswith("//")):
        skipped += 1
    return range(line, line + skipped + 2)


def _unused(allow: Allow, code: str) -> Diagnostic:
    span = allow.span
    fixes: tuple[Fix, ...] = ()
    if len(allow.codes) == 1:
        fixes = (Fix(title="remove the comment", edits=(Edit(span=_with_space_before(span), text=""),)),)
    return _warning("W0102", f"nothing here gives the warning {code}", span, fixes=fixes)


def _with_space_before(span: Span) -> Span:
    """The comment with the blanks before it, and with its line end where it stands alone."""
    text, start, end = span.source.text, span.start, span.end
    while start and text[start - 1] in " \t":
        start -= 1
    if start == 0 or text[start - 1] == "\n":
        newline = text.find("\n", end)
        end = len(text) if newline < 0 else newline + 1
    return Span(span.source, start, end)


def _warning(
    code: str, message: str, span: Span, notes: tuple[str, ...] = (), fixes: tuple[Fix, ...] = ()
) -> Diagnostic:
    return Diagnostic(code=code, message=message, span=span, severity="warning", notes=notes, fixes=fixes)
