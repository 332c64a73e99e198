"""Plain tables: aligned columns, the same on every terminal and in every pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

INDENT = "  "
GAP = "  "


def text_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "", wrap: int | None = None
) -> list[str]:
    """Lines of a table; columns without any text are left out, and the last one is wrapped below itself.

    Args:
        titles: of the columns; all "" for no line of titles.
        rows: as many texts each.
        right: one character per column, "r" to align to the right; "" aligns all to the left.
        wrap: columns of the whole table, None for no limit.
    """
    lines = [*([titles] if any(titles) else []), *rows]
    kept = [column for column in range(len(titles)) if any(line[column] for line in lines)]
    lines = [[line[column] for column in kept] for line in lines]
    right = "".join(right[column : column + 1] or "l" for column in kept)
    widths = [max(len(line[column]) for line in lines) for column in range(len(kept))]
    start = len(INDENT) + sum(width + len(GAP) for width in widths[:-1])
    found: list[str] = []
    for line in lines:
        cells = [
            text.rjust(width) if right[column : column + 1] == "r" else text.ljust(width)
            for column, (text, width) in enumerate(zip(line[:-1], widths[:-1], strict=True))
        ]
        last = textwrap.wrap(line[-1], max(30, wrap - start)) if wrap is not None else [line[-1]]
        found.append((INDENT + GAP.join([*cells, (last or [""])[0]])).rstrip())
        found += [" " * start + more for more in last[1:]]
    return found
