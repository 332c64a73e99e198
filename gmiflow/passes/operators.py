"""Operators and functions on constants, and the words for types that messages need."""

from __future__ import annotations

import math
from collections.abc import Callable

from gmiflow.passes.report import Report
from gmiflow.passes.values import BOOL, FLOAT, INT, MAX_INTEGER, Typed, ValueType, show
from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.words import DIMENSIONS

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(node: ast.Binary, left: Typed, right: Typed, report: Report) -> Typed | None:
    """`==`, `<` and the others."""
    numbers = not is_no_number(left) and not is_no_number(right) and same_dimension(left, right)
    same = left.type.kind == right.type.kind and left.type.members == right.type.members and not _mixed(left, right)
    if not numbers and not (same and node.operator in ("==", "!=")):
        return _bad_operands(node, left, right, report)
    return Typed(value=COMPARISONS[node.operator](left.value, right.value), type=BOOL)  # type: ignore[arg-type]


def arithmetic(node: ast.Binary, left: Typed, right: Typed, report: Report) -> Typed | None:
    """`+`, `-`, `*`, `/`; whole numbers stay whole where `/` divides them."""
    if is_no_number(left) or is_no_number(right):
        return _bad_operands(node, left, right, report)
    a, b = left.value, right.value
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    kind = _result_type(node.operator, left, right)
    if kind is None:
        return _bad_operands(node, left, right, report)
    if node.operator == "/":
        if b == 0:
            report.add("E0412", "division by zero", node.right.span)
            return None
        if isinstance(a, int) and isinstance(b, int) and a % b == 0 and kind != FLOAT:
            return number_of(a // b, kind, node.span, report)
        return number_of(a / b, FLOAT if kind == INT else kind, node.span, report)
    value = a + b if node.operator == "+" else a - b if node.operator == "-" else a * b
    return number_of(value, kind, node.span, report)


def _result_type(operator: str, left: Typed, right: Typed) -> ValueType | None:
    """Type of an arithmetic result; a fraction counts as a plain number in products."""
    quantities = [t.type for t in (left, right) if t.type.kind == "quantity" and t.type.dimension != "fraction"]
    plain = INT if left.type == INT and right.type == INT else FLOAT
    if operator in ("+", "-"):
        if same_dimension(left, right):
            return left.type if left.type.kind == "quantity" else plain
        return None
    if not quantities:
        return plain
    if operator == "*":
        return quantities[0] if len(quantities) == 1 else None
    if len(quantities) == 2:
        return FLOAT if left.type == right.type else None
    return left.type if left.type == quantities[0] else None


def apply_function(node: ast.Call, name: str, values: list[Typed], report: Report) -> Typed | None:
    """`min`, `max`, `ceil`, `floor`, `log2` of numbers of one dimension."""
    first = values[0]
    number = first.value
    assert isinstance(number, int | float)
    if name in ("min", "max"):
        kind = FLOAT if any(v.type == FLOAT for v in values) else first.type
        best = (min if name == "min" else max)(v.value for v in values)  # type: ignore[type-var]
        return Typed(value=float(best) if kind == FLOAT else best, type=kind)  # type: ignore[arg-type]
    if first.type.kind == "quantity":
        report.add("E0307", f"`{name}` takes a number without unit", node.arguments[0].span)
        return None
    if name == "log2":
        if number <= 0:
            report.add("E0412", f"log2 of {show(number)} does not exist", node.arguments[0].span)
            return None
        return Typed(value=math.log2(number), type=FLOAT)
    return number_of((math.ceil if name == "ceil" else math.floor)(number), INT, node.span, report)


def is_no_number(typed: Typed) -> bool:
    """Whether arithmetic is impossible."""
    return typed.type.kind not in ("int", "float", "quantity")


def same_dimension(left: Typed, right: Typed) -> bool:
    """Whether both are plain numbers (or fractions) or quantities of one dimension."""
    dimensions = [t.type.dimension if t.type.dimension != "fraction" else "" for t in (left, right)]
    return dimensions[0] == dimensions[1]


def _mixed(left: Typed, right: Typed) -> bool:
    """Whether two values of one kind are no match for `==`: lists of other items, and what has no value to compare."""
    if left.type.kind == "list" == right.type.kind:
        return left.type.item != right.type.item and None not in (left.type.item, right.type.item)
    return left.type.kind in ("list", "python", "devices") or right.type.kind in ("list", "python", "devices")


def _bad_operands(node: ast.Binary, left: Typed, right: Typed, report: Report) -> None:
    message = f"`{node.operator}` does not take {a_type(left.type)} and {a_type(right.type)}"
    report.add(
        "E0307", message, node.span, secondary=[(node.left.span, str(left.type)), (node.right.span, str(right.type))]
    )


def number_of(value: float, kind: ValueType, span: Span, report: Report) -> Typed | None:
    """A number, if it is within what the runtime can hold; bytes are whole."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        report.add("E0412", f"whole numbers lie between -{MAX_INTEGER} and {MAX_INTEGER}", span)
        return None
    if isinstance(value, float) and not math.isfinite(value):
        report.add("E0412", "this number is too large", span)
        return None
    if isinstance(value, float) and kind.dimension == "bytes":
        return number_of(round(value), kind, span, report)
    return Typed(value=value, type=kind)


def a_type(kind: ValueType) -> str:
    """A type with its article."""
    names = {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "string": "a string",
        "auto": "`auto`",
        "python": '`py "module:Class"`',
        "devices": "`devices(...)`",
    }
    if kind.kind == "quantity":
        return DIMENSIONS[kind.dimension]
    if kind.kind == "enum":
        return "one of " + ", ".join(f"`{member}`" for member in kind.members)
    if kind.kind == "list":
        return f"a `{kind}`"
    text = names.get(kind.kind, f"a {kind}")
    return text + (" or `auto`" if kind.auto else "")
