"""The devices of a plan for a terminal: boxes side by side, as wide as the shares of the device."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gmiflow.graphs.devices import Device, Tenant

WIDTH = 96
"""Columns of a drawing. It does not follow the terminal, so that output is the same everywhere."""
NARROWEST = 9
"""Columns that a box needs inside; with a narrower one the GMIs become rows."""
BAR = 30
"""Columns of the bars of those rows."""


def drawing(devices: Sequence[Device]) -> str:
    """All devices, a blank line between them."""
    return "\n".join("\n".join(_device(device)) + "\n" for device in devices)


def columns(shares: Sequence[float], total: int) -> list[int]:
    """Whole columns in proportion to shares that sum to 1; they sum to ``total`` (largest remainders)."""
    exact = [share * total for share in shares]
    whole = [int(width + 1e-9) for width in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (whole[i] - exact[i], i))
    for index in by_remainder[: total - sum(whole)]:
        whole[index] += 1
    return whole


def _device(device: Device) -> list[str]:
    if not device.tenants:
        return [device.title, "  no GMI"]
    shares = [tenant.share for tenant in device.tenants] + ([device.free] if device.free else [])
    widths = columns(shares, WIDTH - 1 - len(shares))
    if min(widths[: len(device.tenants)]) < NARROWEST:
        return [device.title, *_rows(device)]
    cells = [_cell(tenant, width) for tenant, width in zip(device.tenants, widths, strict=False)]
    cells += [[" free", f" {device.free:.0%}"]] if device.free else []
    height = max(map(len, cells))
    body = [
        "\N{BOX DRAWINGS LIGHT VERTICAL}".join(
            [
                "",
                *(
                    (cell[line] if line < len(cell) else "").ljust(width)
                    for cell, width in zip(cells, widths, strict=True)
                ),
                "",
            ]
        )
        for line in range(height)
    ]
    return [device.title, _rule(widths, "\u250c\u252c\u2510"), *body, _rule(widths, "\u2514\u2534\u2518")]


def _rule(widths: Sequence[int], corners: str) -> str:
    left, middle, right = corners
    return left + middle.join("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * width for width in widths) + right


def _cell(tenant: Tenant, width: int) -> list[str]:
    """The lines of a box, each at most ``width`` wide, with a space in front."""
    names = ", ".join(name for _, name in tenant.stages)
    lines: list[str] = []
    for line in (tenant.title, f"{tenant.share:.0%}", names, *tenant.lines):
        lines += textwrap.wrap(line, width - 1) or [""]
    return [f" {line}" for line in lines]


def _rows(device: Device) -> list[str]:
    """One line per GMI, for a device with too many for boxes."""
    title = max(len(tenant.title) for tenant in device.tenants)
    lines: list[str] = []
    for tenant in device.tenants:
        filled = max(1, round(tenant.share * BAR))
        bar = "\N{FULL BLOCK}" * filled + "\N{LIGHT SHADE}" * (BAR - filled)
        names = ", ".join(name for _, name in tenant.stages)
        lines.append(f"  {tenant.title:<{title}} {bar} {tenant.share:>4.0%}  {names}; {', '.join(tenant.lines)}")
    return lines
