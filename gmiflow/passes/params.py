"""Parameters: their types, their values, and the scopes in which expressions see them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from gmiflow.diagnostics import Edit, Fix
from gmiflow.passes.evaluate import evaluate, is_true, names_in, names_of_value
from gmiflow.passes.imports import Broken, Named, Unit
from gmiflow.passes.insertion import import_fix
from gmiflow.passes.report import MAX_SHOWN, Report
from gmiflow.passes.values import SCALARS, Typed, ValueType, automatic, show
from gmiflow.source import Span
from gmiflow.syntax import ast

_CONSTANTS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "Auto": "auto", "AUTO": "auto"}
"""Constants as other languages write them, and as they are written here."""
_OTHER_NAMES = {
    **dict.fromkeys(("integer", "i32", "i64", "u8", "uint", "long", "number"), "int"),
    **dict.fromkeys(("f16", "f32", "f64", "bf16", "double", "real"), "float"),
    **dict.fromkeys(("str", "text", "String"), "string"),
    "boolean": "bool",
}
"""What types of parameters are called elsewhere."""

_KIND_NAMES = {
    ast.Param: "a parameter",
    ast.Record: "a record",
    ast.StageType: "a stage type",
    ast.StageInstance: "a stage",
    ast.Workflow: "a workflow",
    ast.Target: "a target",
    Unit: "a module",
}


def kind_name(meaning: object) -> str:
    """What a message calls the thing that a name stands for."""
    return _KIND_NAMES[cast("type[ast.Param]", type(meaning))]


def a_role(role: str) -> str:
    """A role with its article."""
    return f"an {role}" if role == "agent" else f"a {role}"


def declared_at(meaning: object) -> list[tuple[Span, str]]:
    """Secondary place of a declaration, empty for a module."""
    name = getattr(meaning, "name", None)
    return [(name.span, "declared here")] if isinstance(name, ast.Name) else []


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A value for a parameter from outside: an expression and the scope to evaluate it in."""

    expression: ast.Expression
    scope: UnitScope
    origin: str


