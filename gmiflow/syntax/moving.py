"""Syntax trees at another place: what an edit before a declaration does to it."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from gmiflow.source import Source, Span

T = TypeVar("T")


def moved(node: T, source: Source, distance: int) -> T:
    """A copy of a node whose spans lie in another source, ``distance`` code points further on.

    Args:
        node: of the syntax tree.
        source: the new one; its text around the node is that of the old one.
        distance: new start minus old start in code points.
    """
    return _moved(node, source, distance)


def _moved(node: Any, source: Source, distance: int) -> Any:  # noqa: ANN401 - any part of a tree
    if node.__class__ is tuple:
        return tuple([item if item.__class__ in _LEAVES else _moved(item, source, distance) for item in node])
    names = _attributes(node.__class__)
    copy = object.__new__(node.__class__)
    for name in names:
        value = getattr(node, name)
        kind = value.__class__
        if kind is Span:
            value = Span(source, value.start + distance, value.end + distance)
        elif kind not in _LEAVES:
            value = _moved(value, source, distance)
        _set(copy, name, value)
    return copy


_set = object.__setattr__  # the nodes are frozen; nobody has seen the copy yet
_LEAVES = frozenset((str, int, float, bool, type(None)))


@cache
def _attributes(kind: type) -> tuple[str, ...]:
    """The fields of a class of nodes."""
    return tuple(field.name for field in fields(kind))
