"""`gmiflow explain sizing`: every point of the search, by what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmiflow.commands.plan_answer import answer
from gmiflow.commands.plan_report import Report, Row, report
from gmiflow.commands.plan_text import TABLE_WIDTH, candidates, decided, rests_on, to_json
from gmiflow.commands.text_table import text_table
from gmiflow.commands.what_if import WhatIf
from gmiflow.pipeline import Options

ALGORITHMS = {
    "improved": "ours: the unsliced plan up to its peak, slicing there, then what may still win",
    "paper": "Algorithm 1 of the GMI-DRL paper as published",
}
STOPS = {
    "memory": "out of memory",
    "saturation": "saturated",
    "failed": "failed",
    "illegal": "cannot be run",
    "not_visited": "never looked at",
}
"""Terms that end a row of the search, as titles."""
MOST_MODELLED = 10


def explained(file: str, options: Options, form: str, *, show_all: bool = False) -> str:
    """The search for a file as text or JSON; exits with the diagnostics of a file with errors.

    Args:
        file: the `.gmi` file.
        options: of the compiler.
        form: "text" or "json".
        show_all: list every point.
    """
    found = answer(file, options, WhatIf(), form)
    made = report(found.compilation, search=found.search, grounds=found.grounds, notes=found.notes)
    return to_json(made) if form == "json" else text(made, show_all=show_all)


def text(made: Report, *, show_all: bool = False) -> str:
    """The search as tables: what was measured, what the model says of the others, and where rows stopped."""
    target = made.target
    device = "the CPU" if target.device == "cpu" else f"{target.devices} x {target.gpu or 'GPU'}"
    lines = [
        f"sizing of workflow {made.workflow} of {made.file} on target {target.name} ({device})",
        f"algorithm {made.algorithm}: {ALGORITHMS[made.algorithm]}" if made.algorithm else "nothing was found",
        f"objective {made.objective}; {rests_on(made.grounds)}",
    ]
    parts = [lines, ["decided", *decided(made)]]
    if made.rows:
        known = [row for row in made.rows if row.steps_per_s.mark != "modelled"]
        open_rows = [row for row in made.rows if row not in known and row.term not in STOPS]
        parts.append(_table("measured", known, len(known)))
        parts.append(_table("modelled", open_rows, len(open_rows) if show_all else MOST_MODELLED))
        parts += [_stops(term, title, made.rows) for term, title in STOPS.items()]
    if made.notes:
        parts.append(["notes", *(f"  - {note}" for note in made.notes)])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _table(title: str, rows: Sequence[Row], most: int) -> list[str]:
    if not rows:
        return [f"{title}: no point"]
    count = f"{len(rows)} point{'s' if len(rows) > 1 else ''}"
    lines = [f"{title}: {count}", *candidates(rows[:most], show_all=True)]
    return [*lines, f"  ... and {len(rows) - most} more (--all)"] if len(rows) > most else lines


def _stops(term: str, title: str, rows: Iterable[Row]) -> list[str]:
    """Rows of the search that ended for this reason, with the environments that they ended at."""
    ended: dict[tuple[int, str, str], list[Row]] = {}
    for row in rows:
        if row.term == term:
            ended.setdefault((row.gmis, row.execution, row.backend), []).append(row)
    alike: dict[tuple[int, str, str], list[tuple[str, str]]] = {}
    for (gmis, execution, backend), stopped in sorted(ended.items()):
        reason = min(stopped, key=lambda row: row.num_env).reason
        alike.setdefault((gmis, _range(stopped), reason), []).append((execution, backend))
    lines = [
        [f"{gmis} GMI{'s' if gmis > 1 else ''}", _either(column[0] for column in lowerings),
         _either(column[1] for column in lowerings), numbers, reason]
        for (gmis, numbers, reason), lowerings in alike.items()
    ]  # fmt: skip
    return [title, *text_table(["", "", "", "environments", ""], lines, wrap=TABLE_WIDTH)] if lines else []


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))


def _range(rows: Sequence[Row]) -> str:
    numbers = sorted(row.num_env for row in rows)
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
