"""Profiles from JSON that anybody may have written: every value is looked at before it is used.

What a profile holds is counts, times and rates, so numbers are finite, not negative, and of a size that can be
computed with. What does not fit is said with its place, like ``measurements[3].steps_per_s``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

LARGEST = 10**18
"""No number of a profile is larger: an exabyte, or 30 billion years."""

T = TypeVar("T")


def load_object(text: str) -> dict[str, Any]:
    """The object that a JSON text is.

    Raises:
        ValueError: for anything else.
    """
    try:
        data = json.loads(text)
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return cast("dict[str, Any]", data)


def decode(kind: type[T], data: object, place: str) -> T:
    """A dataclass from JSON data, each field by its annotation.

    Args:
        kind: with fields of strings, numbers, literals, tuples, dicts, unions and such dataclasses.
        data: what JSON has there.
        place: of it, for messages.

    Raises:
        ValueError: with the place of the first value that does not fit.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{place} is no object")
    given = cast("Mapping[str, object]", data)
    hints = typing.get_type_hints(kind)
    fields = {item.name: item for item in dataclasses.fields(cast("Any", kind))}
    if unknown := sorted(given.keys() - fields.keys()):
        raise ValueError(f"{place} has an unknown field {unknown[0]}")
    needed = [name for name, item in fields.items() if _has_no_default(item)]
    if missing := [name for name in needed if name not in given]:
        raise ValueError(f"{place} lacks {missing[0]}")
    return kind(**{name: _value(hints[name], value, f"{place}.{name}") for name, value in given.items()})


def _has_no_default(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _value(hint: Any, data: object, place: str) -> Any:  # noqa: ANN401 - annotations and JSON
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return decode(cast("type[Any]", hint), data, place)
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(arguments, data, place)
    if origin is tuple and isinstance(data, list):
        return _tuple(arguments, cast("Sequence[object]", data), place)
    if origin is dict and isinstance(data, dict):
        pairs = cast("Mapping[str, object]", data)
        return {name: _value(arguments[1], item, f"{place}.{name}") for name, item in pairs.items()}
    if origin is Literal and isinstance(data, str) and data in arguments:
        return data
    if isinstance(hint, type) and _is_plain(hint, data):
        return data
    raise ValueError(f"{place} cannot be {_short(data)}")


def _first_that_fits(options: Sequence[Any], data: object, place: str) -> Any:  # noqa: ANN401
    for option in options:
        try:
            return _value(option, data, place)
        except ValueError:
            continue
    raise ValueError(f"{place} cannot be {_short(data)}")


def _tuple(arguments: Sequence[Any], data: Sequence[object], place: str) -> tuple[Any, ...]:
    hints = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
    if len(hints) != len(data):
        raise ValueError(f"{place} has {len(data)} values, not {len(hints)}")
    return tuple(_value(hint, item, f"{place}[{i}]") for i, (hint, item) in enumerate(zip(hints, data, strict=True)))


def _is_plain(hint: type, data: object) -> bool:
    """Whether ``data`` is a string, a truth value, nothing, or a number as a profile may have it."""
    if hint not in (int, float):
        return isinstance(data, hint)
    if isinstance(data, bool) or not isinstance(data, int | float if hint is float else int):
        return False
    return math.isfinite(data) and 0 <= data <= LARGEST


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 40 else f"{text[:37]}..."
