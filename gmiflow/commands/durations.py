"""Times, as they are given on the command line and as they are shown."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Duration(click.ParamType):
    """Seconds, or a number with s, min or h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|m|h|)\s*", str(value))
        if not match or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a duration: give seconds, like 120s, or 2min")
        return float(match[1]) * _UNITS[match[2]]


_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def seconds(value: float) -> str:
    """A time in three digits, "0" for none."""
    if not value:
        return "0"
    unit, name = next((item for item in _TIMES if value >= item[0] * 0.9995), _TIMES[-1])
    number = value / unit
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f} {name}"
