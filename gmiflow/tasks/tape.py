"""Torch operations that are recorded once and replayed by NumPy: what a CUDA graph is to a GPU, for the CPU.

A control step of a few hundred environments is some seventy operations on small tensors, each far shorter than what
torch needs to start it. It is worse after some milliseconds of physics, which leave nothing of the interpreter and of
torch in the cores' caches: the first operation then takes fifteen times as long as when it is repeated at once, and
the first of each other kind is slow again. NumPy reaches its loops by a much shorter way, cold or warm. A step makes
the same operations on the same memory every time, as CUDA graphs demand it anyway, so it is written once, in torch,
and neither its Python code nor torch's dispatch need to run again.

NumPy rounds products before it adds them, where torch fuses the two, and has its own arcus tangent: results may differ
from torch's in the last bits. So a tape is replayed from the very first step on, never mixed with what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from gmiflow.api import Floats

__all__ = ["Tape", "TapePerCount", "record"]

Array = np.ndarray[Any, Any]
Call = Callable[[], object]
Results = TypeVar("Results")

ROOM = 64
"""Numbers of rows whose tapes are kept at most."""


class Tape:
    """A fixed sequence of calls on fixed memory."""

    def __init__(self, calls: Sequence[Call]) -> None:
        """Keep the calls, each complete with its operands."""
        self._calls = tuple(calls)

    def __call__(self) -> None:
        """Make all calls; like torch's operations they give inf and NaN without a warning."""
        with np.errstate(all="ignore"):
            for call in self._calls:
                call()


def record(operations: Callable[[], None]) -> Tape:
    """Run ``operations`` and record what they write; all tensors are afterwards as they were.

    Args:
        operations: in-place operations and ones with ``out=`` on CPU tensors that outlive the tape, and views of
            them. What is not a tensor operation (Python numbers, NumPy) is frozen as it was while recording.

    Raises:
        ValueError: an operation makes a new tensor, which has no fixed place.
    """
    recorder = _Recorder()
    with torch.no_grad():
        try:
            with recorder:
                operations()
        finally:
            recorder.undo()
    return Tape(recorder.calls)


class TapePerCount(Generic[Results]):
    """A function of a tensor with any number of rows, recorded once for each number of them."""

    def __init__(self, function: Callable[[Tensor], Results], most: Tensor) -> None:
        """Replay ``function``, whose results have a fixed place, on what fits into ``most``, f32 [rows, width]."""
        self._function, self._most = function, most
        self._kept: dict[int, tuple[Tape, Array, Results]] = {}

    def __call__(self, values: Tensor | Floats) -> Results:
        """What the function makes of ``values``, f32 [k, width]."""
        count = values.shape[0]
        found = self._kept.get(count)
        if found is None:
            if len(self._kept) == ROOM:
                self._kept.clear()
            found = self._kept[count] = self._record(count)
        tape, place, results = found
        np.copyto(place, values)
        tape()
        return results

    def _record(self, count: int) -> tuple[Tape, Array, Results]:
        place, results = self._most[:count], list[Results]()
        tape = record(lambda: results.append(self._function(place)))
        return tape, place.numpy(), results[0]


class _Recorder(TorchDispatchMode):
    """Lets operations pass and keeps calls that repeat them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        named = kwargs or {}
        if func.is_view:
            return func(*args, **named)
        if not func._schema.is_mutable:
            raise ValueError(f"{func} makes a new tensor; on a tape every result needs a place of its own: use out=")
        self._before += [(target, target.clone()) for target in _written(func, args, named)]
        result = func(*args, **named)
        self.calls += _calls(func, args, named)
        return result

    def undo(self) -> None:
        """Put back what the operations have written."""
        for target, before in reversed(self._before):
            target.copy_(before)


def _written(func: OpOverload, args: tuple[Any, ...], named: dict[str, Any]) -> list[Tensor]:
    """The arguments that an operation writes into."""
    return [
        named[argument.name] if argument.name in named else args[place]
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _calls(func: OpOverload, args: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Call]:
    """NumPy calls that do what ``func`` does; the operation itself where NumPy's way is not known."""
    translate = _TRANSLATIONS.get(func._schema.name.removeprefix("aten::").removesuffix("_"))
    if translate is None:
        yield partial(func, *args, **named)
        return
    (target,) = _written(func, args, named)
    kind = args[0].numpy().dtype

    def operand(value: object) -> object:
        """Tensors as arrays of the same memory; numbers as arrays, which NumPy need not convert in every call."""
        if isinstance(value, Tensor):
            return value.numpy()
        return np.array(value, kind) if isinstance(value, float | int) else value

    rest = {name: operand(value) for name, value in named.items() if name != "out"}
    yield from translate(target.numpy(), *map(operand, args), **rest)


