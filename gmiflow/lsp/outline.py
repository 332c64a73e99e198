"""What a file declares, for the outline, for the search of the workspace, and for folding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lsprotocol import types

from gmiflow.lsp import facts
from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.describe import port_text
from gmiflow.lsp.documents import uri_of
from gmiflow.lsp.symbols import DECLARATIONS
from gmiflow.source import Span
from gmiflow.syntax import ast

_KINDS: dict[str, types.SymbolKind] = {
    "param": types.SymbolKind.Constant,
    "record": types.SymbolKind.Struct,
    "stage_type": types.SymbolKind.Class,
    "stage": types.SymbolKind.Object,
    "workflow": types.SymbolKind.Function,
    "target": types.SymbolKind.Namespace,
}
MOST_SYMBOLS = 500
"""Answers of one search of the workspace."""


def document_symbols(analysis: Analysis) -> list[types.DocumentSymbol]:
    """The outline of a document."""
    found: list[types.DocumentSymbol] = []
    for item in analysis.items:
        if isinstance(item, ast.Import):
            name = item.alias.text if item.alias else (item.module.names[-1].text if item.module else item.file or "")
            found += (
                [_symbol(analysis, name, types.SymbolKind.Module, item.span, item.target_span, "import")]
                if name
                else []
            )
        elif type(item) in DECLARATIONS and not isinstance(item, ast.Edition | ast.Require):
            kind = DECLARATIONS[type(item)]
            symbol = _symbol(analysis, item.name.text, _KINDS[kind], item.span, item.name.span, _detail(item))
            symbol.children = list(_children(analysis, item)) or None
            found.append(symbol)
    return found


def workspace_symbols(analyses: Analyses, query: str) -> list[types.WorkspaceSymbol]:
    """Declarations of the workspace whose name has the letters of the query, in their order."""
    found: list[types.WorkspaceSymbol] = []
    for index in analyses.indexes():
        lines = analyses.files.lines(Path(index.file))
        document = analyses.files.at(Path(index.file))
        uri = document.uri if document is not None else uri_of(Path(index.file))
        for name, meaning in index.unit.names.items():
            kind = DECLARATIONS.get(type(meaning))
            declared = getattr(meaning, "name", None)
            if kind is None or lines is None or not isinstance(declared, ast.Name) or not _matches(query, name):
                continue
            place = types.Location(uri=uri, range=lines.range(declared.span.start, declared.span.end))
            container = Path(index.file).stem
            found.append(types.WorkspaceSymbol(location=place, name=name, kind=_KINDS[kind], container_name=container))
            if len(found) >= MOST_SYMBOLS:
                return found
    return found


def folding_ranges(analysis: Analysis) -> list[types.FoldingRange]:
    """Declarations, blocks, brackets over several lines, comments, and the imports."""
    lines = analysis.document.lines
    found: dict[int, types.FoldingRange] = {}

    def fold(start: int, end: int, kind: types.FoldingRangeKind | None = None) -> None:
        first, last = lines.line_of(start), lines.line_of(end)
        if last > first and first not in found:
            found[first] = types.FoldingRange(start_line=first, end_line=last, kind=kind)

    open_brackets: list[int] = []
    for token in analysis.tokens:
        if token.type in ("LBRACE", "LPAR", "LSQB"):
            open_brackets.append(token.start_pos)
        elif token.type in ("RBRACE", "RPAR", "RSQB") and open_brackets:
            start = open_brackets.pop()
            before_closer = analysis.text.rfind("\n", 0, token.start_pos)
            if before_closer > start and not analysis.text[before_closer : token.start_pos].strip():
                fold(start, before_closer - (analysis.text[before_closer - 1] == "\r"))
            else:
                fold(start, token.start_pos)
    imports = [item.span for item in analysis.items if isinstance(item, ast.Import)]
    if imports:
        fold(imports[0].start, imports[-1].end, types.FoldingRangeKind.Imports)
    for start, end in _comment_blocks(analysis):
        fold(start, end, types.FoldingRangeKind.Comment)
    return sorted(found.values(), key=lambda found_range: found_range.start_line)


def _comment_blocks(analysis: Analysis) -> Iterator[tuple[int, int]]:
    """Runs of comment lines; documentation and other comments apart."""
    docs = [(token.start_pos, token.end_pos) for token in analysis.tokens if token.type == "DOC"]
    for places in (docs, analysis.comments):
        block: tuple[int, int] | None = None
        for start, end in places:
            joined = block is not None and not analysis.text[block[1] : start].strip(" \t\r\n")
            if block is not None and joined and analysis.text.count("\n", block[1], start) == 1:
                block = (block[0], end)
                continue
            if block is not None:
                yield block
            block = (start, end)
        if block is not None:
            yield block


def _children(analysis: Analysis, item: ast.Declaration) -> Iterator[types.DocumentSymbol]:
    if isinstance(item, ast.Record):
        for member in item.fields:
            detail = facts.one_line(member.type)
            yield _symbol(analysis, member.name.text, types.SymbolKind.Field, member.span, member.name.span, detail)
    if isinstance(item, ast.StageType | ast.Target):
        for param in item.params or ():
            kind, detail = types.SymbolKind.Property, facts.one_line(param.type)
            yield _symbol(analysis, param.name.text, kind, param.span, param.name.span, detail)
    if isinstance(item, ast.StageType | ast.Target | ast.Workflow):
        yield from _statements(analysis, item.body)


def _statements(analysis: Analysis, body: Sequence[ast.Statement]) -> Iterator[types.DocumentSymbol]:
    for statement in body:
        match statement:
            case ast.Port():
                kind, detail = types.SymbolKind.Interface, port_text(statement)
            case ast.Setting():
                kind, detail = types.SymbolKind.Property, facts.one_line(statement.value)
            case ast.Section():
                kind, detail = types.SymbolKind.Namespace, ""
            case _:
                continue
        yield _symbol(analysis, statement.name.text, kind, statement.span, statement.name.span, detail)


def _detail(item: ast.Declaration) -> str:
    match item:
        case ast.Param():
            return facts.one_line(item.type)
        case ast.StageInstance():
            return f"{item.role} {item.type.text}"
        case ast.StageType():
            return item.role
        case ast.Record() | ast.Workflow() | ast.Target():
            return type(item).__name__.lower()
        case _:
            return ""


def _symbol(
    analysis: Analysis, name: str, kind: types.SymbolKind, whole: Span, selected: Span, detail: str
) -> types.DocumentSymbol:
    lines = analysis.document.lines
    outer = Span(whole.source, min(whole.start, selected.start), max(whole.end, selected.end))
    return types.DocumentSymbol(
        name=name,
        kind=kind,
        detail=detail or None,
        range=lines.range(outer.start, outer.end),
        selection_range=lines.range(selected.start, selected.end),
    )


def _matches(query: str, name: str) -> bool:
    letters = iter(name.lower())
    return all(letter in letters for letter in query.lower())
