"""Stage types and stages: parameters evaluated, ports with their types (shape variables still open)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from gmiflow.ir.workflow import Value
from gmiflow.passes.arguments import bind_arguments, check_param_list
from gmiflow.passes.evaluate import evaluate, is_true
from gmiflow.passes.imports import Broken
from gmiflow.passes.params import Given, LocalScope, UnitScope, a_role, kind_name
from gmiflow.passes.python_class import Use
from gmiflow.passes.python_entry import check_entry
from gmiflow.passes.report import Report
from gmiflow.passes.settings import NEEDS, STAGE, STAGE_TYPE, read_settings, split_body
from gmiflow.passes.types import Shape, Tensor, Weights, port_type
from gmiflow.passes.values import FLOAT
from gmiflow.plan import Role, Update
from gmiflow.source import Span
from gmiflow.syntax import ast


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePort:
    """A port; ``shape`` is None when its type is wrong."""

    name: str
    direction: Literal["in", "out"]
    shape: Shape | None
    range: tuple[float, float] | None
    optional: bool
    span: Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Elaborated:
    """A stage type with arguments.

    Attributes:
        whole: False when something in it is wrong; then nothing is reported about what is missing.
    """

    entry: str
    params: tuple[tuple[str, Value], ...]
    ports: dict[str, StagePort]
    needs: tuple[tuple[str, Value], ...]
    update: Update
    whole: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOf:
    """A stage of the file. ``type`` is None when it could not be made from its type."""

    declaration: ast.StageInstance
    type: Elaborated | None
    type_name: str
    python: str | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.declaration.name.text

    @property
    def role(self) -> Role:
        """Its role."""
        return self.declaration.role


class StageMaker:
    """Makes stages; equal arguments to one type are worked out once."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._made: dict[tuple[int, tuple[tuple[str, Value], ...]], Elaborated] = {}
        self._checked: set[int] = set()
        self._entries: set[tuple[int, Use]] = set()

    def check_type(self, scope: UnitScope, declared: ast.StageType, used: Use = "declared") -> None:
        """Check a stage type by itself, with its defaults (parameters without one are left open).

        Args:
            scope: of its file.
            declared: the type.
            used: by a stage in this interpreter or in another; by none as far as is known.
        """
        if used != "declared" or id(declared) not in self._checked:
            self._check_entry(scope, declared, used)
        if id(declared) in self._checked:
            return
        self._checked.add(id(declared))
        report = self._report
        check_param_list(declared.params or (), report)
        parts = split_body(declared.body, (ast.Setting, ast.Port, ast.Require), ("needs",), "a stage type", report)
        seen: dict[str, Span] = {}
        for port in cast("list[ast.Port]", parts[ast.Port]):
            if port.name.text in seen:
                first = [(seen[port.name.text], "first declared here")]
                report.add("E0202", f"port `{port.name.text}` is declared twice", port.name.span, secondary=first)
            seen[port.name.text] = port.name.span

    def check_alone(self, scope: UnitScope, declared: ast.StageType) -> None:
        """Elaborate a type that no stage need use, when every parameter has a default."""
        if all(param.default is not None for param in declared.params or ()):
            self._instantiate(scope, scope, declared, (), {}, declared.name.text, declared.name.span)

    def stage(self, scope: UnitScope, declared: ast.StageInstance, overrides: dict[str, Given]) -> StageOf:
        """Make one stage."""
        report = self._report
        settings = read_settings(declared.settings or (), STAGE, scope, report, owner="a stage")
        python = settings.get("python")
        if python is not None and declared.role != "simulator":
            report.add("E0209", "only a simulator can run in another Python", python.name_span)
        value = python.value.value if python is not None and python.value is not None else None
        path = value if isinstance(value, str) else None
        hosted = path is not None and declared.role == "simulator"
        made = self._make(scope, declared, overrides, "hosted" if hosted else "here")
        return StageOf(declaration=declared, type=made, type_name=declared.type.text, python=path)

    def _make(
        self, scope: UnitScope, declared: ast.StageInstance, overrides: dict[str, Given], used: Use
    ) -> Elaborated | None:
        found = self._find_type(scope, declared)
        if found is None:
            return None
        home, kind = found
        self.check_type(home, kind, used)
        arguments = declared.arguments or ()
        return self._instantiate(home, scope, kind, arguments, overrides, declared.type.text, declared.type.span)

    def _instantiate(
        self,
        home: UnitScope,
        caller: UnitScope,
        kind: ast.StageType,
        arguments: tuple[ast.Argument, ...],
        overrides: dict[str, Given],
        called: str,
        at: Span,
    ) -> Elaborated | None:
        """A stage type with arguments, from the cache when it was made before."""
        values = bind_arguments(kind.params or (), arguments, overrides, caller, home, called, at)
        if values is None or any(value is None for value in values.values()):
            return None
        params = tuple((name, typed.value) for name, typed in values.items() if typed is not None)
        key = (id(kind), params)
        if key not in self._made:
            local = LocalScope(home)
            local.values = values
            self._made[key] = self._elaborate(local, kind, params)
        return self._made[key]

    def _find_type(self, scope: UnitScope, declared: ast.StageInstance) -> tuple[UnitScope, ast.StageType] | None:
        report = self._report
        found = scope.find(declared.type, ast.StageType)
        if found is None:
            return None
        unit, meaning = found
        name = declared.type.text
        if not isinstance(meaning, ast.StageType):
            report.add("E0207", f"`{name}` is {kind_name(meaning)}, not a stage type", declared.type.span)
            return None
        if meaning.role != declared.role:
            place = [(meaning.name.span, "declared here")]
            message = f"`{name}` is {a_role(meaning.role)}, not {a_role(declared.role)}"
            report.add("E0207", message, declared.type.span, secondary=place)
        return scope.of(unit), meaning

    def _check_entry(self, scope: UnitScope, declared: ast.StageType, used: Use) -> None:
        if (id(declared), used) in self._entries:
            return
        self._entries.add((id(declared), used))
        settings = (s for s in declared.body if isinstance(s, ast.Setting))
        entry = next((s.value for s in settings if s.name.text == "entry"), None)
        if isinstance(entry, ast.PythonEntry):
            params = {param.name.text: param.name.span for param in declared.params or ()}
            check_entry(entry, declared.role, params, scope.unit.folder, self._report, used)
        elif entry is None and not isinstance(scope.unit.names.get(declared.name.text), Broken):
            notes = ['write `entry = py "package.module:Class"`']
            message = f"stage type `{declared.name.text}` has no `entry`"
            self._report.add("E0409", message, declared.name.span, notes=notes)

    def _elaborate(self, local: LocalScope, kind: ast.StageType, params: tuple[tuple[str, Value], ...]) -> Elaborated:
        report = self._report
        before = len(report)
        ports = {s.name.text: self._port(s, local) for s in kind.body if isinstance(s, ast.Port)}
        settings = [s for s in kind.body if isinstance(s, ast.Setting)]
        found = read_settings(settings, STAGE_TYPE, local, report, owner="a stage type")
        entry, update = found.get("entry"), found.get("update")
        if update is not None and kind.role != "trainer":
            report.add("E0209", "only a trainer has `update`", update.name_span)
        needs: list[tuple[str, Value]] = []
        for statement in kind.body:
            if isinstance(statement, ast.Section) and statement.name.text == "needs":
                wanted = read_settings(statement.settings, NEEDS, local, report, owner="`needs`")
                needs += [(name, item.value.value) for name, item in wanted.items() if item.value is not None]
            elif isinstance(statement, ast.Require):
                check_require(statement, local, report)
        text = entry.value.value if entry is not None and entry.value is not None else ""
        whole = len(report) == before and bool(text)
        chosen = cast("Update", update.value.value if update is not None and update.value is not None else "reduce")
        return Elaborated(entry=str(text), params=params, ports=ports, needs=tuple(needs), update=chosen, whole=whole)

    def _port(self, port: ast.Port, local: LocalScope) -> StagePort:
        shape = port_type(port.type, local, self._report)
        bounds = self._range(port, shape, local) if port.range is not None else None
        return StagePort(
            name=port.name.text,
            direction=port.direction,
            shape=shape,
            range=bounds,
            optional=port.optional,
            span=port.name.span,
        )

    def _range(self, port: ast.Port, shape: Shape | None, local: LocalScope) -> tuple[float, float] | None:
        assert port.range is not None
        low, high = (evaluate(bound, local, self._report, FLOAT) for bound in port.range)
        if low is None or high is None:
            return None
        span = Span(port.span.source, port.range[0].span.start, port.range[1].span.end)
        if isinstance(shape, Weights) or (isinstance(shape, Tensor) and shape.dtype == "bool"):
            self._report.add("E0410", "only numbers have a range", span)
            return None
        bounds = (cast("float", low.value), cast("float", high.value))
        if not bounds[0] < bounds[1]:
            self._report.add("E0410", "this range is empty: the first bound must be below the second", span)
            return None
        return bounds


def check_require(statement: ast.Require, scope: LocalScope | UnitScope, report: Report) -> None:
    """Report the user's message when a requirement does not hold."""
    if is_true(statement.condition, scope, report) is False:
        report.add("E0402", statement.message, statement.condition.span, label="this does not hold")
