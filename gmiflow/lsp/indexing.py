"""The walk over a syntax tree that finds every name of a file and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gmiflow.lsp.symbols import (
    DECLARATIONS,
    BareEnd,
    Index,
    Occurrence,
    Symbol,
    SymbolKind,
    enum_of,
    file_key,
    is_size,
    ports_of,
    resolve,
    sizes_of,
    stage_type,
)
from gmiflow.passes.imports import Unit
from gmiflow.passes.settings import EDGE, MODE_BLOCK, NEEDS, SIZING, STAGE, STAGE_TYPE, TARGET, WORKFLOW, Spec
from gmiflow.passes.values import SCALARS
from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.words import AXES, DTYPES, FUNCTIONS

TABLES: dict[str, Mapping[str, Spec]] = {
    "workflow": WORKFLOW,
    "mode": MODE_BLOCK,
    "sizing": SIZING,
    "edge": EDGE,
    "stage": STAGE,
    "stage type": STAGE_TYPE,
    "needs": NEEDS,
    "target": TARGET,
}
"""Owner of settings to what there is."""

SECTIONS: dict[str, tuple[str, ...]] = {"workflow": ("sizing", "place"), "stage type": ("needs",), "target": ()}


@dataclass(frozen=True, slots=True)
class _Scope:
    """Names inside a declaration: its parameters, and which of its shape variables were seen."""

    owner: str = ""
    params: dict[str, ast.Param] = field(default_factory=dict[str, ast.Param])
    variables: dict[str, ast.Name] = field(default_factory=dict[str, ast.Name])


Members = Mapping[str, Symbol]
"""Words that a bare name is first, where an enum is expected."""


def index_unit(unit: Unit, path: Path, paths: Mapping[str, Path]) -> Index:
    """Find the names of a file.

    Args:
        unit: the file.
        path: where it is.
        paths: name of a source to its file, for what the file imports.
    """
    walker = _Walker(unit, path, paths)
    for item in unit.module.items:
        walker.declaration(item)
    index = walker.index
    index.occurrences.sort(key=lambda occurrence: (occurrence.span.start, -occurrence.span.end))
    index.starts = [occurrence.span.start for occurrence in index.occurrences]
    return index


def import_place(item: ast.Import) -> Span:
    """What stands for the module in an import: the last word of its path where that becomes its name."""
    return item.module.names[-1].span if item.module is not None and item.alias is None else item.target_span


class _Walker:
    def __init__(self, unit: Unit, path: Path, paths: Mapping[str, Path]) -> None:
        self._unit = unit
        self._paths = paths
        self._file = file_key(path)
        self._files = {unit: self._file}
        self.index = Index(unit=unit, file=self._file)

    # Declarations

    def declaration(self, item: ast.Declaration) -> None:
        """One top-level declaration."""
        outer = _Scope()
        match item:
            case ast.Import():
                self._import(item)
            case ast.Param():
                self._declare(item, item.name)
                self._param(item, outer, Symbol(kind="param", name=item.name.text, file=self._file))
            case ast.Require():
                self._expression(item.condition, outer)
            case ast.Record():
                self._declare(item, item.name)
                self._fields(item)
            case ast.StageType() | ast.Target():
                self._declare(item, item.name)
                self._parametric(item)
            case ast.StageInstance():
                self._declare(item, item.name)
                self._instance(item)
            case ast.Workflow():
                self._declare(item, item.name)
                self._body(item.body, "workflow", outer)
            case _:
                pass

    def _declare(self, node: object, name: ast.Name) -> None:
        symbol = self._symbol(self._unit, node, name.text)
        if symbol is not None:
            self._add(name.span, symbol, declares=True)

    def _import(self, item: ast.Import) -> None:
        name = item.alias or (item.module.names[-1] if item.module else None)
        text = name.text if name is not None else Path(item.file or "").stem
        meaning = self._unit.names.get(text)
        symbol = self._symbol(self._unit, meaning, text) if isinstance(meaning, Unit) else None
        if symbol is None:
            return
        self._add(import_place(item), symbol, declares=item.alias is None)
        if item.alias is not None:
            self._add(item.alias.span, symbol, declares=True)

    def _fields(self, record: ast.Record) -> None:
        scope = _Scope(owner=record.name.text)
        for item in record.fields:
            self._add(item.name.span, self._part("field", item.name.text, scope.owner, item), declares=True)
            self._type(item.type, scope)

    def _parametric(self, item: ast.StageType | ast.Target) -> None:
        scope = _Scope(owner=item.name.text)
        for param in item.params or ():
            symbol = self._part("argument", param.name.text, scope.owner, param)
            self._add(param.name.span, symbol, declares=True)
            self._param(param, scope, symbol)
        self._body(item.body, "stage type" if isinstance(item, ast.StageType) else "target", scope)

    def _param(self, param: ast.Param, scope: _Scope, symbol: Symbol) -> None:
        self._type(param.type, scope)
        members = self._declared_members(param, symbol.owner, self._unit, self._file)
        kind = enum_of(param.type)
        for member in kind.members if kind is not None else ():
            if member.text in members:
                self._add(member.span, members[member.text], declares=True)
        if param.default is not None:
            self._expression(param.default, scope, members)
        if symbol.owner:
            scope.params.setdefault(param.name.text, param)  # its own default looks back only, its condition sees it
        if param.where is not None:
            self._expression(param.where, scope)

    def _instance(self, item: ast.StageInstance) -> None:
        self._path(item.type)
        found = stage_type(self._unit, item)
        self._arguments(item.arguments or (), found, _Scope())
        self._settings(item.settings or (), "stage", _Scope())

    # Statements

    def _body(self, body: Sequence[ast.Statement], table: str, scope: _Scope) -> None:
        for statement in body:
            match statement:
                case ast.Setting():
                    self._settings((statement,), table, scope)
                case ast.Section():
                    self._section(statement, table, scope)
                case ast.Port():
                    symbol = self._part("port", statement.name.text, scope.owner, statement)
                    self._add(statement.name.span, symbol, declares=True)
                    self._type(statement.type, scope)
                    for bound in statement.range or ():
                        self._expression(bound, scope)
                case ast.Edge():
                    self._edge(statement)
                case ast.Require():
                    self._expression(statement.condition, scope)

    def _section(self, section: ast.Section, table: str, scope: _Scope) -> None:
        name = section.name.text
        if name in SECTIONS.get(table, ()):
            self._add(section.name.span, Symbol(kind="section", name=name, owner=table))
        if name == "place":
            for setting in section.settings:
                self._stage(setting.name)
                self._expression(setting.value, scope)
        else:
            self._settings(section.settings, name, scope)

    def _settings(self, settings: Sequence[ast.Setting], table: str, scope: _Scope) -> None:
        specs = TABLES.get(table, {})
        for setting in settings:
            name = setting.name.text
            spec = specs.get(name)
            if spec is not None or (table == "target" and name == "base"):
                self._add(setting.name.span, Symbol(kind="setting", name=name, owner=table))
            members = spec.type.members if spec is not None else ()
            owner = f"{table}.{name}"
            words = {word: Symbol(kind="value", name=word, owner=owner) for word in members}
            self._expression(setting.value, scope, words)
            self._settings(setting.block or (), "mode" if name == "mode" else "", scope)

    def _edge(self, edge: ast.Edge) -> None:
        left, right = self._endpoint(edge.source), self._endpoint(edge.target)
        self._settings(edge.attributes or (), "edge", _Scope())
        for bare, named, ports in ((edge.source, edge.target, right), (edge.target, edge.source, left)):
            if bare.ports is None and named.ports:
                names = [port.text for port in named.ports]
                own = tuple((name, self._port(bare.stage.text, name)) for name in names)
                self.index.bare_ends.append(BareEnd(span=bare.span, ports=own, partners=tuple(ports)))

    def _endpoint(self, endpoint: ast.Endpoint) -> list[Symbol | None]:
        self._stage(endpoint.stage)
        found: list[Symbol | None] = []
        for name in endpoint.ports or ():
            symbol = self._port(endpoint.stage.text, name.text)
            found.append(symbol)
            if symbol is not None:
                self._add(name.span, symbol, stage=endpoint.stage.text)
        return found

    def _stage(self, name: ast.Name) -> None:
        """Where a stage is due. What else has that name is shown, too: the checker says that it is no stage."""
        symbol = self._symbol(self._unit, self._unit.names.get(name.text), name.text)
        if symbol is not None:
            self._add(name.span, symbol)

    def _port(self, stage: str, name: str) -> Symbol | None:
        meaning = self._unit.names.get(stage)
        found = stage_type(self._unit, meaning) if isinstance(meaning, ast.StageInstance) else None
        if found is None:
            return None
        unit, kind = found
        port = next((port for port in ports_of(kind) if port.name.text == name), None)
        return self._part("port", name, kind.name.text, port, unit) if port is not None else None

    # Types and expressions

    def _type(self, node: ast.TypeExpression, scope: _Scope) -> None:
        match node:
            case ast.AutoType():
                self._type(node.inner, scope)
            case ast.ListType():
                self._type(node.item, scope)
            case ast.NamedType():
                name = node.path.text
                if name in SCALARS or name in DTYPES or name == "weights":
                    self._add(node.path.span, Symbol(kind="type", name=name))
                else:
                    self._path(node.path)
                    self._link_sizes(node.path, scope)
                for dim in node.dims or ():
                    self._dimension(dim, scope)
            case ast.EnumType():
                pass

    def _link_sizes(self, path: ast.Path, scope: _Scope) -> None:
        """The sizes of a record that are sizes of the stage type around it."""
        found = resolve(self._unit, path)
        record = found[1] if found is not None else None
        if found is None or not isinstance(record, ast.Record):
            return
        for name in sizes_of(record):
            own = self._part("variable", name, scope.owner, None)
            self.index.links.append((own, self._part("variable", name, record.name.text, None, found[0])))

    def _dimension(self, node: ast.Expression, scope: _Scope) -> None:
        if isinstance(node, ast.Path) and len(node.names) == 1:
            name = node.names[0]
            if name.text in AXES:
                self._add(name.span, Symbol(kind="axis", name=name.text))
                return
            if is_size(name.text) and name.text not in scope.params:
                first = scope.variables.setdefault(name.text, name)
                symbol = self._part("variable", name.text, scope.owner, first)
                self._add(name.span, symbol, declares=first is name)
                return
        self._expression(node, scope)

    def _expression(self, node: ast.Expression, scope: _Scope, members: Members | None = None) -> None:
        """Walk with a stack of its own, so that a long sum is no deep recursion."""
        waiting = [(node, members)]
        while waiting:
            current, words = waiting.pop()
            match current:
                case ast.Path():
                    self._value(current, scope, words or {})
                case ast.Group():
                    waiting.append((current.inner, words))
                case ast.Unary():
                    waiting.append((current.operand, None))
                case ast.Binary():
                    left, right = self._compared(current, scope)
                    waiting += [(current.left, left), (current.right, right)]
                case ast.ListOf():
                    waiting += [(item, words) for item in current.items]
                case ast.Call():
                    self._call(current, scope)
                case ast.PythonEntry():
                    self._add(current.span, Symbol(kind="entry", name=current.text, unit=self._unit, node=current))
                case _:
                    pass

    def _compared(self, node: ast.Binary, scope: _Scope) -> tuple[Members | None, Members | None]:
        """For each side the words that a bare name may be, beside the parameter that it is compared with.

        As the checker evaluates: the left side first, unless only the left one is a bare name.
        """
        if node.operator not in ("==", "!="):
            return None, None
        bare = isinstance(node.left, ast.Path) and len(node.left.names) == 1
        if bare and not isinstance(node.right, ast.Path):
            return self._members_of(node.right, scope), None
        return None, self._members_of(node.left, scope)

    def _members_of(self, node: ast.Expression, scope: _Scope) -> Members | None:
        """The words of the parameter that an expression names."""
        while isinstance(node, ast.Group):
            node = node.inner
        if not isinstance(node, ast.Path):
            return None
        if len(node.names) == 1 and node.text in scope.params:
            return self._declared_members(scope.params[node.text], scope.owner, self._unit, self._file)
        found = resolve(self._unit, node)
        if found is None or not isinstance(found[1], ast.Param):
            return None
        return self._declared_members(found[1], "", found[0], self._file_of(found[0]))

    def _value(self, path: ast.Path, scope: _Scope, words: Members) -> None:
        """A bare name: where a word is due first that, then a parameter of the declaration, then a name of the file."""
        first = path.names[0]
        if len(path.names) == 1 and first.text in words:
            self._add(first.span, words[first.text])
        elif len(path.names) == 1 and first.text in scope.params:
            self._add(first.span, self._part("argument", first.text, scope.owner, scope.params[first.text]))
        else:
            self._path(path)

    def _call(self, node: ast.Call, scope: _Scope) -> None:
        name = node.callee.text
        if name in FUNCTIONS or name == "devices":
            self._add(node.callee.span, Symbol(kind="function", name=name))
            self._arguments(node.arguments, None, scope)
            return
        self._path(node.callee)
        found = resolve(self._unit, node.callee)
        called = (found[0], found[1]) if found and isinstance(found[1], ast.Target | ast.StageType) else None
        self._arguments(node.arguments, called, scope)

    def _arguments(
        self, arguments: Sequence[ast.Argument], called: tuple[Unit, ast.StageType | ast.Target] | None, scope: _Scope
    ) -> None:
        params = {param.name.text: param for param in called[1].params or ()} if called is not None else {}
        for argument in arguments:
            words: Members | None = None
            param = params.get(argument.name.text) if argument.name is not None else None
            if called is not None and param is not None and argument.name is not None:
                owner = called[1].name.text
                self._add(argument.name.span, self._part("argument", param.name.text, owner, param, called[0]))
                words = self._declared_members(param, owner, called[0], self._file_of(called[0]))
            self._expression(argument.value, scope, words)

    def _path(self, path: ast.Path) -> None:
        """Every name of a path, as far as it means something."""
        unit = self._unit
        meaning: object = None
        for name in path.names:
            meaning = unit.names.get(name.text)
            symbol = self._symbol(unit, meaning, name.text)
            if symbol is None:
                return
            self._add(name.span, symbol)
            if not isinstance(meaning, Unit):
                return
            unit = meaning

    # Symbols

    def _add(self, span: Span, symbol: Symbol, *, declares: bool = False, stage: str | None = None) -> None:
        self.index.occurrences.append(Occurrence(span=span, symbol=symbol, declares=declares, stage=stage))

    def _symbol(self, unit: Unit, meaning: object, name: str) -> Symbol | None:
        file = self._file_of(unit)
        if isinstance(meaning, Unit):
            return Symbol(kind="module", name=name, file=file, unit=meaning)
        kind = DECLARATIONS.get(type(meaning))
        return Symbol(kind=kind, name=name, file=file, node=meaning, unit=unit) if kind is not None else None

    def _part(self, kind: SymbolKind, name: str, owner: str, node: object, unit: Unit | None = None) -> Symbol:
        home = unit or self._unit
        return Symbol(kind=kind, name=name, file=self._file_of(home), owner=owner, node=node, unit=home)

    def _declared_members(self, param: ast.Param, owner: str, unit: Unit, file: str) -> dict[str, Symbol]:
        kind = enum_of(param.type)
        where = f"{owner}.{param.name.text}"
        return {
            member.text: Symbol(kind="member", name=member.text, file=file, owner=where, node=member, unit=unit)
            for member in (kind.members if kind is not None else ())
            if member.text != "auto"
        }

    def _file_of(self, unit: Unit) -> str:
        if unit not in self._files:
            path = self._paths.get(unit.source.name)
            self._files[unit] = file_key(path) if path is not None else unit.source.name
        return self._files[unit]
