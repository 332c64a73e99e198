"""Semantic tokens: the compiler's tokens, coloured by what their names stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lsprotocol import types

from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.symbols import Occurrence
from gmiflow.syntax import comments, lexer
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import KEYWORDS

TYPES: Final = (
    "namespace", "class", "struct", "type", "parameter", "variable", "property", "enumMember",
    "function", "keyword", "number", "string", "operator", "comment", "typeParameter", "event",
)  # fmt: skip
MODIFIERS: Final = ("declaration", "readonly", "defaultLibrary", "documentation")
LEGEND: Final = types.SemanticTokensLegend(token_types=list(TYPES), token_modifiers=list(MODIFIERS))

_OF_SYMBOL: Final = {
    "module": "namespace",
    "param": "variable",
    "record": "struct",
    "stage_type": "class",
    "stage": "variable",
    "workflow": "function",
    "target": "class",
    "argument": "parameter",
    "port": "property",
    "field": "property",
    "variable": "typeParameter",
    "member": "enumMember",
    "setting": "property",
    "section": "property",
    "value": "enumMember",
    "type": "type",
    "axis": "typeParameter",
    "function": "function",
}
_OF_TERMINAL: Final = {
    "INT": "number",
    "FLOAT": "number",
    "QUANTITY": "number",
    "STRING": "string",
    "DOC": "comment",
    "ARROW": "operator",
    "COMPARE": "operator",
    "PLUS": "operator",
    "MINUS": "operator",
    "STAR": "operator",
    "SLASH": "operator",
    "BANG": "operator",
    "AND": "operator",
    "OR": "operator",
    "DOTDOT": "operator",
    "_ASSIGN": "operator",
}
_READONLY: Final = frozenset(("param", "member", "value"))
_LIBRARY: Final = frozenset(("setting", "section", "value", "type", "axis", "function"))

Coloured = tuple[int, int, str, frozenset[str]]
"""Start, end, type, modifiers."""


def semantic_tokens(analysis: Analysis, wanted: types.Range | None = None) -> types.SemanticTokens:
    """The tokens of a document, or of a part of it, as the protocol encodes them."""
    lines = analysis.document.lines
    first, last = (lines.offset(wanted.start), lines.offset(wanted.end)) if wanted else (0, len(analysis.text))
    data: list[int] = []
    line = column = 0
    for start, end, kind, modifiers in coloured(analysis):
        if end < first or start > last:
            continue
        place = lines.position(start)
        length = lines.units(start, end)
        if place.line != line:
            column = 0
        bits = sum(1 << MODIFIERS.index(modifier) for modifier in modifiers)
        data += (place.line - line, place.character - column, length, TYPES.index(kind), bits)
        line, column = place.line, place.character
    return types.SemanticTokens(data=data)


def coloured(analysis: Analysis) -> list[Coloured]:
    """Every token that has a colour, in order."""
    names = {o.span.start: o for o in analysis.index.occurrences} if analysis.index is not None else {}
    found = [_token(token, names) for token in analysis.tokens]
    kept = [token for token in found if token is not None]
    kept += _comments(analysis)
    return sorted(kept)


def _comments(analysis: Analysis) -> Iterator[Coloured]:
    if analysis.tokens:
        for start, end in comments.places(analysis.text):
            yield start, end, "comment", frozenset()


def _token(token: Token, names: dict[int, Occurrence]) -> Coloured | None:
    if token.type == lexer.ERROR or not token.value.strip():
        return None
    found = names.get(token.start_pos)
    if token.type == "NAME" and found is not None and found.span.end == token.end_pos:
        symbol = found.symbol
        modifiers = {"declaration"} if found.declares else set[str]()
        modifiers |= {"readonly"} if symbol.kind in _READONLY else set()
        modifiers |= {"defaultLibrary"} if symbol.kind in _LIBRARY else set()
        return token.start_pos, token.end_pos, _OF_SYMBOL[symbol.kind], frozenset(modifiers)
    if token.value in KEYWORDS:
        return token.start_pos, token.end_pos, "keyword", frozenset()
    kind = _OF_TERMINAL.get(token.type)
    modifiers = frozenset(("documentation",)) if token.type == "DOC" else frozenset[str]()
    return (token.start_pos, token.end_pos, kind, modifiers) if kind is not None else None
