"""Completion of what modules declare: imported ones, and those of `std` with the import that they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lsprotocol import types

from gmiflow import resources
from gmiflow.lsp import candidates
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.candidates import item
from gmiflow.lsp.places import range_of
from gmiflow.passes.imports import Named, Unit
from gmiflow.passes.insertion import import_edit
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.parser import Parsed


def modules(head: tuple[Token, ...]) -> Iterator[types.CompletionItem]:
    """Modules of the standard library behind `import`."""
    path = [token.value for token in head[1:] if token.type == "NAME"]
    root = resources.stdlib_path()
    if len(head) == 1:
        yield item("std", types.CompletionItemKind.Module, 0, detail="the standard library")
    elif path[:1] == ["std"] and head[-1].type == "_DOT":
        folder = root.joinpath(*path[1:])
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if entry.is_dir() or entry.suffix == ".gmi":
                yield item(entry.stem, types.CompletionItemKind.Module, 0, detail=".".join((*path, entry.stem)))


def declared(analysis: Analysis, unit: Unit, kind: type[Named], role: str = "") -> Iterator[types.CompletionItem]:
    """Declarations of one kind as they are written here: of this file, of its modules, of `std`; then the modules.

    Args:
        analysis: of the document.
        unit: the document's names.
        kind: what is wanted.
        role: of the stage types that are wanted, "" for any.
    """
    yield from candidates.names(unit, (kind,), 0)
    for module, meaning in unit.names.items():
        if not isinstance(meaning, Unit):
            continue
        found = [(n, m) for n, m in meaning.names.items() if isinstance(m, kind) and _has_role(m, role)]
        for name, member in found:
            yield candidates.named(meaning, name, member, 1, module=module)
        if found:
            yield candidates.module(module, meaning, 2)
    yield from _not_imported(analysis, unit, kind, role)


def _not_imported(analysis: Analysis, unit: Unit, kind: type[Named], role: str) -> Iterator[types.CompletionItem]:
    """What modules of `std` declare that the file does not import, with the edit that imports them."""
    known = {meaning.source.name for meaning in unit.names.values() if isinstance(meaning, Unit)}
    for dotted in resources.standard_modules():
        _, *parts = dotted.split(".")
        relative = f"{'/'.join(parts)}.gmi"
        if f"std/{relative}" in known or parts[-1] in unit.names:
            continue
        parsed = analysis.files.parsed(Path(resources.stdlib_path(), relative), f"std/{relative}")
        edit = import_edit(unit.module, dotted)
        if not isinstance(parsed, Parsed) or edit is None:
            continue
        change = types.TextEdit(range=range_of(analysis, edit.span), new_text=edit.text)
        for node in parsed.module.items:
            if isinstance(node, kind) and _has_role(node, role):
                found = candidates.named(None, node.name.text, node, 4, module=parts[-1])
                found.detail = f"import {dotted}"
                found.additional_text_edits = [change]
                yield found


def _has_role(node: object, role: str) -> bool:
    return not role or (isinstance(node, ast.StageType) and node.role == role)
