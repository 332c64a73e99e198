"""The search surface: environments across, GMIs per device upwards, each cell the speed of one point. As SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from gmiflow.graphs.page import document, text

Kind = Literal["measured", "modelled", "out_of_memory", "failed"]

MARGIN = 28
HEADER = 62
AXIS = 74
"""Left of the cells, for the numbers of GMIs."""
CELL_WIDTH = 92
CELL_HEIGHT = 54
LEGEND_HEIGHT = 58
SWATCH = 30
LEGEND_GAP = 22
RAMP_WIDTH = 200
RAMP = ("#e8f1fa", "#c3dbef", "#8fbfe3", "#559fd3", "#2a7bbb", "#0f5a9b", "#083f73")
"""From the slowest cell to the fastest: one hue, lightness falling, so that it reads without colours as well."""
DARK_FROM = 0.67
"""Part of the ramp from which white letters have a contrast of 4.5 to 1; below it black ones have."""

WHITE_LINES_FROM = 0.45
"""Part of the ramp from which white hatching is seen better than blue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The best of the points with one number of environments and GMIs.

    Attributes:
        num_env: environments of the training on one device.
        gmis: GMIs of the training on one device.
        steps_per_s: of one device; 0 where there is none.
        chosen: whether the plan takes it.
        detail: shown when the reader points at the cell.
    """

    num_env: int
    gmis: int
    kind: Kind
    steps_per_s: float = 0.0
    chosen: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """A heat map.

    Attributes:
        title: what was searched.
        subtitle: on which machine.
        cells: at most one per number of environments and GMIs; the others were never looked at.
    """

    title: str
    subtitle: str
    cells: tuple[Cell, ...]

    @property
    def columns(self) -> list[int]:
        """Numbers of environments, rising."""
        return sorted({cell.num_env for cell in self.cells})

    @property
    def rows(self) -> list[int]:
        """Numbers of GMIs, falling: one GMI is the lowest row."""
        return sorted({cell.gmis for cell in self.cells}, reverse=True)

    @property
    def scale(self) -> tuple[float, float]:
        """The slowest and the fastest cell in environment steps per second; zeros without any."""
        speeds = [cell.steps_per_s for cell in self.cells if cell.kind in ("measured", "modelled")]
        return (min(speeds), max(speeds)) if speeds else (0.0, 0.0)

    def heat(self, cell: Cell) -> float:
        """Where a cell is between the slowest (0) and the fastest (1)."""
        low, high = self.scale
        return (cell.steps_per_s - low) / (high - low) if high > low else 1.0


def compact(number: float) -> str:
    """A count in three digits: "812", "48.1 k", "3.94 M"."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"
    return f"{number:.0f}"


