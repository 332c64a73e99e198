"""From a name to its declaration and to everything else that uses it."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.places import file_location, location
from gmiflow.lsp.symbols import Index, Occurrence, Symbol, resolve, same_thing, stage_type
from gmiflow.passes.imports import Unit
from gmiflow.passes.python_entry import locate_entry
from gmiflow.source import Span
from gmiflow.syntax import ast


def definition(analysis: Analysis, position: types.Position) -> types.Location | None:
    """Where the thing at a position is declared: a `.gmi` file, or the Python file of an entry."""
    found = occurrence_at(analysis, position)
    if found is None:
        return None
    symbol = found.symbol
    if symbol.kind == "entry" and symbol.unit is not None:
        return _entry(analysis, symbol.name, symbol.unit.folder)
    if symbol.kind == "module" and symbol.unit is not None:
        return location(analysis, Span(symbol.unit.source, 0, 0))
    name = symbol.declared_name
    return location(analysis, name.span) if name is not None else None


def type_definition(analysis: Analysis, position: types.Position) -> types.Location | None:
    """The stage type of a stage, also of one that an edge names; the record of a port or field."""
    found = _stage_type_at(analysis, position)
    if found is not None:
        return location(analysis, found[1].name.span)
    at = occurrence_at(analysis, position)
    unit = at.symbol.unit if at is not None else None
    kind = getattr(at.symbol.node, "type", None) if at is not None else None
    record = resolve(unit, kind.path) if unit is not None and isinstance(kind, ast.NamedType) else None
    return location(analysis, record[1].name.span) if record is not None and isinstance(record[1], ast.Record) else None


def implementation(analysis: Analysis, position: types.Position) -> types.Location | None:
    """The Python class of a stage or stage type."""
    found = _stage_type_at(analysis, position)
    if found is None:
        return None
    unit, kind = found
    settings = (s for s in kind.body if isinstance(s, ast.Setting) and s.name.text == "entry")
    entry = next((s.value for s in settings if isinstance(s.value, ast.PythonEntry)), None)
    return _entry(analysis, entry.text, unit.folder) if entry is not None else None


def _stage_type_at(analysis: Analysis, position: types.Position) -> tuple[Unit, ast.StageType] | None:
    found = occurrence_at(analysis, position)
    if found is None or found.symbol.unit is None:
        return None
    unit, node = found.symbol.unit, found.symbol.node
    if isinstance(node, ast.StageInstance):
        return stage_type(unit, node)
    return (unit, node) if isinstance(node, ast.StageType) else None


def _entry(analysis: Analysis, entry: str, folder: Path) -> types.Location | None:
    span = locate_entry(entry, folder)
    return file_location(analysis, Path(span.source.name).absolute(), span) if span is not None else None


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
