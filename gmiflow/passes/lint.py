"""The linter: what is legal but probably not meant.

In: a file. Out: the checker's diagnostics and warnings about names that nothing uses, names that hide others and
sizes that waste a GPU. A warning is silenced by `// gmi: allow(W0203) reason` on its line or on the line before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gmiflow.codes import TITLES
from gmiflow.diagnostics import Diagnostic, Edit, Fix, in_order
from gmiflow.passes import lint_names, lint_sizes
from gmiflow.passes.check import CheckResult, check
from gmiflow.passes.imports import Files, Loader
from gmiflow.passes.report import Report
from gmiflow.source import Source, Span
from gmiflow.syntax import ast, comments

if TYPE_CHECKING:
    from gmiflow.hardware import Hardware

_MARK = re.compile(r"//\s*gmi:")
_ALLOW = re.compile(r"//\s*gmi:\s*allow\(([^)]*)\)\s*(.*)")
MAX_COMBINATIONS = 32
"""Workflows times targets whose sizes are looked at."""


@dataclass(kw_only=True, slots=True)
class _Allow:
    """One allow comment: the codes it allows and the lines that it speaks about."""

    span: Span
    codes: tuple[str, ...]
    lines: range
    used: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, kw_only=True, slots=True)
class Linted:
    """What the linter found.

    Attributes:
        diagnostics: errors and warnings of the file, and errors of what it imports, sorted by place.
        results: one check per workflow and target; the first is the one of a file without either.
    """

    diagnostics: tuple[Diagnostic, ...]
    results: tuple[CheckResult, ...]


def lint(
    path: str, *, text: str | None = None, hardware: Hardware | None = None, files: Files | None = None
) -> tuple[Diagnostic, ...]:
    """Check and lint a file.

    Args:
        path: as the user names it.
        text: content to use in place of the file's.
        hardware: this machine, for a file without a target.
        files: where files come from, None for the disk.

    Returns:
        Errors and warnings of this file, and errors of what it imports, sorted by place.
    """
    return lint_results(path, text=text, hardware=hardware, files=files).diagnostics


def lint_results(
    path: str, *, text: str | None = None, hardware: Hardware | None = None, files: Files | None = None
) -> Linted:
    """As `lint`, with the checks behind the diagnostics."""
    unit = Loader(Report(), files).load(Path(path), path, text=text)
    if unit is None:
        result = check(path, text=text, hardware=hardware, files=files)
        return Linted(diagnostics=result.diagnostics, results=(result,))
    results = tuple(_checked(path, text, unit.module, hardware, files))
    found = [diagnostic for result in results for diagnostic in result.diagnostics]
    if not any(diagnostic.severity == "error" for diagnostic in found):
        found += lint_names.warnings(unit)
        found += [w for result in results if result.workflow is not None for w in lint_sizes.warnings(result)]
        return Linted(diagnostics=in_order(_allowed(unit.source, found)), results=results)
    return Linted(diagnostics=in_order(found), results=results)


def _checked(
    path: str, text: str | None, module: ast.Module, hardware: Hardware | None, files: Files | None
) -> Iterator[CheckResult]:
    """Check every workflow on every target of the file that can be had without arguments."""
    workflows: list[str | None] = [item.name.text for item in module.items if isinstance(item, ast.Workflow)]
    targets: list[str | None] = [
        item.name.text
        for item in module.items
        if isinstance(item, ast.Target) and all(param.default is not None for param in item.params or ())
    ]
    pairs = [(workflow, target) for workflow in workflows or [None] for target in targets or [None]]
    for workflow, target in pairs[:MAX_COMBINATIONS]:
        wanted = target if workflow is not None else None
        yield check(path, text=text, workflow=workflow, target=wanted, hardware=hardware, files=files)


def _allowed(source: Source, found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """What no comment allows, and what is wrong with the comments."""
    allows: list[_Allow] = []
    for start, end in comments.places(source.text):
        span = Span(source, start, end)
        if _MARK.match(span.text):
            read = _read_allow(span)
            if isinstance(read, _Allow):
                allows.append(read)
            else:
                yield read
    for diagnostic in found:
        allow = next((a for a in allows if _speaks_about(a, diagnostic, source)), None)
        if allow is None:
            yield diagnostic
        else:
            allow.used.add(diagnostic.code)
    for allow in allows:
        for code in allow.codes:
            if code not in allow.used:
                yield _unused(allow, code)


def _speaks_about(allow: _Allow, diagnostic: Diagnostic, source: Source) -> bool:
    span = diagnostic.span
    return span is not None and span.source == source and diagnostic.code in allow.codes and span.line in allow.lines


def _read_allow(span: Span) -> _Allow | Diagnostic:
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
    return _Allow(span=span, codes=codes, lines=_lines_of(span))


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


def _unused(allow: _Allow, code: str) -> Diagnostic:
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
