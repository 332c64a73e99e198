"""Layout of pieces in lines.

Brackets and blocks stay on their line while they fit and hold no comment, and are broken one element per line
otherwise. An element that is still too long is broken in front of its `where`, then in front of each `&&` and `||`;
outside of brackets, where that would end the statement, a condition stays on its line. Rows of the same kind stand
in columns, gofmt's way: a blank line ends a table, a comment does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from gmiflow.syntax.comments import Before
from gmiflow.syntax.pieces import Block, Brackets, Item, Piece, Row, Space, Word, all_of, flat

WIDTH: Final = 100
"""Longest line, where a line can be broken at all."""
INDENT: Final = 2


class Writer:
    """Writes pieces and rows into lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._line = ""
        self._indent = 0
        self._comment_ends_line = False

    # Lines

    def start(self, indent: int) -> None:
        """Begin a line."""
        self.end()
        self._indent = indent

    def end(self) -> None:
        """Finish the line, if anything stands on it."""
        if self._line:
            self.lines.append(" " * self._indent + self._line.rstrip(" "))
        self._line = ""
        self._comment_ends_line = False

    def blank(self) -> None:
        """Leave a line blank, but never two, nor the first."""
        self.end()
        if self.lines and self.lines[-1]:
            self.lines.append("")

    @property
    def _column(self) -> int:
        return self._indent + len(self._line)

    def _comment_behind(self, comment: str | None) -> None:
        if comment:
            self._line = f"{self._line}  {comment}"
            self._comment_ends_line = True

    def comments(self, before: Before, indent: int, *, first: bool = False) -> None:
        """Comment lines, each on a line of its own; before the ``first`` element stands no blank line."""
        for index, line in enumerate(before.lines):
            if line.blank and not (first and index == 0):
                self.blank()
            self.start(indent)
            self._line = line.text
        self.end()
        if before.blank and not (first and not before.lines):
            self.blank()

    # Pieces

    def write(self, pieces: Sequence[Piece], continuation: int, reserve: int = 0) -> None:
        """Write pieces, broken where they do not fit.

        Args:
            pieces: what to write.
            continuation: indentation of a line that a comment forces inside the pieces.
            reserve: columns that what follows needs on the last line.
        """
        condition = False
        for index, piece in enumerate(pieces):
            match piece:
                case Space():
                    self._line += "" if self._comment_ends_line else " "
                    condition = condition or piece is Space.CONDITION
                case Word():
                    self._word(piece, continuation)
                case Brackets() | Block():
                    if self._comment_ends_line:
                        self.start(continuation)
                    text = flat((piece,))
                    called = condition and isinstance(pieces[index - 1], Word)
                    kept = called and text is not None and len(text) <= WIDTH - continuation
                    if text is None or not (kept or self._fits(text, pieces[index + 1 :], reserve)):
                        self._broken(piece, continuation)
                    else:
                        self._word(Word(text=text), continuation)

    def _fits(self, text: str, following: Sequence[Piece], reserve: int) -> bool:
        if text in ("()", "[]", "{}"):
            return True
        room = WIDTH - self._column
        return len(text) + _length_to_break(following, reserve) <= room

    def _word(self, word: Word, continuation: int) -> None:
        if word.before.lines:
            self.comments(_without_blanks(word.before), continuation)
        if self._comment_ends_line or word.before.lines:
            self.start(continuation)
        self._line += word.text
        self._comment_behind(word.behind)

    def _broken(self, piece: Brackets | Block, continuation: int) -> None:
        self._word(Word(text=piece.open.text, before=piece.open.before), continuation)
        outer = self._indent
        inner = outer + INDENT
        self._comment_behind(piece.open.behind)
        self.end()
        if isinstance(piece, Block):
            self.rows(piece.rows, inner)
        elif (texts := _fillable(piece, WIDTH - inner)) is not None:
            self._filled(texts, inner)
        else:
            self._one_by_one(piece.items, inner)
        self.comments(Before(piece.close.before.lines), inner, first=not _count(piece))
        self.start(outer)
        self._line = piece.close.text
        self._comment_behind(piece.close.behind)

    def _one_by_one(self, items: Sequence[Item], indent: int) -> None:
        for index, item in enumerate(items):
            self.comments(item.before, indent, first=index == 0)
            self.start(indent)
            comma = "," if index < len(items) - 1 else ""
            self._element(item.pieces, indent + INDENT, reserve=len(comma))
            self._line += comma
            self._comment_behind(item.behind)
            self.end()

    def _element(self, pieces: Sequence[Piece], continuation: int, reserve: int) -> None:
        """Write an element of brackets; if it is too long for its line, in several where it has a condition."""
        text = flat(pieces)
        if text is not None and not self._fits(text, (), reserve):
            for space in (Space.CONDITION, Space.OPERAND):
                if space in pieces:
                    first, *rest = _split(pieces, space)
                    self.write(first, continuation, reserve if not rest else 0)
                    for index, part in enumerate(rest):
                        self.start(continuation)
                        self._element(part, continuation + INDENT, reserve if index == len(rest) - 1 else 0)
                    return
        self.write(pieces, continuation, reserve)

    def _filled(self, texts: Sequence[str], indent: int) -> None:
        self.start(indent)
        for text in texts:
            if self._line and self._column + 1 + len(text) > WIDTH:
                self.start(indent)
            self._line += f" {text}" if self._line else text
        self.end()

    # Rows

    def rows(self, rows: Sequence[Row], indent: int) -> None:
        """Statements one below the other, in tables."""
        behind: list[tuple[int, str]] = []
        for table in _tables(rows):
            widths = [max(len(cell) for cell in column) for column in _columns(table)]
            for row in table:
                first = row is rows[0]
                if row.apart and not first and not _has_blank(row.before):
                    self.blank()
                self.comments(row.before, indent, first=first)
                self.start(indent)
                self._line = "".join(f"{cell:<{width}} " for cell, width in zip(row.cells, widths, strict=False))
                self.write(row.rest, indent + INDENT)
                self.end()
                if row.behind:
                    behind.append((len(self.lines) - 1, row.behind))
        self._align_comments(behind)

    def _align_comments(self, behind: list[tuple[int, str]]) -> None:
        """Append the comments behind rows; those of neighbouring lines start in one column."""
        group: list[tuple[int, str]] = []
        for entry, following in [*pairwise(behind), *((last, None) for last in behind[-1:])]:
            group.append(entry)
            if following is None or following[0] != entry[0] + 1:
                width = max(len(self.lines[number]) for number, _ in group)
                for number, comment in group:
                    self.lines[number] = f"{self.lines[number]:<{width}}  {comment}"
                group = []


