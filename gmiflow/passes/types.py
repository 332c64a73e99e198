"""Types of ports, and the unification of their shape variables over the edges of a workflow.

A shape is a tuple of sizes, axis names and variables. A variable belongs to a stage: the `O` of one stage
becomes the size that the stage on the other side of an edge has in that place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, cast

from gmiflow.ir.workflow import DType, PortType, RecordType, TensorType, WeightsType
from gmiflow.passes.evaluate import evaluate
from gmiflow.passes.params import LocalScope, kind_name
from gmiflow.passes.report import Report
from gmiflow.passes.values import INT, SCALARS
from gmiflow.syntax import ast
from gmiflow.syntax.words import AXES, DTYPES


@dataclass(frozen=True, slots=True)
class Variable:
    """A shape variable of a stage type."""

    name: str


Term: TypeAlias = "int | str | Variable"
"""One dimension: a size, an axis, or a variable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """`dtype[dims]`."""

    dtype: str
    dims: tuple[Term, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOf:
    """A record; with ``time`` its fields carry it in front already. ``declaration`` tells records apart."""

    name: str
    declaration: ast.Record
    fields: tuple[tuple[str, Tensor], ...]
    time: bool


@dataclass(frozen=True, slots=True)
class Weights:
    """`weights`."""


Shape: TypeAlias = "Tensor | RecordOf | Weights"


def port_type(node: ast.TypeExpression, scope: LocalScope, report: Report) -> Shape | None:
    """The type of a port or record field, with variables open."""
    if not isinstance(node, ast.NamedType):
        report.add("E0306", f"`{node.span.text}` is a type of parameters, not of data", node.span)
        return None
    name = node.path.text
    if name == "weights":
        if node.dims is not None:
            report.add("E0306", "`weights` has no shape", node.span)
            return None
        return Weights()
    if name in DTYPES:
        return _tensor(node, scope, report)
    return _record(node, scope, report)


def _tensor(node: ast.NamedType, scope: LocalScope, report: Report) -> Tensor | None:
    if node.dims is None:
        notes = [f"for example `{node.path.text}[env]` for one number per environment"]
        report.add("E0306", f"`{node.path.text}` needs a shape", node.span, notes=notes)
        return None
    dims = [_dimension(dim, scope, report) for dim in node.dims]
    if any(dim is None for dim in dims):
        return None
    return _check_axes(Tensor(dtype=node.path.text, dims=tuple(cast("list[Term]", dims))), node, report)


def _dimension(node: ast.Expression, scope: LocalScope, report: Report) -> Term | None:
    if isinstance(node, ast.Path) and len(node.names) == 1:
        name = node.text
        if name in AXES:
            return name
        if name[0].isupper() and name not in scope.values:
            return Variable(name)
    value = evaluate(node, scope, report, INT)
    if value is None:
        return None
    size = cast("int", value.value)
    if size < 1:
        report.add("E0306", f"a size is at least 1, not {size}", node.span)
        return None
    return size


def _check_axes(tensor: Tensor, node: ast.NamedType, report: Report) -> Tensor | None:
    """`env` exactly once, before all sizes; `time` at most once, in front of it."""
    if [dim for dim in tensor.dims[:2] if dim in AXES] in (["env"], ["time", "env"]):
        rest = tensor.dims[2 if tensor.dims[0] == "time" else 1 :]
        if not any(dim in AXES for dim in rest) and (tensor.dims[0] in AXES):
            return tensor
    notes = ["a shape starts with `env` or with `time, env`; sizes follow"]
    report.add("E0306", f"`{node.span.text}` has its axes in the wrong places", node.span, notes=notes)
    return None


def _record(node: ast.NamedType, scope: LocalScope, report: Report) -> RecordOf | None:
    first = node.path.names[0]
    if len(node.path.names) == 1 and first.text in SCALARS:
        notes = [f"elements of tensors are {', '.join(f'`{name}`' for name in DTYPES)}"]
        report.add("E0306", f"`{node.span.text}` is a type of parameters, not of data", node.span, notes=notes)
        return None
    if len(node.path.names) == 1 and first.text not in scope.outer.unit.names:
        records = [name for name, meaning in scope.outer.unit.names.items() if isinstance(meaning, ast.Record)]
        candidates = [*DTYPES, "weights", *records]
        report.unknown(
            "E0201", f"unknown type `{first.text}`", first.span, first.text, candidates, what="the types are"
        )
        return None
    found = scope.outer.find(node.path, ast.Record)
    if found is None:
        return None
    unit, meaning = found
    if not isinstance(meaning, ast.Record):
        report.add("E0207", f"`{node.path.text}` is {kind_name(meaning)}, not a type", node.path.span)
        return None
    time = node.dims is not None
    if time and not (len(node.dims or ()) == 1 and isinstance(node.dims[0], ast.Path) and node.dims[0].text == "time"):  # type: ignore[index]
        report.add("E0306", "a record takes `[time]` or no shape", node.span)
        return None
    return record_type(meaning, LocalScope(scope.outer.of(unit)), report, time=time)


def record_type(record: ast.Record, scope: LocalScope, report: Report, *, time: bool) -> RecordOf | None:
    """A record with its fields' types; its variables become those of the stage that uses it."""
    fields: list[tuple[str, Tensor]] = []
    for item in record.fields:
        kind = port_type(item.type, scope, report)
        if kind is not None and not isinstance(kind, Tensor):
            report.add("E0306", "a field of a record is a tensor", item.type.span)
        elif kind is not None and "time" in kind.dims:
            report.add("E0306", "a field describes one step; `time` is added where the record is used", item.type.span)
        elif kind is not None:
            fields.append((item.name.text, _with_time(kind) if time else kind))
    if len(fields) < len(record.fields):
        return None
    return RecordOf(name=record.name.text, declaration=record, fields=tuple(fields), time=time)


def _with_time(tensor: Tensor) -> Tensor:
    return Tensor(dtype=tensor.dtype, dims=("time", *tensor.dims))


def has_time(shape: Shape) -> bool:
    """Whether the data covers the rollout."""
    return shape.time if isinstance(shape, RecordOf) else isinstance(shape, Tensor) and "time" in shape.dims


def without_time(shape: Shape) -> Shape:
    """The data of one step."""
    if isinstance(shape, Tensor):
        return Tensor(dtype=shape.dtype, dims=tuple(dim for dim in shape.dims if dim != "time"))
    if isinstance(shape, RecordOf):
        fields = tuple((name, cast("Tensor", without_time(field))) for name, field in shape.fields)
        return RecordOf(name=shape.name, declaration=shape.declaration, fields=fields, time=False)
    return shape


def variables(shape: Shape) -> set[str]:
    """Names of the shape variables."""
    tensors = (
        [shape] if isinstance(shape, Tensor) else [f for _, f in shape.fields] if isinstance(shape, RecordOf) else []
    )
    return {dim.name for tensor in tensors for dim in tensor.dims if isinstance(dim, Variable)}


class Unifier:
    """Sizes of the shape variables of all stages of one workflow (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}
        self._size: dict[tuple[str, str], int] = {}

    def size(self, stage: str, variable: str) -> int | None:
        """The size that a variable has, or None while it is open."""
        return self._size.get(self._root((stage, variable)))

    def unify(self, left_stage: str, left: Term, right_stage: str, right: Term) -> bool:
        """Make two dimensions the same; False when they cannot be."""
        a, b = self._resolve(left_stage, left), self._resolve(right_stage, right)
        if isinstance(a, tuple) and isinstance(b, tuple):
            if a != b:
                self._parent[a] = b
            return True
        if isinstance(a, tuple) or isinstance(b, tuple):
            variable, size = (a, b) if isinstance(a, tuple) else (b, a)
            if not isinstance(size, int):
                return False
            self._size[cast("tuple[str, str]", variable)] = size
            return True
        return a == b

    def text(self, stage: str, shape: Shape) -> str:
        """A type as the language writes it, with the sizes that are known."""
        if isinstance(shape, Weights):
            return "weights"
        if isinstance(shape, RecordOf):
            return shape.name + ("[time]" if shape.time else "")
        return f"{shape.dtype}[{', '.join(self._dim_text(stage, dim) for dim in shape.dims)}]"

    def resolve(self, stage: str, shape: Shape) -> PortType | None:
        """The type with all variables replaced, or None when one is open."""
        if isinstance(shape, Weights):
            return WeightsType()
        if isinstance(shape, Tensor):
            return self._tensor(stage, shape)
        fields = [(name, self._tensor(stage, tensor)) for name, tensor in shape.fields]
        closed = tuple((name, tensor) for name, tensor in fields if tensor is not None)
        return RecordType(name=shape.name, fields=closed) if len(closed) == len(fields) else None

    def _tensor(self, stage: str, tensor: Tensor) -> TensorType | None:
        dims = [self.size(stage, dim.name) if isinstance(dim, Variable) else dim for dim in tensor.dims]
        closed = tuple(dim for dim in dims if dim is not None)
        return TensorType(dtype=cast("DType", tensor.dtype), shape=closed) if len(closed) == len(dims) else None

    def dimension(self, stage: str, dim: Term) -> str:
        """One dimension in words: its size, its axis, or the name of an open variable."""
        return str(self.size(stage, dim.name) or dim.name) if isinstance(dim, Variable) else str(dim)

    def _dim_text(self, stage: str, dim: Term) -> str:
        if isinstance(dim, Variable):
            size = self.size(stage, dim.name)
            return dim.name if size is None else f"{dim.name}={size}"
        return str(dim)

    def _resolve(self, stage: str, dim: Term) -> int | str | tuple[str, str]:
        if not isinstance(dim, Variable):
            return dim
        root = self._root((stage, dim.name))
        return self._size.get(root, root)

    def _root(self, key: tuple[str, str]) -> tuple[str, str]:
        path: list[tuple[str, str]] = []
        while (parent := self._parent.get(key)) is not None:
            path.append(key)
            key = parent
        for step in path:
            self._parent[step] = key
        return key
