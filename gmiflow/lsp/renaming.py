"""Renaming: the edits, and the proof that every name of the files they touch still means what it meant."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from lsprotocol import types

from gmiflow import resources
from gmiflow.diagnostics import Diagnostic, Edit, apply_edits
from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.documents import Documents
from gmiflow.lsp.indexing import import_place, index_unit
from gmiflow.lsp.navigation import indexes_of, occurrence_at
from gmiflow.lsp.places import file_location
from gmiflow.lsp.symbols import RENAMEABLE, Index, Symbol, same_thing
from gmiflow.passes.imports import Files, Loader
from gmiflow.passes.report import Report
from gmiflow.source import Span
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.parser import Parsed
from gmiflow.syntax.words import KEYWORDS


class RenameError(Exception):
    """A name cannot become what was asked for; the message says why."""


def prepare_rename(analysis: Analysis, position: types.Position) -> types.PrepareRenamePlaceholder | None:
    """What would be renamed, None where nothing can be."""
    found = occurrence_at(analysis, position)
    if found is None or analysis.index is None or not _can_rename(same_thing(found.symbol, [analysis.index])):
        return None
    span = found.span
    if found.symbol.kind == "module" and span.text != found.symbol.name:  # a path in quotes, without `as`
        return None
    return types.PrepareRenamePlaceholder(
        range=analysis.document.lines.range(span.start, span.end), placeholder=found.symbol.name
    )


def rename(analyses: Analyses, analysis: Analysis, position: types.Position, name: str) -> types.WorkspaceEdit | None:
    """Rename the thing at a position in all files of the workspace; None where nothing can be renamed.

    Raises:
        RenameError: the new name is no name, or something would mean another thing than before.
    """
    found = occurrence_at(analysis, position)
    if found is None or prepare_rename(analysis, position) is None:
        return None
    symbol = found.symbol
    if name == symbol.name:
        return types.WorkspaceEdit(changes={})
    indexes = indexes_of(analyses, symbol)
    symbols = same_thing(symbol, indexes)
    if not _can_rename(symbols):
        raise RenameError(f"`{symbol.name}` is a size of a record of the standard library, too")
    _check_name(symbol, name, indexes)
    edits = {index.file: list(_edits(index, symbols, name)) for index in indexes}
    _check_meanings(analyses.files, indexes, edits, name)
    changes: dict[str, list[types.TextEdit]] = {}
    for file, of_file in edits.items():
        for edit in of_file:
            place = file_location(analysis, Path(file), edit.span)
            if place is not None:
                changes.setdefault(place.uri, []).append(types.TextEdit(range=place.range, new_text=edit.text))
    return types.WorkspaceEdit(changes=changes)


def _can_rename(symbols: set[Symbol]) -> bool:
    standard = resources.stdlib_path().resolve()
    return all(s.kind in RENAMEABLE and not Path(s.file).is_relative_to(standard) for s in symbols)


def _edits(index: Index, symbols: Container[Symbol], name: str) -> Iterator[Edit]:
    imports = {import_place(item): item for item in index.unit.module.items if isinstance(item, ast.Import)}
    for occurrence in index.of(symbols):
        span = occurrence.span
        item = imports.get(span)
        if occurrence.symbol.kind != "module" or item is None:
            yield Edit(span=span, text=name)
        elif item.alias is None:
            yield Edit(span=Span(span.source, span.end, span.end), text=f" as {name}")
    for bare in index.bare_ends:
        ports = [port for _, port in bare.ports]
        if any(port in symbols for port in (*ports, *bare.partners) if port is not None):
            # the ends no longer have the same names: write them out
            names = [name if port is not None and port in symbols else text for text, port in bare.ports]
            listed = f".{names[0]}" if len(names) == 1 else f".{{{', '.join(names)}}}"
            yield Edit(span=Span(bare.span.source, bare.span.end, bare.span.end), text=listed)


def _check_name(symbol: Symbol, name: str, indexes: list[Index]) -> None:
    """Refuse what is no name, and what is declared beside it."""
    tokens = lexer.raw_tokens(name)
    if name in KEYWORDS:
        raise RenameError(f"`{name}` is a keyword")
    if len(tokens) != 1 or tokens[0].type != "NAME" or tokens[0].value != name:
        raise RenameError(f"`{name}` is not a name")
    for index in indexes:
        if index.file == symbol.file and name in _taken(index, symbol):
            raise RenameError(f"`{name}` is already declared")


def _taken(index: Index, symbol: Symbol) -> set[str]:
    """Names that the new one would stand beside, hide, or be hidden by."""
    here = [o.symbol for o in index.occurrences if o.symbol.file == symbol.file]
    if not symbol.owner:
        return set(index.unit.names) | {s.name for s in here if s.kind in ("argument", "variable")}
    parts = {s.name for s in here if s.owner == symbol.owner}
    return parts | set(index.unit.names) if symbol.kind in ("argument", "variable") else parts


# The proof


class _Changed(Files):
    """The files as they will be."""

    def __init__(self, files: Documents, texts: dict[str, str]) -> None:
        self._files = files
        self._texts = texts

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        return self._files.exists(path)

    def parsed(self, path: Path, name: str, text: str | None = None) -> Parsed | Diagnostic:
        """A file's new text where it has one."""
        new = text if text is not None else self._texts.get(os.path.realpath(path))
        return self._files.parsed(path, name, new)


