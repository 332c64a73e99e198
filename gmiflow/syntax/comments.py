"""Where the comments of a file stand, relative to its tokens.

Everything between two tokens is white space, comments and documentation. `Comments` hands each of them
out once: the lines before a token, and the comment behind it on its line. What nobody asked for is
still there at the end, so that the formatter can tell that it lost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gmiflow.syntax import lexer

_LAYOUT: Final = frozenset(("_NL", "DOC"))
_COMMENT: Final = re.compile(r"//[^\r\n]*")


@dataclass(frozen=True, slots=True)
class CommentLine:
    """A comment on a line of its own.

    Attributes:
        text: in canonical form.
        documents: a `///` line.
        blank: a blank line stands before it.
    """

    text: str
    documents: bool
    blank: bool


@dataclass(frozen=True, slots=True)
class Before:
    """What stands before a token: whole-line comments, and whether a blank line follows them."""

    lines: tuple[CommentLine, ...] = ()
    blank: bool = False


NOTHING: Final = Before()


class Comments:
    """The comments of one text, by the offset of the token that they stand before or behind.

    Args:
        text: of the file.
        tokens: its `raw_tokens`.
    """

    def __init__(self, text: str, tokens: Iterable[lexer.Token]) -> None:
        self._before: dict[int, Before] = {}
        self._behind: dict[int, str] = {}
        previous, end = -1, 0
        for token in tokens:
            if token.type not in _LAYOUT:
                start = token.start_pos
                self._read_gap(text[end:start], previous, start)
                previous, end = start, token.end_pos
        self._read_gap(text[end:], previous, len(text))

    def _read_gap(self, gap: str, previous: int, following: int) -> None:
        if "/" not in gap and "\n" not in gap:
            return
        first, *rest = (part.strip(" \t\r") for part in gap.split("\n"))
        lines: list[CommentLine] = []
        if first and previous >= 0 and not _documents(first):
            self._behind[previous] = canonical(first)
        elif first:
            lines.append(CommentLine(canonical(first), _documents(first), blank=False))
        blank = False
        for number, part in enumerate(rest, 1):
            if part:
                lines.append(CommentLine(canonical(part), _documents(part), blank))
                blank = False
            elif number < len(rest):
                blank = True
        if lines or blank:
            self._before[following] = _attached(Before(tuple(lines), blank))

    def before(self, offset: int) -> Before:
        """Take what stands before the token at ``offset`` (the length of the text for its end)."""
        return self._before.pop(offset, NOTHING)

    def behind(self, offset: int) -> str | None:
        """Take the comment behind the token at ``offset``, on its line."""
        return self._behind.pop(offset, None)

    def take_all(self) -> list[str]:
        """Take everything that is left, in the order of the text."""
        found: list[str] = []
        for offset in sorted({*self._behind, *self._before}):
            found += [line.text for line in self.before(offset).lines]
            found += [behind] if (behind := self.behind(offset)) else []
        return found

    @property
    def left(self) -> tuple[str, ...]:
        """Comments that nobody took."""
        return (*self._behind.values(), *(line.text for before in self._before.values() for line in before.lines))


def canonical(comment: str) -> str:
    """A comment as the formatter writes it: one space after the slashes, none at the end.

    Rows of slashes and comments that start with a sign (`//!`, `//-----`) keep their look.
    """
    if _documents(comment):
        text = comment[3:].removeprefix(" ").rstrip()
        return f"/// {text}" if text else "///"
    text = comment[2:]
    return f"// {text}" if text[:1].isalnum() else comment


def texts(text: str, tokens: Iterable[lexer.Token] | None = None) -> list[str]:
    """Every comment and documentation line of a text, canonical, in order.

    Args:
        text: of the file.
        tokens: its `raw_tokens`, where they are known already.
    """
    return Comments(text, lexer.raw_tokens(text) if tokens is None else tokens).take_all()


def _documents(comment: str) -> bool:
    return comment.startswith("///") and not comment.startswith("////")


def _attached(before: Before) -> Before:
    """Without blank lines between documentation and what it documents."""
    lines: list[CommentLine] = []
    documented = False
    for line in before.lines:
        lines.append(replace(line, blank=line.blank and not documented))
        documented = documented or line.documents
    return Before(tuple(lines), before.blank and not documented)


def places(text: str, tokens: Iterable[lexer.Token] | None = None) -> Iterator[tuple[int, int]]:
    """Start and end of every `//` comment; documentation lines are not among them.

    Args:
        text: of the file.
        tokens: its `raw_tokens`, where they are known already.
    """
    end = 0
    for token in lexer.raw_tokens(text) if tokens is None else tokens:
        if token.type not in _LAYOUT:
            start = token.start_pos
            yield from _places_in_gap(text, end, start)
            end = token.end_pos
    yield from _places_in_gap(text, end, len(text))


def _places_in_gap(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for found in _COMMENT.finditer(text, start, end):
        if not _documents(found.group()):
            yield found.span()
