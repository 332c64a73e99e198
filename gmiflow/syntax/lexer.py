"""Text to tokens, with the terminals of the grammar.

One regular expression made from the grammar's terminals in the order that Lark's basic lexer tries them;
that lexer gives the same tokens (a test compares them) but takes twice as long, counts lines that nobody
asks for, and stops at the first character it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from lark import Lark

from gmiflow.syntax import tables

MAX_NESTING = 100
MAX_TOKENS = 250_000
"""Five times what a workflow of 1,000 stages takes; more would fill the memory before anything can be said."""
ERROR = "ERROR"
"""Type of a token that stands for characters that no terminal matches."""

_OPENERS = frozenset(("LPAR", "LSQB", "LBRACE"))
_CLOSERS = frozenset(("RPAR", "RSQB", "RBRACE"))
_BLANKS = re.compile(r"[ \t]*")
_BEFORE_STATEMENT = frozenset(("_NL", "LBRACE", "COMMA"))


@cache
def parser() -> Lark:
    """The parser of this process. Parsing keeps no state in it, so threads may share it."""
    return tables.load()


@dataclass(frozen=True, slots=True)
class _Terminals:
    pattern: re.Pattern[str]
    ignored: frozenset[str]


@cache
def _terminals() -> _Terminals:
    lark = parser()
    ordered = sorted(
        lark.terminals,
        key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name),
    )
    # Most tokens are names, and a name is nothing else; blanks before a token cost no match of their own.
    ordered.sort(key=lambda t: t.name != "NAME")
    pattern = "|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in ordered if t.name != "SPACE")
    return _Terminals(re.compile(f"[ \\t]*(?:{pattern})"), frozenset(lark.lexer_conf.ignore))


class TooDeep(Exception):
    """Brackets are nested deeper than `MAX_NESTING`; ``token`` is the bracket that is one too many."""

    def __init__(self, token: Token) -> None:
        super().__init__("nested too deeply")
        self.token = token


class TooLong(Exception):
    """The text has more than `MAX_TOKENS` tokens."""


class Token:
    """A token: its terminal, its characters, and where they are.

    The parser needs no more than this, and making one of Lark's tokens takes four times as long.
    """

    __slots__ = ("end_pos", "start_pos", "type", "value")

    def __init__(self, type: str, value: str, start_pos: int, end_pos: int) -> None:
        self.type = type
        self.value = value
        self.start_pos = start_pos
        self.end_pos = end_pos

    def __repr__(self) -> str:
        return f"Token({self.type}, {self.value!r})"


def raw_tokens(text: str, offset: int = 0) -> list[Token]:
    """Every token that the grammar does not ignore; runs of unknown characters become `ERROR` tokens.

    Args:
        text: to lex.
        offset: added to the tokens' positions.

    Raises:
        TooLong: there are more than `MAX_TOKENS`.
    """
    terminals = _terminals()
    match, ignored = terminals.pattern.match, terminals.ignored
    found: list[Token] = []
    position, length = 0, len(text)
    while position < length:
        matched = match(text, position)
        if matched is not None:
            kind = matched.lastgroup or ERROR
            end = matched.end()
            if kind not in ignored:
                found.append(Token(kind, matched.group(kind), matched.start(kind) + offset, end + offset))
        else:
            position = _BLANKS.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            if position == length:
                break
            end = _unknown_end(text, position)
            found.append(Token(ERROR, text[position:end], position + offset, end + offset))
        if len(found) > MAX_TOKENS:
            raise TooLong
        position = end
    return found


def tokens(text: str, offset: int = 0) -> list[Token]:
    """The tokens that the parser sees: newlines that end nothing are dropped, and the last line is ended.

    Args:
        text: to lex.
        offset: added to the tokens' positions.

    A newline ends a statement unless it is inside () or [], or follows `{`, `,` or another newline.

    Raises:
        TooDeep: brackets nested deeper than `MAX_NESTING`.
        TooLong: there are more than `MAX_TOKENS` tokens.
    """
    return significant(raw_tokens(text, offset), offset + len(text))


def significant(raw: Iterable[Token], end: int) -> list[Token]:
    """The tokens that the parser sees, of all those of a text that ends at ``end``; see `tokens`."""
    kept: list[Token] = []
    open_brackets: list[str] = []
    last = "_NL"
    for token in raw:
        kind = token.type
        if kind == "_NL":
            if last in _BEFORE_STATEMENT or (open_brackets and open_brackets[-1] != "LBRACE"):
                continue
        elif kind in _OPENERS:
            open_brackets.append(kind)
            if len(open_brackets) > MAX_NESTING:
                raise TooDeep(token)
        elif kind in _CLOSERS and open_brackets:
            open_brackets.pop()
        kept.append(token)
        last = kind
    if last != "_NL":
        kept.append(Token("_NL", "", end, end))
    return kept


def _unknown_end(text: str, position: int) -> int:
    """Where a run of unknown characters ends: a string to the end of its line, a number to the end of the word."""
    if text[position] == '"':
        newline = text.find("\n", position)
        return len(text) if newline < 0 else newline - (text[newline - 1] == "\r")
    if text[position].isdecimal():
        return re.compile(r"\w+").match(text, position).end()  # type: ignore[union-attr]  # a digit is a word
    return position + 1
