"""Types of compile-time values, and the conversions between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from gmiflow.ir.workflow import Value
from gmiflow.syntax.words import DIMENSIONS

Kind: TypeAlias = Literal["int", "float", "bool", "string", "enum", "list", "quantity", "auto", "python", "devices"]

MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueType:
    """Type of a parameter or setting.

    Attributes:
        kind: "auto" is the type of the value `auto` alone; "python" of a `py` entry; "devices" of `devices(...)`.
        members: of an enum.
        item: type of a list's items, None for the empty list.
        dimension: of a quantity, a key of `words.DIMENSIONS`.
        auto: whether `auto` is admitted, too.
    """

    kind: Kind
    members: tuple[str, ...] = ()
    item: ValueType | None = None
    dimension: str = ""
    auto: bool = False

    def __str__(self) -> str:
        text = {
            "enum": f"enum({', '.join(self.members)})",
            "list": f"list({self.item})" if self.item else "list",
            "quantity": self.dimension,
            "python": "py entry",
        }.get(self.kind, self.kind)
        return f"auto {text}" if self.auto else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Typed:
    """A value with its type."""

    value: Value
    type: ValueType

    @property
    def is_auto(self) -> bool:
        """Whether the value is `auto`, to be decided by a later pass."""
        return self.type.kind == "auto"


INT = ValueType(kind="int")
FLOAT = ValueType(kind="float")
BOOL = ValueType(kind="bool")
STRING = ValueType(kind="string")
AUTO = ValueType(kind="auto")
PYTHON = ValueType(kind="python")
DEVICES = ValueType(kind="devices")
BYTES = ValueType(kind="quantity", dimension="bytes")
FRACTION = ValueType(kind="quantity", dimension="fraction")
SCALARS: dict[str, ValueType] = {
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "string": STRING,
    **{name: ValueType(kind="quantity", dimension=name) for name in DIMENSIONS},
}
"""Types by name."""


def enum(*members: str) -> ValueType:
    """The type of a closed set of words."""
    return ValueType(kind="enum", members=members)


def automatic(inner: ValueType) -> ValueType:
    """``inner`` or `auto`."""
    return replace(inner, auto=True)


def concrete(kind: ValueType) -> ValueType:
    """The type without `auto`."""
    return replace(kind, auto=False) if kind.auto else kind


def convert(typed: Typed, wanted: ValueType) -> Typed | None:
    """``typed`` as a value of type ``wanted``, or None when it is none.

    Whole numbers become floats; a number becomes a fraction and the other way round.
    """
    if typed.is_auto:
        return typed if wanted.auto else None
    have = typed.type
    if have.kind == wanted.kind:
        if have.kind == "list":
            return _convert_list(typed, wanted)
        same = have.members == wanted.members and have.dimension == wanted.dimension
        return Typed(value=typed.value, type=concrete(wanted)) if same else None
    number = isinstance(typed.value, int | float) and not isinstance(typed.value, bool)
    fraction = "fraction" in (have.dimension, wanted.dimension) and {have.kind, wanted.kind} <= {
        "float",
        "int",
        "quantity",
    }
    if number and ((have.kind == "int" and wanted.kind == "float") or (fraction and wanted.kind != "int")):
        return Typed(value=float(typed.value), type=concrete(wanted))  # type: ignore[arg-type]
    return None


def _convert_list(typed: Typed, wanted: ValueType) -> Typed | None:
    items = typed.value if isinstance(typed.value, tuple) else ()
    if typed.type.item is None or wanted.item is None:
        return Typed(value=items, type=wanted)
    converted = [convert(Typed(value=item, type=typed.type.item), wanted.item) for item in items]
    values = tuple(item.value for item in converted if item is not None)
    return Typed(value=values, type=concrete(wanted)) if len(values) == len(items) else None


def show(value: Value) -> str:
    """A value as the language writes it (quantities as their number in base units)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
