"""A plan's report for people: a headline, the devices, what is expected, what was rejected and why."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from gmiflow.commands.durations import seconds
from gmiflow.commands.plan_report import STAGES, Difference, Figure, Grounds, Report, Row
from gmiflow.commands.plan_view import headline
from gmiflow.commands.text_table import text_table
from gmiflow.graphs.devices_svg import svg
from gmiflow.graphs.devices_text import WIDTH, drawing
from gmiflow.graphs.surface import compact

MOST_ROWS = 10
"""Rejected plans that the text shows unless all are asked for."""
TABLE_WIDTH = 140
WORDS = {"unmeasured": "not measured", "tie": "tie", "saturation": "saturated", "not_visited": "not looked at"}
"""Terms that a reader should see beside the numbers."""
COMPARED = ("throughput", "time_to_reward", "unmeasured")
"""Terms whose numbers are in the columns."""


def text(report: Report, *, show_all: bool = False) -> str:
    """The whole report; ``show_all`` lists every plan that was considered."""
    parts = ["\n".join(_head(report)) + "\n", drawing(report.devices), _section("decided", decided(report))]
    count = len(report.plan.trainings)
    predicted = "predicted" if count == 1 else f"predicted for each of {count} trainings"
    parts.append(_section(predicted, expected(report.chosen) if report.chosen else [_unpredicted(report)]))
    if report.rows:
        title = f"plans considered (algorithm {report.algorithm}, objective {report.objective})"
        parts.append(_section(title, candidates(report.rows, show_all=show_all)))
    if report.rejected_mappings:
        rejected = [[item.choice, item.reason] for item in report.rejected_mappings]
        parts.append(_section("mappings not taken", text_table(["", ""], rejected, wrap=TABLE_WIDTH)))
    if report.notes:
        parts.append(_section("notes", [line for note in report.notes for line in _bullet(note)]))
    if report.difference:
        parts.append("\n".join(difference(report.difference)) + "\n")
    return "\n".join(parts)


def to_json(report: Report) -> str:
    """The whole report as one JSON document."""
    return json.dumps(report.data(), indent=1, ensure_ascii=False) + "\n"


def to_svg(report: Report) -> str:
    """The devices with the headline and what is expected."""
    lines = _head(report)
    if report.chosen:
        speed = report.chosen.steps_per_s
        lines.append(f"predicted: {compact(speed.value)} environment steps/s {bar(speed)}, {speed.mark}")
    return svg(f"Plan of {report.workflow}", lines, report.devices)


def _head(report: Report) -> list[str]:
    lines = headline(report.plan)
    if report.what_if:
        lines.insert(0, f"what if {report.what_if}")
    lines.append(rests_on(report.grounds))
    return lines


def rests_on(found: Grounds | None) -> str:
    """One line about the profile."""
    if found is None:
        return "no profile of this workload: numbers are built-in defaults; `gmiflow profile` measures"
    points = f"{found.measurements} point{'s' if found.measurements != 1 else ''}"
    text = f"profile of {found.source}: {points} measured on {found.processor}, {found.date}"
    return f"{text}; {found.basis}" if found.basis else text


def _unpredicted(report: Report) -> str:
    mapping = report.plan.trainings[0].mapping
    if mapping != "dp_only":
        return f"  nothing: sizes of `{mapping}` are not searched; `gmiflow profile` measures the plan that is given"
    chosen = "everything is given" if report.grounds else "there is no profile"
    return f"  nothing: {chosen}, and nothing was searched"


def decided(report: Report) -> list[str]:
    """The values of the plan, and how each was decided."""
    rows = [[decision.name, decision.value, decision.origin] for decision in report.decisions]
    return text_table(["", "", ""], rows, wrap=TABLE_WIDTH)


def expected(row: Row) -> list[str]:
    """Throughput, time of an iteration by its terms, and memory of a plan, with error bars and marks."""
    speed, memory = row.steps_per_s, row.device_memory_bytes
    lines = [["environment steps/s", compact(speed.value), bar(speed), speed.mark]]
    terms = {"iteration": row.iteration_s, **{f"  {name}": row.terms[name] for name in STAGES if name in row.terms}}
    lines += [[name, seconds(term.value), bar(term), term.mark] for name, term in terms.items() if term.value]
    lines += [["memory of a device", size(memory.value), bar(memory), memory.mark]] if memory is not None else []
    host = row.host_memory_bytes
    lines += [["memory of the host", size(host.value), bar(host), host.mark]] if host.value else []
    return text_table(["", "", "", ""], lines, right="lrr")


def candidates(rows: Sequence[Row], *, show_all: bool = False) -> list[str]:
    """One line per plan, the chosen one first and marked with a star, the unsliced one always among them."""
    shown = list(rows) if show_all else _shown(rows)
    several = len({row.mapping for row in rows}) > 1
    lines = [
        [
            "*" if row.chosen else "",
            str(row.num_env),
            str(row.gmis),
            row.mapping if several else "",
            row.execution,
            row.backend,
            compact(row.steps_per_s.value) if row.steps_per_s.value else "-",
            bar(row.steps_per_s) if row.steps_per_s.value else "",
            row.steps_per_s.mark if row.steps_per_s.value else "",
            _memory(row),
            f"{row.relative:.2f}x" if row.relative else "-",
            verdict(row),
        ]
        for row in shown
    ]
    titles = [
        "",
        "env",
        "GMIs",
        "mapping" if several else "",
        "execution",
        "backend",
        "steps/s",
        "",
        "",
        "memory",
        "",
        "",
    ]
    table = text_table(titles, lines, right="lrrlllrrlrr", wrap=TABLE_WIDTH)
    left = len(rows) - len(shown)
    return [*table, f"  ... and {left} more (--all)"] if left else table


def _memory(row: Row) -> str:
    """Of the device, on the CPU of the host; "-" when nobody knows."""
    memory = row.device_memory_bytes or row.host_memory_bytes
    return size(memory.value) if memory.value else "-"


def verdict(row: Row) -> str:
    """What became of a plan, and the term that decided."""
    words = [WORDS.get(row.term, ""), "unsliced" if row.unsliced else ""]
    if row.chosen:
        words[0] = "chosen"
    words.append(row.slowest if row.term in COMPARED and not row.chosen else row.reason)
    return "; ".join(filter(None, words))


def _shown(rows: Sequence[Row]) -> list[Row]:
    """The chosen and the unsliced plan, then what was measured, then the best of the others; in the given order."""
    ranked = sorted(
        range(len(rows)),
        key=lambda i: (not rows[i].chosen, not rows[i].unsliced, rows[i].steps_per_s.mark == "modelled", i),
    )
    return [rows[i] for i in sorted(ranked[: MOST_ROWS + 1])]


def difference(found: Difference) -> list[str]:
    """What changed, in one paragraph: "num_env 4096 -> 8192, gmi_per_gpu 1 -> 2, predicted 1.21x"."""
    if not found.changes:
        return [f"same plan as {found.against}"]
    words = [str(change) for change in found.changes]
    words += [f"predicted {found.predicted:.2f}x"] if found.predicted is not None else []
    return [
        f"changed since {found.against}:",
        *textwrap.wrap(", ".join(words), WIDTH, initial_indent="  ", subsequent_indent="  "),
    ]


def bar(number: Figure) -> str:
    """The error bar in percent of the value, "" for none."""
    if not number.value:
        return ""
    low, high = (round(100 * (end / number.value - 1)) for end in (number.low, number.high))
    if (low, high) == (0, 0):
        return ""
    return f"\N{PLUS-MINUS SIGN}{high} %" if high == -low else f"{low:+d} {high:+d} %"


def size(value: float) -> str:
    """Bytes in GiB or MiB."""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, *lines]) + "\n"


def _bullet(note: str) -> list[str]:
    return textwrap.wrap(note, TABLE_WIDTH, initial_indent="  - ", subsequent_indent="    ")
