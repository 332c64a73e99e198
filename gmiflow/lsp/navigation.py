"""From a name to its declaration and to everything else that uses it; renaming."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types

from gmiflow import resources
from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.indexing import import_place
from gmiflow.lsp.places import file_location, location
from gmiflow.lsp.symbols import RENAMEABLE, Index, Occurrence, Symbol
from gmiflow.passes.python_entry import locate_entry
from gmiflow.source import Span
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.words import KEYWORDS


class RenameError(Exception):
    """A name cannot become what was asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class _Edit:
    file: str
    span: Span
    text: str


def definition(analysis: Analysis, position: types.Position) -> types.Location | None:
    """Where the thing at a position is declared: a `.gmi` file, or the Python file of an entry."""
    found = occurrence_at(analysis, position)
    if found is None:
        return None
    symbol = found.symbol
    if symbol.kind == "entry" and symbol.unit is not None:
        span = locate_entry(symbol.name, symbol.unit.folder)
        return file_location(analysis, Path(span.source.name).absolute(), span) if span is not None else None
    if symbol.kind == "module" and symbol.unit is not None:
        return location(analysis, Span(symbol.unit.source, 0, 0))
    name = symbol.declared_name
    return location(analysis, name.span) if name is not None else None


def highlights(analysis: Analysis, position: types.Position) -> list[types.DocumentHighlight]:
    """The same name elsewhere in the document."""
    found = occurrence_at(analysis, position)
    if found is None or analysis.index is None:
        return []
    lines = analysis.document.lines
    return [
        types.DocumentHighlight(
            range=lines.range(occurrence.span.start, occurrence.span.end),
            kind=types.DocumentHighlightKind.Write if occurrence.declares else types.DocumentHighlightKind.Read,
        )
        for occurrence in analysis.index.of(found.symbol)
    ]


def references(
    analyses: Analyses, analysis: Analysis, position: types.Position, *, declarations: bool
) -> list[types.Location]:
    """Every use of the thing at a position, in all files of the workspace."""
    found = occurrence_at(analysis, position)
    if found is None:
        return []
    places: list[types.Location] = []
    for index in _indexes(analyses, found.symbol):
        for occurrence in index.of(found.symbol):
            if declarations or not occurrence.declares:
                place = file_location(analysis, Path(index.file), occurrence.span)
                places += [place] if place is not None else []
    return places


def prepare_rename(analysis: Analysis, position: types.Position) -> types.PrepareRenamePlaceholder | None:
    """What would be renamed, None where nothing can be."""
    found = occurrence_at(analysis, position)
    if found is None or not _can_rename(found):
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
        RenameError: the new name is no name, or means something else already.
    """
    found = occurrence_at(analysis, position)
    if found is None or prepare_rename(analysis, position) is None:
        return None
    symbol = found.symbol
    if name == symbol.name:
        return types.WorkspaceEdit(changes={})
    indexes = list(_indexes(analyses, symbol))
    _check_name(symbol, name, indexes)
    changes: dict[str, list[types.TextEdit]] = {}
    for edit in (edit for index in indexes for edit in _edits(index, symbol, name)):
        place = file_location(analysis, Path(edit.file), edit.span)
        if place is not None:
            changes.setdefault(place.uri, []).append(types.TextEdit(range=place.range, new_text=edit.text))
    return types.WorkspaceEdit(changes=changes)


def occurrence_at(analysis: Analysis, position: types.Position) -> Occurrence | None:
    """The name at a position."""
    return analysis.index.at(analysis.document.lines.offset(position)) if analysis.index is not None else None


def _can_rename(found: Occurrence) -> bool:
    symbol = found.symbol
    standard = Path(symbol.file).is_relative_to(resources.stdlib_path().resolve())
    return symbol.kind in RENAMEABLE and not standard


def _indexes(analyses: Analyses, symbol: Symbol) -> Iterator[Index]:
    """Indexes of the files that may use a symbol."""
    for index in analyses.indexes():
        if symbol.kind != "module" or index.file == symbol.file:
            yield index


def _edits(index: Index, symbol: Symbol, name: str) -> Iterator[_Edit]:
    aliased = {
        import_place(item): item.alias is not None for item in index.unit.module.items if isinstance(item, ast.Import)
    }
    for occurrence in index.of(symbol):
        span = occurrence.span
        if symbol.kind != "module" or span not in aliased:
            yield _Edit(index.file, span, name)
        elif not aliased[span]:
            yield _Edit(index.file, Span(span.source, span.end, span.end), f" as {name}")
    for bare in index.bare_ends:
        own = [port for _, port in bare.ports]
        if symbol in own or symbol in bare.partners:  # the ends no longer have the same names: write them out
            names = [name if port == symbol else text for text, port in bare.ports]
            listed = f".{names[0]}" if len(names) == 1 else f".{{{', '.join(names)}}}"
            yield _Edit(index.file, Span(bare.span.source, bare.span.end, bare.span.end), listed)


def _check_name(symbol: Symbol, name: str, indexes: list[Index]) -> None:
    """Refuse what is no name, and what would mean two things."""
    tokens = lexer.raw_tokens(name)
    if name in KEYWORDS:
        raise RenameError(f"`{name}` is a keyword")
    if len(tokens) != 1 or tokens[0].type != "NAME" or tokens[0].value != name:
        raise RenameError(f"`{name}` is not a name")
    if symbol.kind == "variable" and not name[0].isupper():
        raise RenameError("a size that the edges decide starts with a capital letter")
    for index in indexes:
        if index.file == symbol.file and name in _taken(index, symbol):
            raise RenameError(f"`{name}` is already declared")


def _taken(index: Index, symbol: Symbol) -> set[str]:
    """Names that the new one would collide with."""
    owner = symbol.owner.partition(".")[0] if symbol.kind != "member" else symbol.owner
    parts = {o.symbol.name for o in index.occurrences if o.symbol.file == symbol.file and o.symbol.owner == owner}
    own = set(index.unit.names)
    if not symbol.owner:
        inner = {o.symbol.name for o in index.occurrences if o.symbol.kind in ("argument", "variable")}
        return own | inner
    if symbol.kind in ("argument", "variable"):
        return parts | own
    return {o.symbol.name for o in index.occurrences if o.symbol.kind == symbol.kind and o.symbol.owner == owner}
