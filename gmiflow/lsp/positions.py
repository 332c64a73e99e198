"""Places of the protocol (line and code units of the client's encoding) and of the compiler (code points).

The protocol ends lines at LF, CR LF and CR alone; `str.splitlines` knows more line ends, so lines are cut here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from lsprotocol import types
from pygls.workspace import PositionCodec

_LINE_END: Final = re.compile(r"\r\n|\n|\r")
BOM: Final = "\ufeff"


class Lines:
    """The lines of one text.

    Offsets are those of `Source.text`, which lacks a byte-order mark; positions count it, as clients do.
    """

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.text = text
        self._codec = codec
        self._shift = 1 if text.startswith(BOM) else 0
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
        self._ends = [*(found.start() for found in _LINE_END.finditer(text)), len(text)]
        self._plain = text.isascii()

    def offset(self, position: types.Position) -> int:
        """Offset of a position; one beyond its line or the text counts as the end of it."""
        return max(0, self.raw_offset(position) - self._shift)

    def raw_offset(self, position: types.Position) -> int:
        """Offset of a position in ``text``, a byte-order mark counted."""
        if position.line >= len(self._starts):
            return len(self.text)
        line = max(0, position.line)
        start, end = self._starts[line], self._ends[line]
        content = self.text[start:end]
        character = max(0, position.character)
        if character >= self._codec.client_num_units(content):
            return end
        if self._plain:
            return start + character
        place = types.Position(line=0, character=character)  # a copy: the codec changes positions it clips
        return start + self._codec.position_from_client_units([content], place).character

    def position(self, offset: int) -> types.Position:
        """Position of an offset."""
        line, character = self.place(offset)
        return types.Position(line=line, character=character)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and character of an offset."""
        raw = min(max(0, offset) + self._shift, len(self.text))
        line = bisect_right(self._starts, raw) - 1
        start = self._starts[line]
        column = min(raw, self._ends[line]) - start
        if self._plain:
            return line, column
        content = self.text[start : self._ends[line]]
        place = types.Position(line=0, character=column)
        found = self._codec.position_to_client_units([content], place)
        return line, found.character

    def range(self, start: int, end: int) -> types.Range:
        """Range of two offsets."""
        return types.Range(start=self.position(start), end=self.position(end))

    def units(self, start: int, end: int) -> int:
        """Code units between two offsets of one line."""
        text = self.text[start + self._shift : end + self._shift]
        return len(text) if self._plain else self._codec.client_num_units(text)

    @property
    def count(self) -> int:
        """Number of lines, an empty last one included."""
        return len(self._starts)

    def line_of(self, offset: int) -> int:
        """Line of an offset, counted from 0."""
        return bisect_right(self._starts, min(offset + self._shift, len(self.text))) - 1
