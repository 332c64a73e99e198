"""`gmiflow plan --surface`: the plans that were considered as a heat map."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import click

from gmiflow.commands.output import replace_output, write_output
from gmiflow.commands.plan_report import Report, Row
from gmiflow.graphs.surface import Cell, Kind, Surface, svg

ENDINGS = (".svg", ".png")


def require_writable(file: str) -> None:
    """Refuse an ending that cannot be drawn, before anything is computed.

    Raises:
        click.UsageError: for that, and for a PNG without matplotlib.
    """
    ending = Path(file).suffix
    if ending not in ENDINGS:
        raise click.UsageError(f"--surface {file}: the file's name must end in {' or '.join(ENDINGS)}")
    if ending == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--surface needs matplotlib for a PNG (pip install matplotlib); .svg needs nothing")


def write(report: Report, file: str) -> None:
    """Draw the surface of a report into a file.

    Raises:
        click.UsageError: when nothing was searched, or the file cannot be written.
    """
    found = surface(report)
    if not found.cells:
        raise click.UsageError("--surface: nothing was searched, so there is no surface")
    if Path(file).suffix == ".png":
        from gmiflow.graphs.surface_png import write_png

        replace_output(file, lambda path: write_png(found, path))
    else:
        write_output(file, svg(found))


def surface(report: Report) -> Surface:
    """The heat map of a report: of the plans with one number of environments and GMIs the best."""
    best: dict[tuple[int, int], Row] = {}
    for row in report.rows:
        place = row.num_env, row.gmis
        if kind(row) is not None and (place not in best or _rank(row) < _rank(best[place])):
            best[place] = row
    cells = tuple(_cell(best[place]) for place in sorted(best))
    words = [f"workflow {report.workflow} of {report.file}", f"target {report.target.name}"]
    words += [report.grounds.processor] if report.grounds else ["nothing measured"]
    words += [_same(report.rows)]
    return Surface(
        title=f"Search of {report.workflow}",
        subtitle=" \N{MIDDLE DOT} ".join(word for word in words if word),
        cells=cells,
    )


def kind(row: Row) -> Kind | None:
    """How a plan is drawn; None for one that nobody looked at or that cannot be."""
    if row.term in ("illegal", "not_visited") and not row.steps_per_s.value:
        return None
    if row.term == "memory":
        return "out_of_memory"
    if row.term == "failed":
        return "failed"
    return "modelled" if row.steps_per_s.mark == "modelled" else "measured"


def _rank(row: Row) -> tuple[bool, int, float]:
    """The chosen plan before others, what was measured before what was not, fast before slow."""
    kinds: list[Kind | None] = ["measured", "modelled", "out_of_memory", "failed", None]
    return not row.chosen, kinds.index(kind(row)), -row.steps_per_s.value


def _cell(row: Row) -> Cell:
    what = f"{row.num_env} environments, {row.gmis} GMIs, {row.mapping}, {row.execution}, {row.backend}"
    found = kind(row)
    assert found is not None
    return Cell(
        num_env=row.num_env,
        gmis=row.gmis,
        kind=found,
        steps_per_s=row.steps_per_s.value,
        chosen=row.chosen,
        detail=f"{what}: {row.reason}" if row.reason else what,
    )


def _same(rows: Sequence[Row]) -> str:
    """What all cells have in common, or that each shows its best lowering."""
    executions, mappings = {row.execution for row in rows}, {row.mapping for row in rows}
    words = list(mappings) if len(mappings) == 1 else []
    words.append(next(iter(executions)) if len(executions) == 1 else "each cell in its fastest execution")
    return ", ".join(words)