def _split(pieces: Sequence[Piece], space: Space) -> list[list[Piece]]:
    """The pieces between spaces of one kind."""
    parts: list[list[Piece]] = [[]]
    for piece in pieces:
        if piece is space:
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts


def _fillable(brackets: Brackets, width: int) -> list[str] | None:
    """The elements with their commas, if several can share a line of ``width`` columns."""
    if not brackets.fill or any(item.before.lines or item.behind for item in brackets.items):
        return None
    texts = all_of(flat(item.pieces) for item in brackets.items)
    if texts is None:
        return None
    texts = [f"{text}," for text in texts[:-1]] + texts[-1:]
    return texts if all(len(text) <= width for text in texts) else None


def _length_to_break(following: Sequence[Piece], reserve: int) -> int:
    """Columns needed up to the next place where the line can be broken."""
    length = 0
    for piece in following:
        match piece:
            case Space():
                length += 1
            case Word():
                if piece.before.lines:
                    return length
                length += len(piece.text)
                if piece.behind:
                    return length
            case Brackets() | Block():
                if _count(piece):
                    return length + len(piece.open.text)
                length += len(piece.open.text) + len(piece.close.text)
    return length + reserve


def _count(piece: Brackets | Block) -> int:
    return len(piece.items) if isinstance(piece, Brackets) else len(piece.rows)


def _without_blanks(before: Before) -> Before:
    return Before(tuple(replace(line, blank=False) for line in before.lines))


def _has_blank(before: Before) -> bool:
    return before.blank or any(line.blank for line in before.lines)


def _tables(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Neighbouring rows of one kind without a blank line between them."""
    table: list[Row] = []
    for row in rows:
        if table and (row.kind != table[-1].kind or row.apart or _has_blank(row.before)):
            yield table
            table = []
        table.append(row)
    if table:
        yield table


def _columns(table: Sequence[Row]) -> Iterator[list[str]]:
    for index in range(max(len(row.cells) for row in table)):
        yield [row.cells[index] for row in table if index < len(row.cells)]
