"""What to say about a value of the wrong type, and how it was probably meant."""

from __future__ import annotations

import re

from gmiflow.diagnostics import Edit, Fix
from gmiflow.passes.operators import a_type
from gmiflow.passes.report import Report
from gmiflow.passes.values import Typed, ValueType, show
from gmiflow.syntax import ast
from gmiflow.syntax.words import DIMENSIONS, UNITS

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def report_mismatch(expression: ast.Expression, typed: Typed, expected: ValueType, report: Report) -> None:
    """Report that an expression does not have the type that is expected."""
    if expected.kind == "quantity" and typed.type.kind in ("int", "float", "quantity"):
        dimension = DIMENSIONS[expected.dimension]
        units = [unit for unit, (of, _) in UNITS.items() if of == expected.dimension]
        found = DIMENSIONS[typed.type.dimension] if typed.type.dimension else "a number without unit"
        message = f"expected {dimension}, found {found}"
        note = f"units of {expected.dimension}: {', '.join(f'`{unit}`' for unit in units)}"
        text = expression.span.text
        bare = not typed.type.dimension and _NUMBER.fullmatch(text) is not None
        written = [f"{text} {unit}" for unit in units] if bare else []
        fixes = tuple(Fix(title=f"write `{w}`", edits=(Edit(span=expression.span, text=w),)) for w in written)
        report.add("E0305", message, expression.span, notes=[note], fixes=fixes)
        return
    found = a_type(typed.type)
    if expected.kind == "int" and typed.type.kind == "float":
        found = f"the number {show(typed.value)}"
    note, replace = _meant(expression, typed, expected)
    notes = [note] if note else []
    report.add("E0301", f"expected {a_type(expected)}, found {found}", expression.span, notes=notes, replace=replace)


def _meant(expression: ast.Expression, typed: Typed, expected: ValueType) -> tuple[str, str | None]:
    """A note, or nothing, and what to write in place of the expression."""
    text, value, kind = expression.span.text, typed.value, typed.type.kind
    if typed.is_auto and expected.kind in ("python", "devices"):  # no parameter is of such a type
        return "", None
    if typed.is_auto:
        only = f"only a value of type `auto {expected}` may be `auto`"
        return f"{only}: a setting as a workflow's `num_env`, or a parameter declared `param x : auto {expected}`", None
    if expected.kind == "int" and isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return "whole numbers are written with all of their digits", show(int(value))
        return "`floor` and `ceil` make whole numbers", None
    if expected.kind == "enum" and kind == "string" and value in expected.members:
        return "members of an enum are written without quotes", str(value)
    if expected.kind in ("int", "float") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return "numbers are written without quotes", value
    if expected.kind == "bool" and kind == "string" and value in ("true", "false"):
        return f"`{value}` is written without quotes", str(value)
    if expected.kind == "string" and kind in ("int", "float", "bool"):
        return "strings are written in double quotes", f'"{text}"'
    if expected.kind == "python" and kind == "string":
        replacement = f"py {text}" if ":" in str(value) else None
        return 'Python classes are written `py "package.module:Class"`', replacement
    if expected.kind == "list" and expected.item is not None and kind == expected.item.kind:
        return f"a list of one is written `[{text}]`", f"[{text}]"
    return "", None
