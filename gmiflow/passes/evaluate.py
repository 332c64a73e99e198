"""Evaluation of expressions: one phase, on constants, with types.

A problem is reported where it is and gives None; an operation on None is None and says nothing more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Protocol, cast

from gmiflow.diagnostics import closest
from gmiflow.ir.workflow import Value
from gmiflow.passes.mismatch import report_mismatch
from gmiflow.passes.operators import (
    COMPARISONS,
    a_type,
    apply_function,
    arithmetic,
    compare,
    is_no_number,
    number_of,
    same_dimension,
)
from gmiflow.passes.report import Report
from gmiflow.passes.values import (
    AUTO,
    BOOL,
    DEVICES,
    FLOAT,
    INT,
    PYTHON,
    STRING,
    Typed,
    ValueType,
    convert,
)
from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.words import DIMENSIONS, FUNCTIONS, UNITS

_OTHER_UNITS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "millis"), "ms"),
    **dict.fromkeys(("usec", "micros"), "us"),
    **dict.fromkeys(("minute", "minutes", "mins"), "min"),
    **dict.fromkeys(("pct", "percent"), "%"),
    **dict.fromkeys(("byte", "bytes"), "B"),
}
"""What units are called elsewhere."""
_DECIMAL = {"kB": "KiB", "KB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}
"""Units that are no units here, and what the user probably means."""


class Scope(Protocol):
    """What names mean at one place."""

    def value(self, path: ast.Path) -> Typed | None:
        """The value of a name, or None after reporting why it has none."""
        ...

    def knows(self, name: str) -> bool:
        """Whether a name means anything here."""
        ...


def evaluate(
    expression: ast.Expression, scope: Scope, report: Report, expected: ValueType | None = None
) -> Typed | None:
    """Evaluate; with ``expected``, convert to that type or report E0301 or E0305."""
    typed = _evaluate(expression, scope, report, expected)
    if typed is None or expected is None:
        return typed
    converted = convert(typed, expected)
    if converted is None:
        report_mismatch(expression, typed, expected, report)
    return converted


def is_true(expression: ast.Expression, scope: Scope, report: Report) -> bool | None:
    """Evaluate a condition; None when it has no value (reported) or depends on an `auto` value."""
    typed = _evaluate(expression, scope, report, BOOL)
    if typed is None or typed.is_auto:
        return None
    if typed.type.kind != "bool":
        report.add("E0301", f"a condition is true or false, not {a_type(typed.type)}", expression.span)
        return None
    return bool(typed.value)


def _evaluate(node: ast.Expression, scope: Scope, report: Report, expected: ValueType | None) -> Typed | None:
    match node:
        case ast.Constant():
            return _constant(node, report, expected)
        case ast.Path():
            if expected is not None and expected.kind == "enum":
                return _enum_member(node, scope, report, expected)
            if expected is not None and expected.kind == "string" and not scope.knows(node.names[0].text):
                quoted = json.dumps(node.text, ensure_ascii=False)
                notes = [f"a string is written in double quotes: `{quoted}`"]
                report.add("E0201", f"unknown name `{node.text}`", node.span, notes=notes, replace=quoted)
                return None
            return scope.value(node)
        case ast.Group():
            return _evaluate(node.inner, scope, report, expected)
        case ast.ListOf():
            return _list(node, scope, report, expected)
        case ast.PythonEntry():
            return Typed(value=node.text, type=PYTHON)
        case ast.Call():
            return _call(node, scope, report)
        case ast.Unary():
            return _unary(node, scope, report)
        case ast.Binary():
            return _binary(node, scope, report)


def _enum_member(node: ast.Path, scope: Scope, report: Report, expected: ValueType) -> Typed | None:
    """A bare name where an enum is expected is first a member of it, then a name in scope."""
    if node.text in expected.members:
        return Typed(value=node.text, type=ValueType(kind="enum", members=expected.members))
    if scope.knows(node.names[0].text):
        return scope.value(node)
    message = f"expected {a_type(expected)}, found `{node.text}`"
    report.unknown("E0301", message, node.span, node.text, expected.members)
    return None


def _constant(node: ast.Constant, report: Report, expected: ValueType | None) -> Typed | None:
    match node.kind:
        case "quantity":
            return _quantity(node, report, expected)
        case "auto":
            if expected is not None and expected.kind == "enum" and "auto" in expected.members:
                return Typed(value="auto", type=ValueType(kind="enum", members=expected.members))
            return Typed(value="auto", type=AUTO)
        case "int":
            return number_of(node.value, INT, node.span, report)  # type: ignore[arg-type]
        case "float":
            return number_of(node.value, FLOAT, node.span, report)  # type: ignore[arg-type]
        case "bool":
            return Typed(value=node.value, type=BOOL)
        case _:
            return Typed(value=node.value, type=STRING)


def _quantity(node: ast.Constant, report: Report, expected: ValueType | None) -> Typed | None:
    unit = node.unit or ""
    if unit not in UNITS:
        dimension = expected.dimension if expected is not None else ""
        units = [name for name, (of, _) in UNITS.items() if not dimension or of == dimension]
        span = Span(node.span.source, node.span.end - len(unit), node.span.end)
        wanted = f"; {DIMENSIONS[dimension]} expected" if dimension else ""
        if unit in _DECIMAL:
            notes = [f"sizes are counted in powers of 1024: write `{_DECIMAL[unit]}`"]
            report.add("E0305", f"unknown unit `{unit}`{wanted}", span, notes=notes, replace=_DECIMAL[unit])
            return None
        if unit in _OTHER_UNITS:
            notes = [f"it is written `{_OTHER_UNITS[unit]}` here"]
            report.add("E0305", f"unknown unit `{unit}`{wanted}", span, notes=notes, replace=_OTHER_UNITS[unit])
            return None
        report.unknown("E0305", f"unknown unit `{unit}`{wanted}", span, unit, units, what="the units are")
        return None
    dimension, factor = UNITS[unit]
    number = cast("float", node.value) * factor
    value = round(number) if dimension == "bytes" and math.isfinite(number) else number
    return number_of(value, ValueType(kind="quantity", dimension=dimension), node.span, report)


def _list(node: ast.ListOf, scope: Scope, report: Report, expected: ValueType | None) -> Typed | None:
    wanted = expected.item if expected is not None and expected.kind == "list" else None
    items: list[Value] = []
    kind: ValueType | None = wanted
    failed = False
    for expression in node.items:
        item = evaluate(expression, scope, report, wanted)
        if item is None:
            failed = True
            continue
        if kind is None:
            kind = item.type
        elif (converted := convert(item, kind)) is not None:
            item = converted
        elif kind == INT and item.type == FLOAT:
            kind = FLOAT
        else:
            report.add("E0301", f"this list holds {kind} items, not {item.type}", expression.span)
            failed = True
            continue
        items.append(item.value)
    if failed:
        return None
    if kind == FLOAT:
        items = [float(item) if isinstance(item, int) else item for item in items]
    return Typed(value=tuple(items), type=ValueType(kind="list", item=kind))


def _unary(node: ast.Unary, scope: Scope, report: Report) -> Typed | None:
    if node.operator == "!":
        value = is_true(node.operand, scope, report)
        return None if value is None else Typed(value=not value, type=BOOL)
    operand = _evaluate(node.operand, scope, report, None)
    if operand is None:
        return None
    if is_no_number(operand):
        report.add("E0307", f"`-` takes a number, not {a_type(operand.type)}", node.operand.span)
        return None
    return Typed(value=-operand.value, type=operand.type)  # type: ignore[operator]


def _binary(node: ast.Binary, scope: Scope, report: Report) -> Typed | None:
    if node.operator in ("&&", "||"):
        left = is_true(node.left, scope, report)
        if left is None:
            return None
        if left == (node.operator == "||"):
            return Typed(value=left, type=BOOL)
        right = is_true(node.right, scope, report)
        return None if right is None else Typed(value=right, type=BOOL)
    left, right = _operands(node, scope, report)
    if left is None or right is None:
        return None
    if left.is_auto or right.is_auto:
        if node.operator in COMPARISONS:
            return Typed(value="auto", type=AUTO)
        place = node.left if left.is_auto else node.right
        report.add("E0307", f"`{node.operator}` needs a number, and this is `auto`", place.span)
        return None
    return compare(node, left, right, report) if node.operator in COMPARISONS else arithmetic(node, left, right, report)


def _operands(node: ast.Binary, scope: Scope, report: Report) -> tuple[Typed | None, Typed | None]:
    """Both sides; a bare name compared with an enum is first a member of it."""
    bare_left = isinstance(node.left, ast.Path) and len(node.left.names) == 1
    if node.operator in ("==", "!=") and bare_left and not isinstance(node.right, ast.Path):
        right = _evaluate(node.right, scope, report, None)
        return _evaluate(node.left, scope, report, right.type if right else None), right
    left = _evaluate(node.left, scope, report, None)
    return left, _evaluate(node.right, scope, report, left.type if left else None)


def _call(node: ast.Call, scope: Scope, report: Report) -> Typed | None:
    name = node.callee.text
    if name == "devices":
        return _devices(node, scope, report)
    if name not in FUNCTIONS:
        known = [*FUNCTIONS, "devices"] if closest(name, ["devices"]) else FUNCTIONS
        report.unknown("E0201", f"unknown function `{name}`", node.callee.span, name, known, what="the functions are")
        return None
    named = next((a for a in node.arguments if a.name is not None), None)
    wanted = "at least one argument" if name in ("min", "max") else "one argument"
    if named is not None or not node.arguments or (len(node.arguments) > 1 and name not in ("min", "max")):
        report.add("E0210", f"`{name}` takes {wanted} without a name", (named or node).span)
        return None
    found = [_evaluate(a.value, scope, report, None) for a in node.arguments]
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        return None
    if len(values) == 1 and name in ("min", "max") and values[0].type.kind == "list":
        return _of_list(node, name, values[0], report)
    for argument, value in zip(node.arguments, values, strict=True):
        if is_no_number(value) or not same_dimension(value, values[0]):
            report.add("E0307", f"`{name}` does not take {a_type(value.type)} here", argument.span)
            return None
    return apply_function(node, name, values, report)


def _of_list(node: ast.Call, name: str, numbers: Typed, report: Report) -> Typed | None:
    """`min` or `max` over the items of a list."""
    kind, items = numbers.type.item, numbers.value
    if kind is None or not isinstance(items, tuple) or not items:
        report.add("E0412", f"`{name}` of an empty list does not exist", node.span)
        return None
    values = [Typed(value=item, type=kind) for item in items]
    if is_no_number(values[0]):
        report.add("E0307", f"`{name}` does not take {a_type(numbers.type)} here", node.arguments[0].span)
        return None
    return apply_function(node, name, values, report)


def _devices(node: ast.Call, scope: Scope, report: Report) -> Typed | None:
    named = next((argument for argument in node.arguments if argument.name is not None), None)
    if named is not None:
        report.add("E0210", "`devices` takes device indices without a name", named.span)
        return None
    found = [evaluate(argument.value, scope, report, INT) for argument in node.arguments]
    indices = tuple(item.value for item in found if item is not None)
    if len(indices) < len(found):
        return None
    if not indices or any(isinstance(index, int) and index < 0 for index in indices):
        note = "for example `devices(0)` for the first GPU, `devices(0, 1)` for two"
        report.add("E0210", "`devices` takes device indices, counted from 0", node.span, notes=[note])
        return None
    twice = next((i for i, index in enumerate(indices) if index in indices[:i]), None)
    if twice is not None:
        message = f"`devices` is given device {indices[twice]} twice"
        report.add("E0210", message, node.arguments[twice].span, notes=["a device is named once"])
        return None
    return Typed(value=indices, type=DEVICES)


def names_of_value(expression: ast.Expression | None, kind: ast.TypeExpression) -> set[str]:
    """First names that the value of a parameter of some type needs; a bare word of an enum is no name."""
    kind = kind.inner if isinstance(kind, ast.AutoType) else kind
    members = [member.text for member in kind.members] if isinstance(kind, ast.EnumType) else []
    is_word = isinstance(expression, ast.Path) and expression.text in members
    return set() if is_word else names_in([expression])


def names_in(expressions: Iterable[ast.Expression | None]) -> set[str]:
    """First names of all paths in some expressions."""
    found: set[str] = set()
    stack = [e for e in expressions if e is not None]
    while stack:
        match stack.pop():
            case ast.Path(names=names):
                found.add(names[0].text)
            case ast.Group(inner=inner):
                stack.append(inner)
            case ast.Unary(operand=operand):
                stack.append(operand)
            case ast.Binary(left=left, right=right):
                stack += [left, right]
            case ast.ListOf(items=items):
                stack += items
            case ast.Call(arguments=arguments):
                stack += [argument.value for argument in arguments]
            case _:
                pass
    return found
