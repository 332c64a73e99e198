"""Hover: what a name, keyword, number or unit means here."""

from __future__ import annotations

from bisect import bisect_right

from lsprotocol import types

from gmiflow.lsp import vocabulary
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.describe import markdown
from gmiflow.lsp.places import declaration_at
from gmiflow.lsp.symbols import Occurrence
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import DIMENSIONS, UNITS


def hover(analysis: Analysis, position: types.Position) -> types.Hover | None:
    """What stands at a position, in Markdown."""
    offset = analysis.document.lines.offset(position)
    found = analysis.index.at(offset) if analysis.index is not None else None
    if found is not None:
        return _answer(analysis, _of_name(analysis, found), found.span.start, found.span.end)
    token = token_at(analysis.tokens, offset)
    text = _of_token(token) if token is not None else None
    return _answer(analysis, text, token.start_pos, token.end_pos) if token is not None and text is not None else None


def token_at(tokens: list[Token], offset: int) -> Token | None:
    """The token around an offset, or the one that ends there."""
    index = bisect_right(tokens, offset, key=lambda token: token.start_pos) - 1
    if index < 0:
        return None
    token = tokens[index]
    return token if token.start_pos <= offset <= token.end_pos else None


def _answer(analysis: Analysis, text: str, start: int, end: int) -> types.Hover:
    contents = types.MarkupContent(kind=types.MarkupKind.Markdown, value=text)
    return types.Hover(contents=contents, range=analysis.document.lines.range(start, end))


def _of_name(analysis: Analysis, found: Occurrence) -> str:
    around = declaration_at(analysis, found.span.start)
    stage = found.stage
    if stage is None and isinstance(around, ast.StageInstance):
        stage = around.name.text
    workflow = around.name.text if isinstance(around, ast.Workflow) else None
    return markdown(analysis, found.symbol, stage, workflow)


def _of_token(token: Token) -> str | None:
    """A keyword, or a quantity in its base unit."""
    if token.value in vocabulary.KEYWORDS:
        return f"```gmi\n{token.value}\n```\n\n{vocabulary.KEYWORDS[token.value]}"
    if token.type != "QUANTITY":
        return None
    unit = token.value.lstrip("0123456789.eE+- \t") or token.value
    number = token.value[: len(token.value) - len(unit)]
    if unit not in UNITS:
        return None
    dimension, factor = UNITS[unit]
    return f"`{token.value}` = {float(number) * factor:.15g} ({DIMENSIONS[dimension]})"
