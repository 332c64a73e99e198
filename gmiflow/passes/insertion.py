"""Fixes that add a line to a file: an import, an edge."""

from __future__ import annotations

import re

from gmiflow import resources
from gmiflow.diagnostics import Edit, Fix
from gmiflow.source import Span
from gmiflow.syntax import ast

_LINE_END = re.compile(r"[ \t]*(?://[^\r\n]*)?(?=\r?\n|\Z)")
_MARGIN = re.compile(r"[ \t]*")


def line_behind(span: Span, line: str, *, gap: bool = False) -> Edit | None:
    """Add a line behind the one that a span ends in, indented as that is; None where more follows the span there.

    Args:
        span: whole statement or declaration; a comment may stand behind it.
        line: without indentation and line end.
        gap: whether an empty line comes between.
    """
    text = span.source.text
    end = _LINE_END.match(text, span.end)
    if end is None:
        return None
    margin = _MARGIN.match(text, text.rfind("\n", 0, span.start) + 1)
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = margin.group() if margin is not None else ""
    place = Span(span.source, end.end(), end.end())
    return Edit(span=place, text=f"{newline * (2 if gap else 1)}{indent}{line}")


def import_edit(module: ast.Module, path: str) -> Edit | None:
    """Add `import PATH` behind the last import, or else behind the edition; None in a file that has neither."""
    imports = [item.span for item in module.items if isinstance(item, ast.Import)]
    editions = [item.span for item in module.items if isinstance(item, ast.Edition)]
    behind = (imports or editions)[-1:]
    return line_behind(behind[0], f"import {path}", gap=not imports) if behind else None


def import_fix(module: ast.Module, name: str) -> Fix | None:
    """Import the module of the standard library that is used by its name alone, None when there is none of it."""
    path = next((path for path in resources.standard_modules() if path.rpartition(".")[2] == name), None)
    edit = import_edit(module, path) if path is not None else None
    return Fix(title=f"write `import {path}`", edits=(edit,)) if edit is not None else None
