"""Completion where no code is written: files of imports and Python classes in strings, units behind a number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from lsprotocol import types

from gmiflow.lsp import candidates
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.candidates import item
from gmiflow.lsp.context import Context, context_at, table_of
from gmiflow.lsp.vocabulary import spec_of
from gmiflow.passes.python_entry import classes_in, modules_in
from gmiflow.passes.values import SCALARS

MOST_FILES = 200
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[ \t]*([A-Za-z%/]*)$")


def strings(analysis: Analysis, context: Context, offset: int) -> list[types.CompletionItem]:
    """Files behind `import "`, Python modules and classes behind `py "`; nothing in other strings."""
    opener = context.statement[-1] if context.statement else None
    if opener is not None and opener.type == "_IMPORT":
        found = list(_files(analysis, context.prefix))
        done = context.prefix.rfind("/") + 1
    elif opener is not None and opener.value == "py":
        found = list(_python(analysis, context.prefix))
        done = max(context.prefix.rfind("."), context.prefix.rfind(":")) + 1
    else:
        return []
    return [_in_place(analysis, candidate, context.start + done, offset) for candidate in found]


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
    found = candidates.units(dimension) if dimension else ()
    return [_in_place(analysis, candidate, offset - len(number.group(1)), offset) for candidate in found]


def _files(analysis: Analysis, prefix: str) -> Iterator[types.CompletionItem]:
    folder = analysis.document.path.parent / os.path.dirname(prefix)
    try:
        entries = sorted(folder.iterdir())[:MOST_FILES]
    except (OSError, ValueError):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry == analysis.document.path:
            continue
        if entry.is_dir():
            yield item(f"{entry.name}/", types.CompletionItemKind.Folder, 1)
        elif entry.suffix == ".gmi":
            yield item(entry.name, types.CompletionItemKind.File, 0)


def _python(analysis: Analysis, prefix: str) -> Iterator[types.CompletionItem]:
    """Modules, or behind the colon the classes of one."""
    folder = analysis.document.path.parent
    module, colon, _ = prefix.partition(":")
    if colon:
        for name, text in classes_in(module, folder):
            yield item(name, types.CompletionItemKind.Class, 0, detail=module, documentation=text)
        return
    package = module.rpartition(".")[0]
    for name in modules_in(package, folder):
        yield item(name, types.CompletionItemKind.Module, 0, detail=f"{package}.{name}" if package else name)


def _in_place(analysis: Analysis, candidate: types.CompletionItem, start: int, end: int) -> types.CompletionItem:
    """A candidate that replaces just that: what editors take for a word ends at a dot or a slash, or does not."""
    place = analysis.document.lines.range(start, end)
    candidate.text_edit = types.TextEdit(range=place, new_text=candidate.insert_text or candidate.label)
    return candidate