def _check_meanings(files: Documents, indexes: list[Index], edits: dict[str, list[Edit]], name: str) -> None:
    """Read the changed files, and refuse when a name in them no longer means what it meant."""
    sources = {index.file: index.unit.source.text for index in indexes if edits[index.file]}
    texts = {file: apply_edits(text, edits[file]) for file, text in sources.items()}
    changed = _Changed(files, texts)
    meanings: dict[Symbol, Symbol] = {}
    for before in indexes:
        if before.file not in texts:
            continue
        loader = Loader(Report(), changed)
        unit = loader.load(Path(before.file), before.unit.source.name)
        if unit is None:
            raise RenameError(f"with `{name}` it could not be read again: {before.file}")
        _compare(before, index_unit(unit, Path(before.file), loader.paths), edits[before.file], meanings, name)


def _compare(before: Index, after: Index, edits: Sequence[Edit], meanings: dict[Symbol, Symbol], name: str) -> None:
    """Refuse unless every name stands for what it stood for, and no name that meant nothing means something now."""
    moved = _Moved(edits)
    new = {o.span.end: o for o in after.occurrences}  # an import's name grows to the left when it gets an alias
    back = {meaning: symbol for symbol, meaning in meanings.items()}
    for occurrence in before.occurrences:
        symbol, found = occurrence.symbol, new.pop(moved.end(occurrence.span.end), None)
        if (
            found is None
            or found.symbol.kind != symbol.kind
            or meanings.setdefault(symbol, found.symbol) != found.symbol
            or back.setdefault(found.symbol, symbol) != symbol
        ):
            where = f"in line {occurrence.span.line} of {Path(before.file).name}"
            raise RenameError(f"`{symbol.name}` would have another meaning {where} with the new name `{name}`")
    for found in new.values():
        if not moved.is_inserted(found.span.end):
            where = f"in line {found.span.line} of {Path(before.file).name}"
            raise RenameError(f"`{name}` is used {where} already, for something that is not declared")


class _Moved:
    """Where names of a text are after some edits."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        ordered = sorted(edits, key=lambda edit: edit.span.start)
        self._starts = [edit.span.start for edit in ordered]
        self._shifts = [0]
        self._inserted: list[tuple[int, int]] = []
        for edit in ordered:
            start = edit.span.start + self._shifts[-1]
            if edit.span.start == edit.span.end:
                self._inserted.append((start, start + len(edit.text)))
            self._shifts.append(self._shifts[-1] + len(edit.text) - (edit.span.end - edit.span.start))

    def end(self, end: int) -> int:
        """Where a name ends now, by where it ended."""
        return end + self._shifts[bisect_left(self._starts, end)]

    def is_inserted(self, end: int) -> bool:
        """Whether a name that ends there now is in a text that was put between two others."""
        return any(start < end <= last for start, last in self._inserted)
