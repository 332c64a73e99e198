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
