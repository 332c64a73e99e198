"""The devices of a plan as SVG: boxes side by side, as wide as the shares of the device."""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.graphs.devices import Device, Tenant
from gmiflow.graphs.page import document, text

MARGIN = 28
WIDTH = 904
"""Of a device: the whole of it."""
TITLE_HEIGHT = 24
GAP = 26
GUTTER = 4
"""Between two boxes."""
LINE = 19
STAGE_LINE = 22
NARROW = 74
"""A box that is narrower names its stages by their first letters."""


def svg(title: str, lines: Sequence[str], devices: Sequence[Device]) -> str:
    """A document.

    Args:
        title: in large letters at the top.
        lines: below it, small.
        devices: one below the other.
    """
    parts = [text(MARGIN, MARGIN + 14, title, "title")]
    top = MARGIN + 36.0
    for line in lines:
        parts.append(text(MARGIN, top, line, "faint"))
        top += LINE
    top += 8
    for device in devices:
        parts.append(text(MARGIN, top + 12, device.title, "name"))
        drawn, height = _device(device, top + TITLE_HEIGHT)
        parts += drawn
        top += TITLE_HEIGHT + height + GAP
    longest = max((len(line) for line in lines), default=0) * 6.4
    return document(title, 2 * MARGIN + max(WIDTH, longest), top - GAP + MARGIN, parts, style=_STYLE)


_STYLE = (
    ".gmi,.free{stroke:#8593a1;stroke-width:1.2}.gmi{fill:#8593a1;fill-opacity:.08}"
    ".free{fill:none;stroke-dasharray:5 4}.chip{stroke-width:1.2}"
    ".simulator.chip{fill:#2f7cbf;fill-opacity:.25;stroke:#2f7cbf}.agent.chip{fill:#e0a63e;fill-opacity:.3;stroke:#b7791f}"
    ".trainer.chip{fill:#2f855a;fill-opacity:.25;stroke:#2f855a}"
)


def _device(device: Device, top: float) -> tuple[list[str], float]:
    """Elements and height of one device."""
    rows = max((len(tenant.lines) for tenant in device.tenants), default=0)
    stages = max((len(tenant.stages) for tenant in device.tenants), default=0)
    height = 34 + stages * STAGE_LINE + rows * LINE + 12
    parts: list[str] = []
    left = float(MARGIN)
    for tenant in device.tenants:
        parts += _tenant(tenant, left, top, tenant.share * WIDTH - GUTTER, height)
        left += tenant.share * WIDTH
    if device.free:
        width = device.free * WIDTH - GUTTER
        parts.append(f'<rect class="free" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        parts.append(text(left + width / 2, top + height / 2, f"free, {device.free:.0%}", "faint", anchor="middle"))
    return parts, height


def _tenant(tenant: Tenant, left: float, top: float, width: float, height: float) -> list[str]:
    middle = left + width / 2
    words = f"{tenant.title} \N{MIDDLE DOT} {tenant.share:.0%}"
    parts = [
        f"<g><title>{words}: {', '.join(name for _, name in tenant.stages)}; {', '.join(tenant.lines)}</title>",
        f'<rect class="gmi" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>',
        text(middle, top + 21, words if width > 9 * len(words) else tenant.title, "name", anchor="middle"),
    ]
    y = top + 34.0
    for role, name in tenant.stages:
        shown = name if width >= max(NARROW, 8 * len(name)) else name[0]
        frame = f'x="{left + 8:g}" y="{y:g}" width="{width - 16:g}" height="{STAGE_LINE - 4}" rx="4"'
        parts.append(f'<rect class="{role} chip" {frame}/>')
        parts.append(text(middle, y + 13, shown, "port small", anchor="middle"))
        y += STAGE_LINE
    for line in tenant.lines:
        parts.append(text(middle, y + 14, line, "faint small", anchor="middle"))
        y += LINE
    return [*parts, "</g>"]
