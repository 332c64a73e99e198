"""Formatting of a document, or of the declarations in a range, as edits of the lines that change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from lsprotocol import types

from gmiflow.lsp.analysis import Analysis
from gmiflow.syntax import ast
from gmiflow.syntax.parser import Parsed

_Edit = tuple[int, int, str]
"""Start, end and new text."""
MOST_COMPARISONS = 1_000_000
"""Lines before times lines after, above which a part of a file is replaced as a whole."""


def format_document(analysis: Analysis, wanted: types.Range | None = None) -> list[types.TextEdit]:
    """Edits that format a document; none while it has syntax errors.

    Args:
        analysis: of the document.
        wanted: only the declarations, and what is between two of them, that touch this range. Each is edited as a
            whole: the lines of a half of one may not stand alone.
    """
    text, formatted = analysis.text, analysis.formatted
    if formatted is None or formatted == text:
        return []
    lines = analysis.document.lines
    first, last = (lines.offset(wanted.start), lines.offset(wanted.end)) if wanted is not None else (0, len(text))
    parts = [part for part in _parts(analysis, formatted) if part[0] <= last and first <= part[1]]
    edits = [edit for part in parts for edit in _by_line(text, part)]
    return [types.TextEdit(range=lines.range(start, end), new_text=new) for start, end, new in edits]


def _parts(analysis: Analysis, formatted: str) -> Iterator[_Edit]:
    """One edit for every declaration, and for what is between two, that changes."""
    parsed = analysis.files.parsed(analysis.document.path, analysis.name, formatted)
    text, before, after = analysis.text, analysis.items, parsed.module.items if isinstance(parsed, Parsed) else ()
    if len(before) != len(after):  # never for a file that can be formatted
        before = after = ()
    old, new = _cuts(before, text), _cuts(after, formatted)
    for start, end, new_start, new_end in zip(old[:-1], old[1:], new[:-1], new[1:], strict=True):
        if text[start:end] != formatted[new_start:new_end]:
            yield start, end, formatted[new_start:new_end]


def _cuts(items: tuple[ast.Declaration, ...], text: str) -> list[int]:
    """Where a file is cut: around its declarations."""
    return [0, *(place for item in items for place in (item.span.start, item.span.end)), len(text)]


def _by_line(text: str, part: _Edit) -> Iterator[_Edit]:
    """The edit of a part as one of every run of lines that differ."""
    start, end, after = part
    old, new = text[start:end].splitlines(keepends=True), after.splitlines(keepends=True)
    if len(old) * len(new) > MOST_COMPARISONS:
        yield part
        return
    starts = [start]
    for line in old:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            yield starts[first], starts[last], "".join(new[new_first:new_last])
