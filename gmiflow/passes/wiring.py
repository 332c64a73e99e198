"""Edges of a workflow: endpoints, directions, roles, types, time lifting, and what stays unconnected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gmiflow.passes.imports import Broken
from gmiflow.passes.params import UnitScope, a_role, kind_name
from gmiflow.passes.report import Report
from gmiflow.passes.settings import EDGE, read_settings
from gmiflow.passes.stages import StageOf, StagePort
from gmiflow.passes.types import RecordOf, Shape, Tensor, Unifier, Weights, has_time, variables, without_time
from gmiflow.source import Span
from gmiflow.syntax import ast

_ROLE_PAIRS = {
    ("simulator", "agent"),
    ("agent", "simulator"),
    ("simulator", "trainer"),
    ("agent", "trainer"),
    ("trainer", "agent"),
    ("agent", "agent"),
    ("simulator", "simulator"),
}


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


class Wiring:
    """The edges of one workflow.

    Attributes:
        stages: the stages that edges mention, in order of declaration.
        whole: False when an edge is wrong; then nothing is said about what is missing.
    """

    def __init__(self, scope: UnitScope, stages: Mapping[str, StageOf], mode: str | None, report: Report) -> None:
        self._scope = scope
        self._all = stages
        self._mode = mode
        self._report = report
        self._driven: dict[tuple[str, str], Span] = {}
        self._doubtful: set[str] = set()
        self._origin: dict[tuple[str, str], Wire] = {}
        self.unifier = Unifier()
        self.wires: list[Wire] = []
        self.used: set[str] = set()
        self.whole = True

    @property
    def stages(self) -> list[StageOf]:
        """Stages that edges mention, in order of declaration."""
        return [stage for name, stage in self._all.items() if name in self.used]

    def connect(self, edges: Iterable[ast.Edge]) -> None:
        """Check all edges."""
        for edge in edges:
            source, target = self._stage(edge.source), self._stage(edge.target)
            attributes = self._attributes(edge)
            if source is None or target is None:
                self._spoil(edge, target)
                continue
            self.used |= {source.name, target.name}
            if source.type is None or target.type is None:
                self._spoil(edge, target)
                continue
            for source_name, target_name in self._pairs(edge, source, target):
                self._connect(edge, source, source_name, target, target_name, attributes)

    def check_complete(self) -> None:
        """Report required inputs that nothing drives, and cycles that nothing breaks."""
        for stage in self.stages:
            if stage.type is None or not stage.type.whole or stage.name in self._doubtful:
                self.whole = False
                continue
            for port in stage.type.ports.values():
                if port.direction == "in" and not self._may_be_open(stage, port):
                    self._report_open(stage, port)
        self._check_cycles()

    def check_sizes(self) -> None:
        """Report shape variables that no edge gives a size."""
        for stage in self.stages:
            self._check_sizes(stage)

    def _may_be_open(self, stage: StageOf, port: StagePort) -> bool:
        served = self._mode == "serve" and isinstance(port.shape, Weights)
        return port.optional or served or (stage.name, port.name) in self._driven

    def _report_open(self, stage: StageOf, port: StagePort) -> None:
        notes = [f"add an edge `... -> {stage.name}.{port.name}`, or mark the port `optional`"]
        message = f"input `{stage.name}.{port.name}` is not driven"
        places = [(port.span, "the input is declared here")]
        self._report.add("E0404", message, stage.declaration.name.span, secondary=places, notes=notes)
        self.whole = False

    def _check_sizes(self, stage: StageOf) -> None:
        assert stage.type is not None
        for port in stage.type.ports.values():
            for name in sorted(variables(port.shape)) if port.shape is not None else ():
                if self.unifier.size(stage.name, name) is None:
                    message = f"no edge gives the size `{name}` of `{stage.name}` a value"
                    places = [(port.span, f"`{name}` is used here")]
                    self._report.add("E0304", message, stage.declaration.name.span, secondary=places)
                    self.whole = False
                    return

    def _stage(self, endpoint: ast.Endpoint) -> StageOf | None:
        name = endpoint.stage.text
        if name in self._all:
            return self._all[name]
        meaning = self._scope.unit.names.get(name)
        if meaning is None:
            message = f"there is no stage `{name}`"
            self._report.unknown("E0201", message, endpoint.stage.span, name, self._all, what="the stages are")
        elif not isinstance(meaning, Broken | ast.StageInstance):
            self._report.add("E0207", f"`{name}` is {kind_name(meaning)}, not a stage", endpoint.stage.span)
        return None

    def _spoil(self, edge: ast.Edge, target: StageOf | None) -> None:
        """After a wrong edge: its inputs count as driven, so that only the edge itself is reported."""
        self.whole = False
        if target is None:
            return
        self.used.add(target.name)
        ports = edge.target.ports if edge.target.ports is not None else edge.source.ports
        if ports is None:
            self._doubtful.add(target.name)
        for port in ports or ():
            self._driven.setdefault((target.name, port.text), edge.span)

    def _pairs(self, edge: ast.Edge, source: StageOf, target: StageOf) -> Sequence[tuple[ast.Name, ast.Name]]:
        """Port names at both ends: a bare stage takes the names of the other end."""
        left, right = edge.source.ports, edge.target.ports
        if left is None and right is None:
            notes = [f"name them: `{source.name}.port -> {target.name}.port`"]
            self._report.add("E0211", "this edge names no port", edge.span, notes=notes)
            self._spoil(edge, target)
            return ()
        pairs = list(zip(left or right or (), right or left or (), strict=False))
        if left is not None and right is not None and len(left) != len(right):
            self._report.add("E0211", f"{len(left)} ports on the left, {len(right)} on the right", edge.span)
            self._spoil(edge, target)
            return ()
        return pairs

    def _connect(
        self,
        edge: ast.Edge,
        source: StageOf,
        left: ast.Name,
        target: StageOf,
        right: ast.Name,
        attributes: tuple[int, str],
    ) -> None:
        a = self._port(source, left, "out")
        b = self._port(target, right, "in")
        span = edge.span
        if b is None:
            self.whole = False
            self._doubtful.add(target.name)
            return
        key = (target.name, b.name)
        if key in self._driven:
            first = [(self._driven[key], "driven here already")]
            self._report.add("E0403", f"input `{target.name}.{b.name}` is driven twice", right.span, secondary=first)
            self.whole = False
            return
        self._driven[key] = span
        if a is None or a.shape is None or b.shape is None or not self._roles(edge, source, a, target, b):
            self.whole = False
            return
        lift = has_time(b.shape) and not has_time(a.shape)
        wire = Wire(
            source=source, source_port=a, target=target, target_port=b, lift=lift, depth=attributes[0],
            on_full=attributes[1], span=span,
        )  # fmt: skip
        if self._unify(wire, left, right):
            self.wires.append(wire)
        else:
            self.whole = False

    def _port(self, stage: StageOf, name: ast.Name, direction: str) -> StagePort | None:
        assert stage.type is not None
        port = stage.type.ports.get(name.text)
        if port is None:
            if stage.type.whole:
                ports = [p.name for p in stage.type.ports.values() if p.direction == direction]
                what = f"its {'outputs' if direction == 'out' else 'inputs'} are"
                message = f"`{stage.name}` has no port `{name.text}`"
                self._report.unknown("E0211", message, name.span, name.text, ports, what=what)
            return None
        if port.direction != direction:
            side = "an input and cannot be the source" if direction == "out" else "an output and cannot be the target"
            places = [(port.span, "declared here")]
            message = f"`{stage.name}.{name.text}` is {side} of an edge"
            self._report.add("E0405", message, name.span, secondary=places)
            self._driven.setdefault((stage.name, name.text), name.span)
            return None
        return port

    def _roles(self, edge: ast.Edge, source: StageOf, a: StagePort, target: StageOf, b: StagePort) -> bool:
        if source.name == target.name:
            message = f"`{source.name}` would need its own `{a.name}` of the same step"
            self._report.add("E0406", message, edge.span)
            return False
        if (source.role, target.role) in _ROLE_PAIRS:
            return True
        message = f"{a_role(source.role)} cannot drive {a_role(target.role)}"
        places = [(a.span, f"output of the {source.role}"), (b.span, f"input of the {target.role}")]
        notes = ["simulator and agent drive each other and the trainer; the trainer gives the agent its weights"]
        self._report.add("E0405", message, edge.span, secondary=places, notes=notes)
        return False

    def _attributes(self, edge: ast.Edge) -> tuple[int, str]:
        """Depth and on_full."""
        if edge.attributes is None:
            return 1, "block"
        found = read_settings(edge.attributes, EDGE, self._scope, self._report, owner="an edge")
        if found and self._mode in ("sync", "serve"):
            notes = [f"in `{self._mode}` every step is used at once; write `mode = async {{ ... }}` for a channel"]
            span = next(iter(found.values())).name_span
            self._report.add("E0407", "only edges of an `async` workflow have attributes", span, notes=notes)
        depth, on_full = (found[n].value if n in found else None for n in ("depth", "on_full"))
        number = depth.value if depth is not None else 1
        return number if isinstance(number, int) else 1, str(on_full.value) if on_full is not None else "block"

    # Types

    def _unify(self, wire: Wire, left: ast.Name, right: ast.Name) -> bool:
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
        places += self._size_origins(wire)
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

    def _check_cycles(self) -> None:
        """Report cycles among stages of one role: nothing in them waits for the next step."""
        graph: dict[str, list[Wire]] = {}
        for wire in self.wires:
            if wire.source.role == wire.target.role:
                graph.setdefault(wire.source.name, []).append(wire)
        done: set[str] = set()
        for start in graph:
            self._search_cycle(start, graph, done)

    def _search_cycle(self, start: str, graph: Mapping[str, list[Wire]], done: set[str]) -> None:
        """Depth-first search from one stage, without recursion."""
        path = {start}
        stack = [(start, iter(graph.get(start, ())))] if start not in done else []
        while stack:
            name, wires = stack[-1]
            wire = next(wires, None)
            if wire is None:
                done.add(name)
                path.discard(name)
                stack.pop()
            elif wire.target.name in path:
                self._report.add("E0406", "these stages wait for each other within one step", wire.span)
                self.whole = False
                return
            elif wire.target.name not in done:
                path.add(wire.target.name)
                stack.append((wire.target.name, iter(graph.get(wire.target.name, ()))))