def _elementwise(ufunc: np.ufunc) -> Callable[..., Iterator[Call]]:
    def translate(out: Array, *operands: Array) -> Iterator[Call]:
        yield partial(ufunc, *operands, out=out)

    return translate


def _scaled(ufunc: np.ufunc) -> Callable[..., Iterator[Call]]:
    """Sums and differences whose second operand may have a factor."""

    def translate(out: Array, left: Array, right: Array, *, alpha: Array | None = None) -> Iterator[Call]:
        if alpha is not None:
            product = np.empty_like(right, dtype=out.dtype)
            yield partial(np.multiply, right, alpha, out=product)
            right = product
        yield partial(ufunc, left, right, out=out)

    return translate


def _add_product(out: Array, base: Array, left: Array, right: Array, *, value: Array | None = None) -> Iterator[Call]:
    product = np.empty_like(out)
    yield partial(np.multiply, left, right, out=product)
    if value is not None:
        yield partial(np.multiply, product, value, out=product)
    yield partial(np.add, base, product, out=out)


def _clamp(out: Array, values: Array, min: Array | None = None, max: Array | None = None) -> Iterator[Call]:
    for ufunc, limit in ((np.maximum, min), (np.minimum, max)):
        if limit is not None:
            yield partial(ufunc, values, limit, out=out)
            values = out


def _copy(out: Array, _: Array, values: Array) -> Iterator[Call]:
    yield partial(np.copyto, out, values, casting="unsafe")


def _fill_where(out: Array, _: Array, mask: Array, value: Array) -> Iterator[Call]:
    yield partial(np.copyto, out, value, where=mask)


def _choose(out: Array, mask: Array, values: Array, others: Array) -> Iterator[Call]:
    chosen = np.empty_like(out)
    yield partial(np.copyto, chosen, others)
    yield partial(np.copyto, chosen, values, where=mask)
    yield partial(np.copyto, out, chosen)


def _take_rows(out: Array, values: Array, axis: Array, rows: Array) -> Iterator[Call]:
    # The rows were checked when they were recorded; not checked again, they are written without a detour.
    yield partial(values.take, rows, int(axis), out, "clip")


def _sum(out: Array, values: Array, axes: list[int]) -> Iterator[Call]:
    reduce: Callable[..., object] = np.add.reduce
    yield partial(reduce, values, tuple(axes), out=out)


_TRANSLATIONS: dict[str, Callable[..., Iterator[Call]]] = {
    "abs": lambda out, values: _elementwise(np.absolute)(out, values),
    "add": _scaled(np.add),
    "addcmul": _add_product,
    "atan2": _elementwise(np.arctan2),
    "clamp": _clamp,
    "copy": _copy,
    "div": _elementwise(np.divide),
    "ge": _elementwise(np.greater_equal),
    "gt": _elementwise(np.greater),
    "hypot": _elementwise(np.hypot),
    "index_select": _take_rows,
    "le": _elementwise(np.less_equal),
    "logical_or": _elementwise(np.logical_or),
    "lt": _elementwise(np.less),
    "masked_fill": _fill_where,
    "mul": _elementwise(np.multiply),
    "sub": _scaled(np.subtract),
    "sum": _sum,
    "where": _choose,
}
"""By an operation's name without namespace, overload and the underscore of an in-place one."""
