"""Python literals and calls as source text, laid out for a reader.

The layout rule: on one line if it fits; else the items fill indented lines as words fill a
paragraph, and an item that does not fit on a line of its own is laid out by the same rule. The
template keeps formatters from exploding the result to one item per line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

WIDTH = 110

Item: TypeAlias = "Node | str"


class Node:
    """A bracketed thing: ``head`` + ``open`` + items + ``close``; an item is a prefix and a value."""

    def __init__(self, opening: str, closing: str, items: Iterable[tuple[str, Item]]) -> None:
        """Args: opening and closing text, and items as (prefix such as "name=", value) pairs."""
        self.opening = opening
        self.closing = closing
        self.items = list(items)
        self._flat = ""

    def flat(self) -> str:
        """The node on one line."""
        if not self._flat:
            self._flat = self._on_one_line()
        return self._flat

    def _on_one_line(self) -> str:
        inner = ", ".join(prefix + (item if isinstance(item, str) else item.flat()) for prefix, item in self.items)
        single = self.opening == "(" and len(self.items) == 1
        return f"{self.opening}{inner}{',' if single else ''}{self.closing}"

    def layout(self, indent: int, before: int) -> str:
        """The node as text; ``before`` columns already stand on its first line."""
        if before + len(self.flat()) < WIDTH:
            return self.flat()
        pad = " " * (indent + 4)
        lines: list[str] = []
        for prefix, item in self.items:
            text = prefix + (item if isinstance(item, str) else item.flat()) + ","
            if lines and lines[-1] and len(lines[-1]) + 1 + len(text) <= WIDTH:
                lines[-1] += " " + text
            elif len(pad) + len(text) <= WIDTH or isinstance(item, str):
                lines.append(pad + text)
            else:  # nested and too long for a line: its own lines, and nothing beside its closing bracket
                lines += [pad + prefix + item.layout(indent + 4, len(pad + prefix)) + ",", ""]
        body = "\n".join(line for line in lines if line)
        return f"{self.opening}\n{body}\n{' ' * indent}{self.closing}"


def literal(value: Any) -> Item:  # noqa: ANN401 - any JSON-like value
    """A node for a JSON-like value (dict, list, tuple, str, int, float, bool, None)."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
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
    return start + (value if isinstance(value, str) else value.layout(0, len(start)))


def each(values: Iterable[Any], build: Callable[[Any], Item]) -> Node:
    """A tuple of built items."""
    return Node("(", ")", (("", build(value)) for value in values))
