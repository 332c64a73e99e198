"""Times on the command line."""

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
