"""Pieces of formatted text: what a statement is made of before it is laid out in lines.

A statement is a sequence of `Word`, `SPACE`, `Brackets` and `Block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from gmiflow.syntax.comments import NOTHING, Before


class Space(Enum):
    """A space that disappears where a line is broken.

    Inside brackets, where a line end means nothing, a long line is broken at the `CONDITION`, and at the
    `OPERAND`s if that is not enough.
    """

    ONE = "one"
    CONDITION = "in front of where"
    OPERAND = "in front of && and ||"


SPACE: Final = Space.ONE


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """A token with the comments around it that belong to nothing larger.

    Attributes:
        behind: comment on the same line, after the token.
    """

    text: str
    before: Before = NOTHING
    behind: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An element of brackets."""

    pieces: tuple[Piece, ...]
    before: Before = NOTHING
    behind: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Brackets:
    """`(a, b)`, `[a, b]` or `.{a, b}`.

    Attributes:
        fill: broken, as many elements as fit stand on a line.
    """

    open: Word
    items: tuple[Item, ...]
    close: Word
    fill: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A statement or declaration: cells that are aligned with those of the rows around it, then the rest.

    Attributes:
        kind: rows of one kind form a table.
        cells: aligned columns in front; they fit on one line and hold no comments.
        apart: a blank line must stand before it.
    """

    kind: str
    cells: tuple[str, ...]
    rest: tuple[Piece, ...]
    before: Before = NOTHING
    behind: str | None = None
    apart: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Statements in braces.

    Attributes:
        body: never on one line, unless it is empty.
    """

    open: Word
    rows: tuple[Row, ...]
    close: Word
    body: bool = False


Piece: TypeAlias = Word | Space | Brackets | Block


def flat(pieces: Sequence[Piece]) -> str | None:
    """The pieces on one line, or None when a comment or a body forbids it."""
    parts: list[str] = []
    for piece in pieces:
        match piece:
            case Space():
                parts.append(" ")
                continue
            case Word():
                text = None if piece.before.lines or piece.behind else piece.text
            case Brackets():
                text = _flat_brackets(piece)
            case Block():
                text = _flat_block(piece)
        if text is None:
            return None
        parts.append(text)
    return "".join(parts)


def _flat_brackets(brackets: Brackets) -> str | None:
    if any(item.before.lines or item.behind for item in brackets.items):
        return None
    elements = all_of(flat(item.pieces) for item in brackets.items)
    ends = flat((brackets.open, brackets.close))
    if elements is None or ends is None:
        return None
    return brackets.open.text + ", ".join(elements) + brackets.close.text


def _flat_block(block: Block) -> str | None:
    if any(row.before.lines or row.behind for row in block.rows) or (block.body and block.rows):
        return None
    elements = all_of(None if (rest := flat(row.rest)) is None else " ".join((*row.cells, rest)) for row in block.rows)
    if elements is None or flat((block.open, block.close)) is None:
        return None
    return "{ " + ", ".join(elements) + " }" if elements else "{}"


def all_of(texts: Iterator[str | None]) -> list[str] | None:
    """The texts, or None when one of them is None."""
    found: list[str] = []
    for text in texts:
        if text is None:
            return None
        found.append(text)
    return found
