"""Parsing of a text that differs little from one parsed before: declarations that did not change keep their trees.

The text is cut into pieces at the lines that start with the keyword of a declaration, or with the documentation above
it. A piece that the text before had, too, is not lexed and parsed again; its tree is moved. The result is that of
`parser.parse`, for these reasons:

- The keywords are reserved, and nothing but a declaration starts with one (`require`, which bodies have, is no
  place to cut). Hence in a file without mistakes every piece is a sequence of declarations.
- No token crosses a cut, and after a whole declaration neither the lexer nor the parser remembers anything. Hence
  a file whose pieces have no mistakes has none, and its declarations are theirs.
- With mistakes, `recovery.recover` reads each declaration by itself anyway; it is told which ones are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final, cast

from lark import Tree
from lark.exceptions import UnexpectedToken

from gmiflow.diagnostics import Diagnostic
from gmiflow.source import Source, Span
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.build import Builder
from gmiflow.syntax.build_expressions import ExpressionTooDeep
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.moving import moved
from gmiflow.syntax.parser import MAX_DECLARATIONS, Known, Parsed, Piece, feed, parse, wrong_escapes
from gmiflow.syntax.words import DECLARATION_KEYWORDS

_KEYWORDS: Final = "|".join(sorted(DECLARATION_KEYWORDS - {"require"}))
_LINE: Final = re.compile(
    rf"^(?:(?P<keyword>(?:{_KEYWORDS})\b)|(?P<documentation>///(?!/))|(?P<indented>[ \t]+///(?!/))|[ \t]*(?!//)\S)",
    re.MULTILINE,
)
"""The start of a line that is neither blank nor a comment."""


def parse_again(source: Source, before: Parsed | None) -> Parsed:
    """Parse a file of which an earlier version was parsed.

    Args:
        source: the file now.
        before: a result of this function for a text like it; None the first time.

    Returns:
        The same as `parser.parse`, and the pieces for the next time.
    """
    if len(source.text) > lexer.MAX_TOKENS:  # the limit is for a file, and could be passed
        return parse(source)
    known = _by_text(before)
    pieces: list[Piece] = []
    diagnostics: list[Diagnostic] = []
    mistaken = False
    for start, end in pairwise(_cuts(source.text)):
        old = known.get(source.text[start:end])
        try:
            piece = _moved(old, source, start) if old is not None else _parsed(source, start, end, diagnostics)
        except (lexer.TooDeep, ExpressionTooDeep):
            return parse(source)
        mistaken = mistaken or piece is None
        pieces += [piece] if piece is not None else []
    items = tuple([item for piece in pieces for item in piece.items])
    if mistaken or len(items) > MAX_DECLARATIONS:
        parsed = parse(source, _by_start(pieces) if mistaken else None)
    else:
        module = ast.Module(items=items, span=Span(source, 0, len(source.text)))
        parsed = Parsed(source=source, module=module, diagnostics=tuple(diagnostics))
    return replace(parsed, pieces=tuple(pieces))


def _cuts(text: str) -> Iterator[int]:
    """Where pieces start, and the end of the text."""
    yield 0
    documented: int | None = None
    for line in _LINE.finditer(text):
        kind = line.lastgroup
        if kind == "keyword":
            place = line.start() if documented is None else documented
            if place > 0:
                yield place
        if kind in ("documentation", "indented"):
            if documented is None:
                documented = line.start() if kind == "documentation" else 0  # the start is no place to cut again
        else:
            documented = None
    yield len(text)


def _parsed(source: Source, start: int, end: int, diagnostics: list[Diagnostic]) -> Piece | None:
    """Parse a piece, None when there is a mistake in it."""
    tokens = lexer.tokens(source.text[start:end], start)
    if end < len(source.text) and tokens and not tokens[-1].value:  # the end of its last line ends nothing in the file
        return None
    try:
        trees = cast("list[Tree[Token]]", feed(tokens, "start").children)
    except UnexpectedToken:
        return None
    builder = Builder(source)
    wrong = wrong_escapes(source, tokens)
    diagnostics += wrong
    items = tuple([builder.declaration(tree) for tree in trees])
    return Piece(source=source, start=start, end=end, items=items, reusable=not wrong)


def _moved(piece: Piece, source: Source, start: int) -> Piece:
    distance = start - piece.start
    items = tuple([moved(item, source, distance) for item in piece.items])
    return Piece(source=source, start=start, end=piece.end + distance, items=items)


def _by_text(before: Parsed | None) -> dict[str, Piece]:
    """The pieces that may be used again."""
    pieces = before.pieces if before is not None else ()
    return {piece.source.text[piece.start : piece.end]: piece for piece in pieces if piece.reusable}


def _by_start(pieces: list[Piece]) -> Known:
    """Pieces of one declaration, by the offset of its first token."""
    found: Known = {}
    for piece in pieces:
        if len(piece.items) == 1:
            item = piece.items[0]
            found[(item.doc or item).span.start] = (item, piece.end)
    return found
