"""Python literals and calls as source text, laid out as ruff's formatter lays them out.

The layout rule: on one line if it fits; else the content on one indented line; else one item per
line with a trailing comma. Items are laid out by the same rule, one level deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

WIDTH = 120

Item: TypeAlias = "Node | str"


class Node:
    """A bracketed thing: ``head`` + ``open`` + items + ``close``; an item is a prefix and a value."""

    def __init__(self, opening: str, closing: str, items: Iterable[tuple[str, Item]]) -> None:
        """Args: opening and closing text, and items as (prefix such as "name=", value) pairs."""
        self.opening = opening
        self.closing = closing
        self.items = list(items)

    def flat(self) -> str:
        """The node on one line."""
        inner = ", ".join(prefix + (item if isinstance(item, str) else item.flat()) for prefix, item in self.items)
        comma = "," if self.opening.endswith("(") and self.closing == ")" and self._is_tuple() else ""
        return self.opening + inner + comma + self.closing

    def _is_tuple(self) -> bool:
        return self.opening == "(" and len(self.items) == 1

    def layout(self, indent: int, before: int, after: int) -> str:
        """The node as text; ``before`` and ``after`` are the columns that stand on its first and last line."""
        if before + len(self.flat()) + after <= WIDTH:
            return self.flat()
        pad = " " * (indent + 4)
        inner = self.flat()[len(self.opening) : -len(self.closing)]
        if not self._is_tuple() and len(pad) + len(inner) <= WIDTH:
            return f"{self.opening}\n{pad}{inner}\n{' ' * indent}{self.closing}"
        lines = [
            pad + prefix + (item if isinstance(item, str) else item.layout(indent + 4, len(pad + prefix), 1)) + ","
            for prefix, item in self.items
        ]
        return "\n".join([self.opening, *lines, " " * indent + self.closing])


def literal(value: Any) -> Item:  # noqa: ANN401 - any JSON-like value
    """A node for a JSON-like value (dict, list, tuple, str, int, float, bool, None)."""
    if isinstance(value, dict):
        pairs: dict[str, Any] = value
        return Node("{", "}", ((f"{_string(key)}: ", literal(item)) for key, item in pairs.items()))
    if isinstance(value, list):
        return Node("[", "]", (("", literal(item)) for item in _items(value)))
    if isinstance(value, tuple):
        return Node("(", ")", (("", literal(item)) for item in _items(value)))
    return _string(value) if isinstance(value, str) else repr(value)


def _items(value: Any) -> list[Any]:  # noqa: ANN401 - narrowed by the callers
    return list(value)


def _string(text: str) -> str:
    """A double-quoted literal, as ruff prefers it unless that needs more escapes."""
    quoted = repr(text)
    if quoted.startswith("'") and '"' not in text:
        return '"' + quoted[1:-1] + '"'
    return quoted


def call(name: str, arguments: Iterable[tuple[str, Item]]) -> Node:
    """A call with keyword arguments."""
    return Node(f"{name}(", ")", ((f"{key}=", item) for key, item in arguments))


def assign(target: str, value: Item) -> str:
    """An assignment statement at column 0."""
    start = f"{target} = "
    return start + (value if isinstance(value, str) else value.layout(0, len(start), 0))


def each(values: Iterable[Any], build: Callable[[Any], Item]) -> Node:
    """A tuple of built items."""
    return Node("(", ")", (("", build(value)) for value in values))
