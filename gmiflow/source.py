"""Source files and places in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A `.gmi` file in memory.

    Attributes:
        name: path as the user gave it (or "std/tasks/ant.gmi" for the standard library).
        text: decoded text without a byte-order mark, line ends as in the file.
    """

    name: str
    text: str

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1, columns in code points (a tab is one)."""
        line_start = self.text.rfind("\n", 0, offset) + 1
        return self.text.count("\n", 0, offset) + 1, offset - line_start + 1

    def line_text(self, offset: int) -> str:
        """The line that holds ``offset``, without its line end."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of code points in one source.

    Attributes:
        source: the file.
        start, end: offsets in ``source.text`` in code points, start <= end.
    """

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        """The characters in the range."""
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        """1-based line of the start."""
        return self.source.position(self.start)[0]
