"""Colours of the pictures, on light and on dark paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gmiflow.plan import Role


@dataclass(frozen=True, slots=True)
class RoleColors:
    """A stage's paper, frame, and the band with its name."""

    fill: str
    stroke: str
    band: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Palette:
    """One theme; every text on its paper has a contrast of at least 4.5 to 1."""

    paper: str
    text: str
    faint: str
    line: str
    roles: dict[Role, RoleColors]


LIGHT: Final = Palette(
    paper="#ffffff",
    text="#1c2733",
    faint="#5a6876",
    line="#6b7a89",
    roles={
        "simulator": RoleColors("#f2f8fd", "#2f7cbf", "#d7e9f8"),
        "agent": RoleColors("#fffaf0", "#b7791f", "#fcebc8"),
        "trainer": RoleColors("#f2faf4", "#2f855a", "#d3efdd"),
    },
)
DARK: Final = Palette(
    paper="#11161c",
    text="#e6edf3",
    faint="#9aa7b4",
    line="#8593a1",
    roles={
        "simulator": RoleColors("#132030", "#5aa9e6", "#1d3650"),
        "agent": RoleColors("#251d10", "#e0a63e", "#43331a"),
        "trainer": RoleColors("#12231a", "#5fbf86", "#1d3d2b"),
    },
)
