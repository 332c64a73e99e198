"""Do the types at both ends of an edge match? Unification with messages that show both sides."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.passes.report import Report
from gmiflow.passes.stages import StageOf, StagePort
from gmiflow.passes.types import RecordOf, Shape, Tensor, Unifier, has_time, variables, without_time
from gmiflow.source import Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """One port to one port."""

    source: StageOf
    source_port: StagePort
    target: StageOf
    target_port: StagePort
    lift: bool
    depth: int
    on_full: str
    span: Span


class Matcher:
    """Matches the wires of one workflow, in order, and remembers which gave a shape variable its size."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._origin: dict[tuple[str, str], Wire] = {}
        self.unifier = Unifier()

    def match(self, wire: Wire) -> bool:
        """Unify the types at both ends of a wire; False after reporting why they do not match."""
        a, b = wire.source_port.shape, wire.target_port.shape
        assert a is not None
        assert b is not None
        before = (self.unifier.text(wire.source.name, a), self.unifier.text(wire.target.name, b))
        if has_time(a) and not has_time(b):
            self._mismatch("E0302", wire, before, "a whole rollout cannot drive an input that takes one step")
            return False
        problem = self._problem(wire, without_time(a) if wire.lift else a, without_time(b) if wire.lift else b)
        if problem is not None:
            self._mismatch(*problem[:1], wire, before, problem[1])
            return False
        bounds, allowed = wire.source_port.range, wire.target_port.range
        if bounds is not None and allowed is not None and (bounds[1] <= allowed[0] or bounds[0] >= allowed[1]):
            places = [(wire.source_port.span, "declared here"), (wire.target_port.span, "declared here")]
            self._report.add("E0410", "the ranges of these ports have no number in common", wire.span, secondary=places)
            return False
        self._remember(wire)
        return True

    def _problem(self, wire: Wire, a: Shape, b: Shape) -> tuple[str, str] | None:
        """Code and explanation of why two types do not match, None when they do."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self._tensor_problem(wire, a, b)
        if isinstance(a, RecordOf) and isinstance(b, RecordOf):
            if a.declaration is not b.declaration:
                return "E0308", f"`{a.name}` and `{b.name}` are different records"
            for (name, left), (_, right) in zip(a.fields, b.fields, strict=True):
                problem = self._tensor_problem(wire, left, right)
                if problem is not None:
                    return problem[0], f"field `{name}`: {problem[1]}"
            return None
        if type(a) is type(b):
            return None
        return "E0308", "one is a tensor, a record or weights, and the other is not"

    def _tensor_problem(self, wire: Wire, a: Tensor, b: Tensor) -> tuple[str, str] | None:
        if a.dtype != b.dtype:
            return "E0303", f"elements are {a.dtype} on the left and {b.dtype} on the right"
        if len(a.dims) != len(b.dims):
            return "E0302", f"{len(a.dims)} axes on the left, {len(b.dims)} on the right"
        for axis, (left, right) in enumerate(zip(a.dims, b.dims, strict=True), 1):
            if not self.unifier.unify(wire.source.name, left, wire.target.name, right):
                sizes = [self.unifier.dimension(s.name, d) for s, d in ((wire.source, left), (wire.target, right))]
                return "E0302", f"axis {axis} is {sizes[0]} on the left and {sizes[1]} on the right"
        return None

    def _remember(self, wire: Wire) -> None:
        for stage, port in ((wire.source, wire.source_port), (wire.target, wire.target_port)):
            for name in variables(port.shape) if port.shape is not None else ():
                self._origin.setdefault((stage.name, name), wire)

    def _mismatch(self, code: str, wire: Wire, shapes: tuple[str, str], why: str) -> None:
        source = f"`{wire.source.name}.{wire.source_port.name}`"
        target = f"`{wire.target.name}.{wire.target_port.name}`"
        places = [
            (wire.source_port.span, f"{source} is {shapes[0]}"),
            (wire.target_port.span, f"{target} is {shapes[1]}"),
        ]
        places += self._size_origins(wire) if code == "E0302" else []
        message = f"{source} is {shapes[0]}, but {target} takes {shapes[1]}"
        self._report.add(code, message, wire.span, secondary=places, notes=[why])

    def _size_origins(self, wire: Wire) -> list[tuple[Span, str]]:
        """The edges that gave the variables of this edge their sizes."""
        places: list[tuple[Span, str]] = []
        for stage, port in ((wire.source, wire.source_port), (wire.target, wire.target_port)):
            for name in sorted(variables(port.shape)) if port.shape is not None else ():
                origin = self._origin.get((stage.name, name))
                size = self.unifier.size(stage.name, name)
                if origin is not None and size is not None:
                    places.append((origin.span, f"`{name}` of `{stage.name}` became {size} here"))
        return places
