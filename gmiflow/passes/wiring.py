"""Edges of a workflow: endpoints, directions, roles, types, time lifting, and what stays unconnected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gmiflow.diagnostics import Fix
from gmiflow.passes.cycles import find_cycles
from gmiflow.passes.imports import Broken
from gmiflow.passes.insertion import line_behind
from gmiflow.passes.matching import Matcher, Wire
from gmiflow.passes.params import UnitScope, a_role, kind_name
from gmiflow.passes.report import MAX_SHOWN, Report
from gmiflow.passes.settings import EDGE, read_settings
from gmiflow.passes.stages import StageOf, StagePort
from gmiflow.passes.types import Weights, has_time, variables
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


def _gives(stage: StageOf, name: str) -> bool:
    port = stage.type.ports.get(name) if stage.type is not None else None
    return port is not None and port.direction == "out"


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
        self._lost: set[str] = set()
        self._matcher = Matcher(report)
        self.unifier = self._matcher.unifier
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
                if port.direction == "in" and port.name not in self._lost and not self._may_be_open(stage, port):
                    self._report_open(stage, port)
        for cycle in find_cycles(self.wires):
            self._report_cycle(cycle)

    def _report_cycle(self, cycle: Sequence[Wire]) -> None:
        self.whole = False
        names = [f"`{wire.source.name}`" for wire in cycle[:MAX_SHOWN]]
        stages = ", ".join(names[:-1]) + f" and {names[-1]}" if len(cycle) <= MAX_SHOWN else f"{len(cycle)} stages"
        places = [(wire.span, f"`{wire.target.name}` waits for `{wire.source.name}`") for wire in cycle[:-1]]
        message = f"{stages} wait for each other within one step"
        label = f"`{cycle[-1].target.name}` waits for `{cycle[-1].source.name}`"
        notes = ["leave out one of these edges"]
        self._report.add("E0406", message, cycle[-1].span, label=label, secondary=places[:MAX_SHOWN], notes=notes)

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
        fixes = self._edge_fix(stage, port)
        self._report.add("E0404", message, stage.declaration.name.span, secondary=places, notes=notes, fixes=fixes)
        self.whole = False

    def _edge_fix(self, stage: StageOf, port: StagePort) -> tuple[Fix, ...]:
        """Drive an input from the only output that has its name, in a line behind the last edge."""
        target = stage.declaration.role
        sources = [
            other.name
            for other in self.stages
            if (other.declaration.role, target) in _ROLE_PAIRS and other is not stage and _gives(other, port.name)
        ]
        if len(sources) != 1 or not self.wires:
            return ()
        edge = f"{sources[0]}.{port.name} -> {stage.name}.{port.name}"
        edit = line_behind(max((wire.span for wire in self.wires), key=lambda span: span.end), edge)
        return (Fix(title=f"write `{edge}`", edits=(edit,)),) if edit is not None else ()

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
        """After a wrong edge: its inputs count as driven, so that only the edge itself is reported.

        When the stage that it drives is unknown, inputs of these names may be those that were meant.
        """
        self.whole = False
        ports = edge.target.ports if edge.target.ports is not None else edge.source.ports
        if target is None:
            self._lost |= {port.text for port in ports or ()}
            return
        self.used.add(target.name)
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
            counts = f"{len(left)} port{'s' * (len(left) > 1)} on the left, {len(right)} on the right"
            self._report.add("E0211", counts, edge.span)
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
        if a is None:
            self._driven.setdefault(key, span)
            self.whole = False
            return
        if key in self._driven:
            first = [(self._driven[key], "driven here already")]
            self._report.add("E0403", f"input `{target.name}.{b.name}` is driven twice", right.span, secondary=first)
            self.whole = False
            return
        self._driven[key] = span
        if a.shape is None or b.shape is None or not self._roles(edge, source, a, target, b):
            self.whole = False
            return
        lift = has_time(b.shape) and not has_time(a.shape)
        wire = Wire(
            source=source, source_port=a, target=target, target_port=b, lift=lift, depth=attributes[0],
            on_full=attributes[1], span=span,
        )  # fmt: skip
        if self._matcher.match(wire):
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
