"""The file of rows: JSON lines that are written whole, and read back to know what is done. No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]

DONE = "training"
"""`row` of a training that came to its end; "failed" of one that did not."""


class Rows:
    """Rows of a file, and new ones behind them.

    A line that was being written when its process died is cut off: such a row is made again.
    """

    def __init__(self, path: Path) -> None:
        """Read ``path``, which need not exist."""
        self._path = path
        self._rows: list[Row] = []
        if path.exists():
            _cut_torn_line(path)
            self._rows = list(rows_of(path))

    def __iter__(self) -> Iterator[Row]:
        """All rows in the order of the file."""
        return iter(self._rows)

    @property
    def done(self) -> set[str]:
        """Keys of the trainings that need not be made again."""
        return {row["key"] for row in self._rows if row["row"] == DONE}

    def finished(self, keys: Iterable[str]) -> list[Row]:
        """The trainings with these keys, in their order."""
        by_key = {row["key"]: row for row in self._rows if row["row"] == DONE}
        return [by_key[key] for key in keys if key in by_key]

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows; they are on the disk when this returns."""
        new = [dict(row) for row in rows]
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in new)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._rows += new


def rows_of(path: Path) -> Iterator[Row]:
    """The objects of a file of JSON lines; what is no object is skipped, for example a line that is not whole yet."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end != len(data):
        with path.open("r+b") as file:
            file.truncate(end)
