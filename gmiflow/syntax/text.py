"""Deterministic text of tokens and syntax trees, for `--emit tokens` and `--emit ast`."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from gmiflow.source import Source, Span
from gmiflow.syntax import lexer
from gmiflow.syntax.ast import Module


def tokens_text(source: Source) -> str:
    """One token per line: place, terminal, text."""
    lines: list[str] = []
    for token in lexer.tokens(source.text):
        line, column = source.position(token.start_pos)
        lines.append(f"{line}:{column} {token.type} {token.value!r}\n")
    return "".join(lines)


def module_text(module: Module) -> str:
    """The tree, one node per line, indented; spans are left out."""
    return "\n".join(_node("", module, 0)) + "\n"


def _node(label: str, value: object, depth: int) -> list[str]:
    pad = "  " * depth
    prefix = f"{pad}{label}: " if label else pad
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        if not items:
            return []
        if all(_is_leaf(item) for item in items):
            return [prefix + ", ".join(map(repr, items))]
        return [f"{pad}{label}:", *(line for item in items for line in _node("", item, depth + 1))]
    if _is_leaf(value):
        return [] if value is None else [prefix + repr(value)]
    fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(cast("Any", value))]
    head = prefix + type(value).__name__
    shown = [(name, item) for name, item in fields if _is_shown(item)]
    if all(_is_leaf(item) for _, item in shown):
        return [head + "".join(f" {name}={item!r}" for name, item in shown)]
    return [head, *(line for name, item in shown for line in _node(name, item, depth + 1))]


def _is_shown(value: object) -> bool:
    return value is not None and value != () and value != frozenset() and not isinstance(value, Span)


def _is_leaf(value: object) -> bool:
    return not isinstance(value, tuple) and not dataclasses.is_dataclass(value)
