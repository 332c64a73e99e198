"""Completion where no code is written: files in the string of an import, units behind a number."""

from __future__ import annotations

import os
import re

from lsprotocol import types

from gmiflow.lsp import candidates
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.candidates import item
from gmiflow.lsp.context import Context, context_at, table_of
from gmiflow.lsp.vocabulary import spec_of
from gmiflow.passes.values import SCALARS

MOST_FILES = 200
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[ \t]*([A-Za-z%/]*)$")


def files(analysis: Analysis, context: Context) -> list[types.CompletionItem]:
    """Files behind `import "`; nothing in other strings."""
    if not context.statement or context.statement[-1].type != "_IMPORT":
        return []
    folder = analysis.document.path.parent / os.path.dirname(context.prefix)
    try:
        entries = sorted(folder.iterdir())[:MOST_FILES]
    except (OSError, ValueError):
        return []
    found: list[types.CompletionItem] = []
    for entry in entries:
        if entry.name.startswith(".") or entry == analysis.document.path:
            continue
        if entry.is_dir():
            found.append(item(f"{entry.name}/", types.CompletionItemKind.Folder, 1))
        elif entry.suffix == ".gmi":
            found.append(item(entry.name, types.CompletionItemKind.File, 0))
    return found


def units(analysis: Analysis, offset: int) -> list[types.CompletionItem]:
    """Units behind a number, those of the setting's dimension alone."""
    line = analysis.text[analysis.text.rfind("\n", 0, offset) + 1 : offset]
    number = _NUMBER.search(line)
    if number is None:
        return []
    context = context_at(analysis, offset - len(number.group()))
    head = context.statement
    if len(head) >= 2 and head[1].type == "_ASSIGN":
        spec = spec_of(table_of(context.frames), head[0].value)
        dimension = spec.type.dimension if spec is not None else ""
    else:
        names = [token.value for token in head if token.value in SCALARS]
        dimension = SCALARS[names[0]].dimension if names else ""
    return list(candidates.units(dimension)) if dimension else []