class UnitScope:
    """The names of one file. Parameters are evaluated when first needed, so their order is free.

    The scope of the file that is checked keeps those of the files that it imports. They know it without keeping it:
    otherwise everything about a file would hang together, and only the garbage collector could free it.

    Args:
        unit: the file.
        report: where problems go.
        checked: the scope of the file that is checked, None when this is it.
    """

    def __init__(self, unit: Unit, report: Report, checked: UnitScope | None = None) -> None:
        self.unit = unit
        self.report = report
        self.given: dict[str, Given] = {}
        self._checked = weakref.ref(checked) if checked is not None else None
        self._imported: dict[Unit, UnitScope] = {}
        self._values: dict[str, Typed | None] = {}
        self._evaluating: dict[str, None] = {}

    def of(self, unit: Unit) -> UnitScope:
        """The scope of a file."""
        checked = self._checked() if self._checked is not None else self
        assert checked is not None  # the checker keeps it, and so does its result
        if unit is checked.unit:
            return checked
        if unit not in checked._imported:
            checked._imported[unit] = UnitScope(unit, self.report, checked)
        return checked._imported[unit]

    def value(self, path: ast.Path) -> Typed | None:
        """The value of `name` or `module.name`."""
        found = self.find(path, ast.Param)
        if found is None:
            return None
        unit, meaning = found
        if not isinstance(meaning, ast.Param):
            message = f"`{path.text}` is {kind_name(meaning)}, not a value"
            self.report.add("E0207", message, path.span, secondary=declared_at(meaning))
            return None
        return self.of(unit).param(meaning)

    def knows(self, name: str) -> bool:
        """Whether a name means anything here."""
        return name in self.unit.names

    def find(self, path: ast.Path, kind: type[Named], extra: Sequence[str] = ()) -> tuple[Unit, object] | None:
        """File and declaration of a name, or None (reported, unless the name is broken).

        Args:
            path: the name.
            kind: what the name should stand for; only names of such things are suggested.
            extra: further names in scope, for "did you mean".
        """
        first, *rest = path.names
        meaning = self.unit.names.get(first.text)
        if meaning is None:
            self._no_name(path, kind, extra)
            return None
        unit = self.unit
        for name in rest:
            if isinstance(meaning, Broken):
                return None
            if not isinstance(meaning, Unit):
                message = f"`{first.text}` is {kind_name(meaning)} and has no member `{name.text}`"
                self.report.add("E0206", message, name.span, secondary=declared_at(meaning))
                return None
            unit = meaning
            meaning = unit.names.get(name.text)
            if meaning is None or isinstance(meaning, Unit):
                self._no_member(unit, kind, first, name)
                return None
        return None if isinstance(meaning, Broken) else (unit, meaning)

    def param(self, param: ast.Param) -> Typed | None:
        """The value of a parameter of this file."""
        name = param.name.text
        if name in self._evaluating and name not in self._values:
            self._report_cycle(param)
            self._values[name] = None
        waiting = [] if name in self._values else [param]
        while waiting:  # what a value needs comes first, so that a chain of thousands is no deep recursion
            current = waiting[-1].name.text
            needed = [] if current in self._evaluating else self._needs(waiting[-1])
            self._evaluating[current] = None
            if needed:
                waiting += needed
                continue
            last = waiting.pop()
            if current not in self._values:
                value = bind_param(last, self.given.get(current), self, self.report)
                self._values.setdefault(current, value)
            self._evaluating.pop(current, None)
        return self._values[name]

    def _report_cycle(self, param: ast.Param) -> None:
        chain = list(self._evaluating)
        cycle = [*chain[chain.index(param.name.text) :], param.name.text]
        if len(cycle) > MAX_SHOWN:
            cycle = [*cycle[: MAX_SHOWN // 2], "...", *cycle[-MAX_SHOWN // 2 :]]
        notes = [f'{" -> ".join(cycle)}, where `->` reads "needs the value of"'] if len(cycle) > 2 else []
        message = f"the value of `{param.name.text}` depends on itself"
        self.report.add("E0413", message, param.name.span, notes=notes)

    def _needs(self, param: ast.Param) -> list[ast.Param]:
        """Parameters of this file that a parameter's value may need and that have no value yet."""
        given = self.given.get(param.name.text)
        value = param.default if given is None else given.expression
        names = names_of_value(value, param.type) | names_in([param.where])
        found = [self.unit.names.get(name) for name in sorted(names) if name not in self._values]
        return [p for p in found if isinstance(p, ast.Param) and p.name.text not in self._evaluating and p is not param]

    def _no_name(self, path: ast.Path, kind: type[Named], extra: Sequence[str]) -> None:
        """Report an unknown name; a member of a module may be meant, or a constant of another language."""
        name = path.names[0]
        message = f"unknown name `{name.text}`"
        fix = import_fix(self.unit.module, name.text) if len(path.names) > 1 else None
        if fix is not None:
            self.report.add(
                "E0201", message, name.span, notes=[f"it needs {fix.title.removeprefix('write ')}"], fixes=(fix,)
            )
            return
        imported = [(word, unit) for word, unit in self.unit.names.items() if isinstance(unit, Unit)]
        members = [f"{word}.{name.text}" for word, unit in imported if isinstance(unit.names.get(name.text), kind)]
        if members:
            notes = [f"did you mean {' or '.join(f'`{member}`' for member in members)}?"]
            self.report.add("E0201", message, name.span, notes=notes, replace=members[0])
        elif name.text == "std" and len(path.names) > 1 and isinstance(self.unit.names.get(path.names[-2].text), Unit):
            short = ".".join(word.text for word in path.names[-2:])
            notes = [f"what is imported is called by its last word: `{short}`"]
            fix = Fix(title=f"write `{short}`", edits=(Edit(span=path.span, text=short),))
            self.report.add("E0201", message, name.span, notes=notes, fixes=(fix,))
        elif name.text in _CONSTANTS:
            word = _CONSTANTS[name.text]
            self.report.add("E0201", message, name.span, notes=[f"it is written `{word}`"], replace=word)
        else:
            candidates = [*extra, *_names_of(self.unit, (kind, Unit))]
            self.report.unknown("E0201", message, name.span, name.text, candidates)

    def _no_member(self, unit: Unit, kind: type[Named], module: ast.Name, name: ast.Name) -> None:
        members = _names_of(unit, (kind,))
        message = f"module `{module.text}` has no `{name.text}`"
        self.report.unknown("E0206", message, name.span, name.text, members, what=f"`{module.text}` has")


def _names_of(unit: Unit, kinds: tuple[type, ...]) -> list[str]:
    return [name for name, meaning in unit.names.items() if isinstance(meaning, kinds)]


class LocalScope:
    """Parameters of a stage type or target, over the names of their file."""

    def __init__(self, outer: UnitScope) -> None:
        self.outer = outer
        self.values: dict[str, Typed | None] = {}

    def knows(self, name: str) -> bool:
        """Whether a name means anything here."""
        return name in self.values or self.outer.knows(name)

    def value(self, path: ast.Path) -> Typed | None:
        """The value of a parameter, or of a name of the file."""
        first = path.names[0].text
        if len(path.names) == 1 and first in self.values:
            return self.values[first]
        if first not in self.outer.unit.names:
            self.outer.find(path, ast.Param, extra=tuple(self.values))
            return None
        return self.outer.value(path)


def value_type(node: ast.TypeExpression, report: Report) -> ValueType | None:
    """The type of a parameter."""
    match node:
        case ast.AutoType():
            inner = value_type(node.inner, report)
            return automatic(inner) if inner else None
        case ast.ListType():
            item = value_type(node.item, report)
            if item is not None and item.auto:
                report.add("E0306", "items of a list cannot be `auto`", node.item.span)
                return None
            return ValueType(kind="list", item=item) if item else None
        case ast.EnumType():
            members = tuple(member.text for member in node.members)
            for index, member in enumerate(node.members):
                if member.text in members[:index]:
                    report.add("E0202", f"`{member.text}` is twice in this enum", member.span)
            return ValueType(kind="enum", members=tuple(dict.fromkeys(members)))
        case ast.NamedType():
            found = SCALARS.get(node.path.text) if node.dims is None else None
            if found is None:
                message = f"`{node.span.text}` is not a type of a parameter"
                if (same := _OTHER_NAMES.get(node.path.text)) is not None and node.dims is None:
                    report.add("E0306", message, node.span, notes=[f"it is called `{same}` here"], replace=same)
                    return None
                what = "types of parameters are enum(...), list(...) and"
                report.unknown("E0306", message, node.span, node.path.text, SCALARS, what=what)
            return found


def bind_param(param: ast.Param, given: Given | None, scope: UnitScope | LocalScope, report: Report) -> Typed | None:
    """Evaluate one parameter from what was given or its default, and check its `where`."""
    wanted = value_type(param.type, report)
    if wanted is None:
        return None
    if given is not None:
        value, place = evaluate(given.expression, given.scope, report, wanted), given.expression.span
    elif param.default is not None:
        value, place = evaluate(param.default, scope, report, wanted), param.default.span
    else:
        note = f"give it a default, or a value with `--set {param.name.text}=...`"
        report.add("E0210", f"parameter `{param.name.text}` has no value", param.name.span, notes=[note])
        return None
    return value if value is None or fits_where(param, value, place, scope, report) else None


def fits_where(param: ast.Param, value: Typed, place: Span, scope: UnitScope | LocalScope, report: Report) -> bool:
    """Whether a value fits the `where` of a parameter; reported if not. `auto` always does.

    Args:
        param: of ``scope``.
        value: for it.
        place: where the value is written.
        scope: what names mean in the `where`.
        report: where the problem goes.
    """
    if param.where is None or value.is_auto:
        return True
    inner = LocalScope(scope if isinstance(scope, UnitScope) else scope.outer)
    inner.values = {**(scope.values if isinstance(scope, LocalScope) else {}), param.name.text: value}
    if is_true(param.where, inner, report) is False:
        message = f"`{param.name.text} = {show(value.value)}` is outside what is allowed: `{param.where.span.text}`"
        report.add("E0401", message, place, secondary=[(param.where.span, "required here")])
        return False
    return True
