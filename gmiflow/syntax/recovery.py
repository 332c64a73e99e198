"""Parsing of a file that has syntax mistakes: as many diagnostics as there are mistakes, and the rest of the tree.

The tokens are cut into chunks at the top-level declarations; a mistake in one cannot spoil the next. In a
chunk, the statement with the mistake is left out and the chunk is parsed again. A name whose declaration
lost something is listed as broken, so that the checker does not complain about what is missing there.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import cast

from lark import Tree
from lark.exceptions import UnexpectedToken

from gmiflow.diagnostics import Diagnostic
from gmiflow.source import Source
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.mistake import Mistake
from gmiflow.syntax.mistakes import explain
from gmiflow.syntax.parser import Known, feed
from gmiflow.syntax.words import DECLARATION_KEYWORDS

MAX_MISTAKES = 100
"""After so many, a file is read no further: its remaining names count as broken."""
MAX_MISTAKES_PER_DECLARATION = 20
MAX_TOKENS_TO_REPAIR = 50_000
"""A longer declaration is given up after its first mistake: parsing it again and again would take minutes."""

_OPENERS = frozenset(("LBRACE", "LPAR", "LSQB"))
_CLOSERS = frozenset(("RBRACE", "RPAR", "RSQB"))
_DOCUMENTATION = frozenset(("DOC", "_NL"))


@dataclass(kw_only=True, slots=True)
class Recovered:
    """Result of `recover`.

    Attributes:
        trees: of the `item` rule, or declarations that were known.
        broken: names whose declaration lost something.
        diagnostics: one per mistake.
    """

    trees: list[Tree[Token] | ast.Declaration] = field(default_factory=list["Tree[Token] | ast.Declaration"])
    broken: set[str] = field(default_factory=set[str])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])


def recover(source: Source, tokens: list[Token], known: Known) -> Recovered:
    """Parse every declaration by itself, except those that are known."""
    result = Recovered()
    waiting = deque(_chunks(source.text, tokens))
    while waiting:
        chunk = waiting.popleft()
        before = len(result.diagnostics)
        if before >= MAX_MISTAKES:
            result.broken |= _declared_names(chunk)
            continue
        if (declaration := _known(chunk, known)) is not None:
            result.trees.append(declaration)
            continue
        tree, rest = _parse_chunk(source, chunk, result.diagnostics)
        if tree is not None:
            result.trees.append(tree)
        if rest:
            waiting.appendleft(rest)
        if len(result.diagnostics) > before:
            result.broken |= _declared_names(chunk)
    return result


def _known(chunk: list[Token], known: Known) -> ast.Declaration | None:
    """The declaration that a chunk is, if that is known: they start together, and the chunk ends behind its last token.

    Blanks and comments may follow in the chunk, and must before the next declaration.
    """
    declaration, end = known.get(chunk[0].start_pos, (None, 0))
    return declaration if declaration is not None and declaration.span.end <= chunk[-1].end_pos <= end else None


def _chunks(text: str, tokens: list[Token]) -> list[list[Token]]:
    """Cut before every top-level declaration, with its documentation comment.

    A declaration keyword in column 1, or what may be a misspelt one, starts a chunk even inside brackets: then the
    bracket was never closed.
    """
    starts: list[int] = []
    depth = 0
    for index, token in enumerate(tokens):
        if token.type != "_NL" and _starts_chunk(text, tokens, index, depth):
            starts.append(index - _docs_before(tokens, index))
            depth = 0
        depth = max(0, depth + (token.type in _OPENERS) - (token.type in _CLOSERS))
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    return [tokens[start:end] for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True) if start < end]


def _starts_chunk(text: str, tokens: list[Token], index: int, depth: int) -> bool:
    token = tokens[index]
    start = token.start_pos
    before = tokens[index - 1].start_pos if index else 0
    if index and "\n" not in text[before:start]:
        return False
    keyword = token.value in DECLARATION_KEYWORDS
    column_1 = start == 0 or text[start - 1] == "\n"
    if depth == 0:
        return (keyword or column_1) and token.type not in _CLOSERS and token.type not in ("LBRACE", "DOC")
    two_names = token.type == "NAME" and index + 1 < len(tokens) and tokens[index + 1].type == "NAME"
    return column_1 and (two_names or (keyword and token.value != "require"))  # nothing else has two names in a row


def _docs_before(tokens: list[Token], index: int) -> int:
    """Number of tokens before ``index`` that document it; an unclosed bracket before them hid their line ends."""
    first = index
    while first > 0 and tokens[first - 1].type in _DOCUMENTATION:
        first -= 1
    while first < index and tokens[first].type == "_NL":
        first += 1
    return index - first


def _parse_chunk(
    source: Source, chunk: list[Token], diagnostics: list[Diagnostic]
) -> tuple[Tree[Token] | None, list[Token]]:
    """Parse one declaration; after a mistake, blank the statement that has it and parse again.

    Returns:
        Its tree, None when it cannot be saved; and the tokens after its end: an unclosed bracket in a statement that
        was blanked had hidden that another declaration starts there.
    """
    offset, end = chunk[0].start_pos, chunk[-1].end_pos
    text = source.text[offset:end]
    tokens = lexer.tokens(text, offset)  # again: an unclosed bracket before it hid its line ends
    for _ in range(MAX_MISTAKES_PER_DECLARATION):
        try:
            return feed(tokens, "item"), []
        except UnexpectedToken as error:
            index = _index_of(tokens, cast("Token", error.token))
            accepts = frozenset(cast("set[str]", error.interactive_parser.accepts()))
            if not accepts:
                return feed(tokens[:index], "item"), tokens[index:]
            diagnostics.append(explain(Mistake(source=source, tokens=tokens, index=index, accepts=accepts)))
            wrong = _statement_around(source.text, tokens, index)
            if wrong is None or len(tokens) > MAX_TOKENS_TO_REPAIR:
                return None, []
            start, stop = wrong[0] - offset, wrong[1] - offset
            text = text[:start] + re.sub(r"[^\r\n]", " ", text[start:stop]) + text[stop:]
            tokens = lexer.tokens(text, offset)
    return None, []


def _index_of(tokens: list[Token], token: Token) -> int:
    """Index of the offending token, ``len(tokens)`` for the end of the text."""
    if token.type == "$END":
        return len(tokens)
    return next(i for i, candidate in enumerate(tokens) if candidate is token)


def _statement_around(text: str, tokens: list[Token], index: int) -> tuple[int, int] | None:
    """Where the statement with the mistake starts and stops, or None when the declaration cannot be saved."""
    opener = _enclosing_brace(tokens, index)
    if opener is None:
        if index < len(tokens) and index and tokens[index - 1].type == "RBRACE":  # the declaration was complete
            return tokens[index].start_pos, tokens[-1].end_pos
        return None
    start = _statement_start(tokens, opener, index)
    end = _statement_end(text, tokens, start, index)
    if end <= start or end >= len(tokens) or not any(token.type == "RBRACE" for token in tokens[end:]):
        return None
    if tokens[end].type == "COMMA":
        end += 1
    return tokens[start].start_pos, tokens[end - 1].end_pos


def _enclosing_brace(tokens: list[Token], index: int) -> int | None:
    """Index of the innermost `{` that is open at ``index``."""
    stack: list[int] = []
    for i, token in enumerate(tokens[:index]):
        if token.type == "LBRACE":
            stack.append(i)
        elif token.type == "RBRACE" and stack:
            stack.pop()
    return stack[-1] if stack else None


def _statement_start(tokens: list[Token], opener: int, index: int) -> int:
    """Index of the first token of the statement, its documentation comment included."""
    start, depth = opener + 1, 0
    for i in range(opener + 1, min(index, len(tokens))):
        kind = tokens[i].type
        depth += (kind in _OPENERS) - (kind in _CLOSERS)
        documents = kind == "_NL" and tokens[i - 1].type == "DOC"
        if depth == 0 and kind in ("_NL", "COMMA") and not documents:
            start = i + 1
    return start


def _statement_end(text: str, tokens: list[Token], start: int, index: int) -> int:
    """Index of the token after the statement: a separator, the closing brace, or the first of a later line."""
    braces = 0
    for i in range(start, len(tokens)):
        token = tokens[i]
        if token.type == "RBRACE":
            braces -= 1
            if braces < 0:
                return i
        elif token.type == "LBRACE":
            braces += 1
        elif i >= index and i > start and braces <= 0:
            gap = text[tokens[i - 1].end_pos : token.start_pos]
            if token.type == "_NL" or "\n" in gap:
                return i
    return len(tokens)


def _declared_names(chunk: list[Token]) -> frozenset[str]:
    """Names that the declaration would have introduced."""
    tokens = [token for token in chunk if token.type not in ("DOC", "_NL")]
    if not tokens:
        return frozenset()
    if tokens[0].type == "_IMPORT" or tokens[0].value == "from":
        names = [token.value for token in tokens if token.type == "NAME"]
        return frozenset(names[-1:])
    return frozenset(token.value for token in tokens[:3] if token.type == "NAME")
