"""What is written around a place, read off the tokens: there is more often no tree, while something is being typed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise, takewhile

from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.context import OPENERS, Context, declaration_start
from gmiflow.lsp.symbols import is_size
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import DECLARATION_KEYWORDS

_CLOSERS = frozenset(OPENERS.values())


def declaration_tokens(analysis: Analysis, offset: int) -> list[Token]:
    """The tokens of the declaration around an offset, up to the next word in column 1 that starts one."""
    first = declaration_start(analysis.text, offset)
    found: list[Token] = []
    for token in analysis.tokens[bisect_left(analysis.tokens, first, key=lambda token: token.start_pos) :]:
        if token.start_pos >= max(offset, first + 1) and _starts_declaration(analysis.text, token):
            break
        found.append(token)
    return found


def assigned(analysis: Analysis, context: Context) -> frozenset[str]:
    """Settings, arguments and sections in the innermost bracket, in front of the place and behind it.

    The name at the place itself is left out: it is the one that is being written.
    """
    tokens = declaration_tokens(analysis, context.start)
    inside = _behind_opener(tokens, context.start)
    found: set[str] = set()
    depth = 0
    for token, after in pairwise(inside):
        depth += (token.type in OPENERS) - (token.type in _CLOSERS)
        if depth < 0:
            break
        if depth == 0 and token.type == "NAME" and after.type in ("_ASSIGN", "LBRACE"):
            found |= {token.value} if token.start_pos != context.start else set()
    return frozenset(found)


def parameters(analysis: Analysis, context: Context) -> dict[str, str]:
    """Parameters that the declaration around the place declares, to how they are written on one line.

    For `param x : int`, whose `where` is about itself, that is `x`.
    """
    tokens = declaration_tokens(analysis, context.start)
    if len(tokens) > 2 and tokens[0].value == "param" and tokens[1].type == "NAME":
        parts = [list(takewhile(lambda token: token.type != "_NL", tokens[1:]))]
    elif len(tokens) > 3 and tokens[2].type == "LPAR":
        parts = list(_parts(tokens[3:]))
    else:
        return {}
    return {
        part[0].value: " ".join(analysis.text[part[0].start_pos : part[-1].end_pos].split())
        for part in parts
        if len(part) > 1 and part[0].type == "NAME" and part[1].type == "COLON"
    }


def size_names(analysis: Analysis, context: Context) -> list[str]:
    """Sizes with capital names in the shapes of the declaration, but for the one at the place."""
    found: dict[str, None] = {}
    in_shape = 0
    for token in declaration_tokens(analysis, context.start):
        in_shape += (token.type == "LSQB") - (token.type == "RSQB")
        if in_shape > 0 and token.type == "NAME" and is_size(token.value) and token.start_pos != context.start:
            found[token.value] = None
    return list(found)


def _starts_declaration(text: str, token: Token) -> bool:
    return token.value in DECLARATION_KEYWORDS and (token.start_pos == 0 or text[token.start_pos - 1] in "\r\n")


def _behind_opener(tokens: list[Token], offset: int) -> list[Token]:
    """The tokens behind the bracket that is open at an offset, none where no bracket is open."""
    depth = 0
    for index in range(bisect_left(tokens, offset, key=lambda token: token.start_pos) - 1, -1, -1):
        kind = tokens[index].type
        if kind in OPENERS and depth == 0:
            return tokens[index + 1 :]
        depth += (kind in _CLOSERS) - (kind in OPENERS)
    return []


def _parts(tokens: list[Token]) -> Iterator[list[Token]]:
    """What stands between the commas of a bracket whose opener comes before these tokens."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.type in OPENERS) - (token.type in _CLOSERS)
        if depth < 0:
            break
        if depth == 0 and token.type == "COMMA":
            yield part
            part = []
        elif token.type not in ("_NL", "DOC"):
            part.append(token)
    yield part
