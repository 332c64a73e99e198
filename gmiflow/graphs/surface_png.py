"""The search surface as PNG, for those who have matplotlib."""

# matplotlib's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from pathlib import Path

from gmiflow.graphs.surface import DARK_FROM, Cell, Surface, color, compact

DOTS_PER_INCH = 120


def write_png(surface: Surface, file: Path) -> None:
    """Draw the surface; the same picture as `surface.svg`. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns, rows = surface.columns, surface.rows
    width = max(7.0, 1.6 + 1.0 * len(columns))
    figure = Figure(figsize=(width, 2.2 + 0.62 * len(rows)), layout="constrained", dpi=DOTS_PER_INCH)
    axes = figure.add_subplot()
    axes.set_title(surface.title, loc="left", fontsize=12, fontweight="bold")
    for cell in surface.cells:
        _draw(axes, surface, cell, columns.index(cell.num_env), rows.index(cell.gmis))
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), [str(number) for number in columns])
    axes.set_yticks(range(len(rows)), [str(number) for number in rows])
    axes.set(xlabel=f"environments on one device\n{surface.subtitle}", ylabel="GMIs per device")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    FigureCanvasAgg(figure).print_png(str(file), metadata={"Software": None})


def _draw(axes: object, surface: Surface, cell: Cell, column: int, row: int) -> None:
    """One cell at its place."""
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

    assert isinstance(axes, Axes)
    place, size = (column - 0.48, row - 0.47), (0.96, 0.94)
    ink, words = "#5a6876", ""
    if cell.kind in ("out_of_memory", "failed"):
        axes.add_patch(Rectangle(place, *size, facecolor="#e9ecef"))
        for ends in ((row - 0.4, row + 0.4), (row + 0.4, row - 0.4)):
            axes.plot([column - 0.42, column + 0.42], ends, color="#c0392b", alpha=0.35)
        words = "out of\nmemory" if cell.kind == "out_of_memory" else "failed"
    else:
        heat = surface.heat(cell)
        modelled = cell.kind == "modelled"
        axes.add_patch(
            Rectangle(
                place, *size, facecolor=color(heat), edgecolor="#ffffff", hatch="///" if modelled else None, linewidth=0
            )
        )
        ink = "#ffffff" if heat >= DARK_FROM else "#000000"
        words = f"{compact(cell.steps_per_s)}\n{cell.kind}"
        if modelled:
            axes.add_patch(Rectangle((column - 0.36, row - 0.3), 0.72, 0.6, facecolor=color(heat)))
    axes.text(column, row, words, ha="center", va="center", color=ink, fontsize=8)
    if cell.chosen:
        axes.add_patch(Rectangle(place, *size, fill=False, edgecolor="#e8710a", linewidth=3, zorder=5))
