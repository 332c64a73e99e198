"""From a name to its declaration and to everything else that uses it."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.places import file_location, location
from gmiflow.lsp.symbols import Index, Occurrence, Symbol, same_thing
from gmiflow.passes.python_entry import locate_entry
from gmiflow.source import Span


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
        for occurrence in analysis.index.of(same_thing(found.symbol, [analysis.index]))
    ]


def references(
    analyses: Analyses, analysis: Analysis, position: types.Position, *, declarations: bool
) -> list[types.Location]:
    """Every use of the thing at a position, in all files of the workspace."""
    found = occurrence_at(analysis, position)
    if found is None:
        return []
    places: list[types.Location] = []
    indexes = indexes_of(analyses, found.symbol)
    wanted = same_thing(found.symbol, indexes)
    for index in indexes:
        for occurrence in index.of(wanted):
            if declarations or not occurrence.declares:
                place = file_location(analysis, Path(index.file), occurrence.span)
                places += [place] if place is not None else []
    return places


def occurrence_at(analysis: Analysis, position: types.Position) -> Occurrence | None:
    """The name at a position."""
    return analysis.index.at(analysis.document.lines.offset(position)) if analysis.index is not None else None


def indexes_of(analyses: Analyses, symbol: Symbol) -> list[Index]:
    """Indexes of the files that may use a symbol."""
    return [index for index in analyses.indexes() if symbol.kind != "module" or index.file == symbol.file]
