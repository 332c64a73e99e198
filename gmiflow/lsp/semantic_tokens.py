"""Semantic tokens: the compiler's tokens, coloured by what their names stand for."""

from __future__ import annotations

from functools import cache
from typing import Final

from lsprotocol import types

from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.symbols import Occurrence
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

_NUMBERS: Final = {name: number for number, name in enumerate(TYPES)}
_NONE: Final[frozenset[str]] = frozenset()
_DOCUMENTS: Final = frozenset(("documentation",))

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
        here, character = lines.place(start)
        data += (here - line, character - column if here == line else character)
        data += (lines.units(start, end), _NUMBERS[kind], _bits(modifiers))
        line, column = here, character
    return types.SemanticTokens(data=data)


@cache
def _bits(modifiers: frozenset[str]) -> int:
    return sum(1 << MODIFIERS.index(modifier) for modifier in modifiers)


def coloured(analysis: Analysis) -> list[Coloured]:
    """Every token that has a colour, in order."""
    names = {o.span.start: o for o in analysis.index.occurrences} if analysis.index is not None else {}
    found = [_token(token, names) for token in analysis.tokens]
    kept = [token for token in found if token is not None]
    kept += [(start, end, "comment", _NONE) for start, end in analysis.comments]
    return sorted(kept, key=lambda token: token[0])


def _token(token: Token, names: dict[int, Occurrence]) -> Coloured | None:
    start, end = token.start_pos, token.end_pos
    if token.type == "NAME":
        found = names.get(start)
        if found is None or found.span.end != end:
            return None
        kind = found.symbol.kind
        return start, end, _OF_SYMBOL[kind], _modifiers(kind, found.declares)
    if token.value in KEYWORDS:
        return start, end, "keyword", _NONE
    kind = _OF_TERMINAL.get(token.type)
    return (start, end, kind, _DOCUMENTS if token.type == "DOC" else _NONE) if kind is not None else None


@cache
def _modifiers(kind: str, declares: bool) -> frozenset[str]:
    marks = {"declaration": declares, "readonly": kind in _READONLY, "defaultLibrary": kind in _LIBRARY}
    return frozenset(mark for mark, is_set in marks.items() if is_set)
