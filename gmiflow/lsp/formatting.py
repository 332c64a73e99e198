"""Formatting of a document, or of the declarations in a range, as edits of the lines that change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from lsprotocol import types

from gmiflow.lsp.analysis import Analysis


def format_document(analysis: Analysis, wanted: types.Range | None = None) -> list[types.TextEdit]:
    """Edits that format a document; none while it has syntax errors.

    Args:
        analysis: of the document.
        wanted: only edits that touch this range.
    """
    text, formatted = analysis.text, analysis.formatted
    if formatted is None or formatted == text:
        return []
    lines = analysis.document.lines
    edits = list(_edits(text, formatted))
    if wanted is not None:
        first, last = lines.offset(wanted.start), lines.offset(wanted.end)
        edits = [edit for edit in edits if edit[0] <= last and first <= edit[1]]
    return [types.TextEdit(range=lines.range(start, end), new_text=text) for start, end, text in edits]


def _edits(before: str, after: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and new text of every run of lines that differ."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag != "equal":
            yield starts[first], starts[last], "".join(new[new_first:new_last])