def color(heat: float) -> str:
    """The ramp at ``heat`` (0 to 1), interpolated."""
    place = min(max(heat, 0.0), 1.0) * (len(RAMP) - 1)
    index = min(int(place), len(RAMP) - 2)
    part = place - index
    pair = zip(_channels(RAMP[index]), _channels(RAMP[index + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pair)


def _channels(code: str) -> tuple[int, ...]:
    return tuple(int(code[i : i + 2], 16) for i in (1, 3, 5))


def svg(surface: Surface) -> str:
    """The document."""
    columns, rows = surface.columns, surface.rows
    left, top = MARGIN + AXIS, MARGIN + HEADER
    right, bottom = left + len(columns) * CELL_WIDTH, top + len(rows) * CELL_HEIGHT
    parts = [
        text(MARGIN, MARGIN + 14, surface.title, "title"),
        text(MARGIN, MARGIN + 35, surface.subtitle, "faint"),
    ]
    known = {(cell.num_env, cell.gmis): cell for cell in surface.cells}
    for row, gmis in enumerate(rows):
        y = top + row * CELL_HEIGHT
        parts.append(text(left - 12, y + CELL_HEIGHT / 2 + 5, str(gmis), "name", anchor="end"))
        for column, num_env in enumerate(columns):
            cell = known.get((num_env, gmis))
            if cell is not None:
                parts += _cell(surface, cell, left + column * CELL_WIDTH, y)
    for column, num_env in enumerate(columns):
        parts.append(text(left + (column + 0.5) * CELL_WIDTH, bottom + 20, str(num_env), "name", anchor="middle"))
    parts.append(text((left + right) / 2, bottom + 40, "environments on one device", "faint", anchor="middle"))
    middle = (top + bottom) / 2
    parts.append(
        f'<g transform="rotate(-90 {MARGIN + 12} {middle:g})">'
        + text(MARGIN + 12, middle, "GMIs per device", "faint", anchor="middle")
        + "</g>"
    )
    parts += _rings(surface, left, top)
    parts += _legend(surface, bottom + 62)
    legend = RAMP_WIDTH + 40 + sum(map(_legend_width, (words for _, words in _kinds(surface))))
    width = max(MARGIN + legend, right + MARGIN, MARGIN * 2 + 6.6 * len(surface.subtitle))
    return document(surface.title, width, bottom + 62 + LEGEND_HEIGHT, parts, definitions=_PATTERN, style=_STYLE)


_PATTERN = (
    '<defs><pattern id="light-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2.2" height="7" fill="#ffffff" fill-opacity=".5"/></pattern>'
    '<pattern id="dark-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.6" height="7" fill="#0f5a9b" fill-opacity=".4"/></pattern></defs>'
)
_STYLE = (
    ".value{font-size:14px;font-weight:600}.mark{font-size:10px}.on-light{fill:#000000}.on-dark{fill:#ffffff}"
    ".cell{stroke:none}.over.white{fill:url(#light-hatch)}.over.blue{fill:url(#dark-hatch)}"
    ".wall{fill:#8593a1;fill-opacity:.18}"
    ".cross{stroke:#c0392b;stroke-width:2;fill:none}.ring{fill:none;stroke:#e8710a;stroke-width:4}"
)


def _cell(surface: Surface, cell: Cell, x: float, y: float) -> list[str]:
    """One cell with its top left corner at (x, y)."""
    frame = f'x="{x + 1.5:g}" y="{y + 1.5:g}" width="{CELL_WIDTH - 3}" height="{CELL_HEIGHT - 3}" rx="3"'
    head = f'<g class="{cell.kind}"><title>{escape(cell.detail or str(cell.num_env))}</title>'
    middle = x + CELL_WIDTH / 2
    if cell.kind in ("out_of_memory", "failed"):
        words = "out of memory" if cell.kind == "out_of_memory" else "failed"
        corners = (x + 5, y + 5, x + CELL_WIDTH - 5, y + CELL_HEIGHT - 5)
        return [
            f'{head}<rect class="wall" {frame}/>',
            f'<path class="cross" stroke-opacity=".35" d="{_cross(corners)}"/>',
            text(middle, y + CELL_HEIGHT / 2 + 4, words, "faint mark", anchor="middle") + "</g>",
        ]
    heat = surface.heat(cell)
    ink = "on-dark" if heat >= DARK_FROM else "on-light"
    lines = "white" if heat >= WHITE_LINES_FROM else "blue"
    plate = f'x="{middle - 33:g}" y="{y + 11:g}" width="66" height="{CELL_HEIGHT - 20}" rx="4"'
    hatch = (
        [f'<rect class="over {lines}" {frame}/>', f'<rect {plate} fill="{color(heat)}"/>']
        if cell.kind == "modelled"
        else []
    )
    return [
        f'{head}<rect class="cell" {frame} fill="{color(heat)}"/>',
        *hatch,
        text(middle, y + 26, compact(cell.steps_per_s), f"value {ink}", anchor="middle"),
        text(middle, y + 42, cell.kind, f"mark {ink}", anchor="middle") + "</g>",
    ]


def _cross(corners: tuple[float, float, float, float]) -> str:
    x0, y0, x1, y1 = corners
    return f"M{x0:g} {y0:g} L{x1:g} {y1:g} M{x0:g} {y1:g} L{x1:g} {y0:g}"


def _rings(surface: Surface, left: float, top: float) -> list[str]:
    """Around the chosen cells, above everything else."""
    columns, rows = surface.columns, surface.rows
    return [
        f'<rect class="ring" x="{left + columns.index(cell.num_env) * CELL_WIDTH:g}" '
        f'y="{top + rows.index(cell.gmis) * CELL_HEIGHT:g}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" rx="5"/>'
        for cell in surface.cells
        if cell.chosen
    ]


def _legend(surface: Surface, y: float) -> list[str]:
    """The ramp with its ends, and what hatching, crosses and the ring mean."""
    low, high = surface.scale
    steps, width = 40, RAMP_WIDTH
    parts = [
        f'<rect x="{MARGIN + step * width / steps:g}" y="{y:g}" width="{width / steps + 0.5:g}" height="14" '
        f'fill="{color(step / (steps - 1))}"/>'
        for step in range(steps)
    ]
    parts.append(text(MARGIN, y + 32, compact(low), "faint"))
    parts.append(text(MARGIN + width, y + 32, compact(high), "faint", anchor="end"))
    parts.append(text(MARGIN + width / 2, y + 32, "environment steps/s", "faint", anchor="middle"))
    x = float(MARGIN + width + 40)
    for kind, words in _kinds(surface):
        parts += [_sample(kind, x, y), text(x + SWATCH, y + 12, words, "faint")]
        x += _legend_width(words)
    return parts


def _legend_width(words: str) -> float:
    return SWATCH + 6.6 * len(words) + LEGEND_GAP


def _kinds(surface: Surface) -> Sequence[tuple[str, str]]:
    """Only what the picture has."""
    names = {"measured": "measured", "modelled": "modelled", "out_of_memory": "out of memory", "failed": "failed"}
    kinds = [(kind, words) for kind, words in names.items() if any(cell.kind == kind for cell in surface.cells)]
    return [*kinds, ("chosen", "chosen")] if any(cell.chosen for cell in surface.cells) else kinds


def _sample(kind: str, x: float, y: float) -> str:
    frame = f'x="{x:g}" y="{y:g}" width="22" height="15" rx="2"'
    if kind == "chosen":
        return f'<rect class="ring" {frame}/>'
    if kind in ("out_of_memory", "failed"):
        cross = _cross((x + 2, y + 2, x + 20, y + 13))
        return f'<rect class="wall" {frame}/><path class="cross" stroke-opacity=".6" d="{cross}"/>'
    over = f'<rect class="over white" {frame}/>' if kind == "modelled" else ""
    return f'<rect {frame} fill="{RAMP[4]}"/>{over}'
