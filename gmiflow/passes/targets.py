"""Targets: the hardware that a workflow is compiled for, and the wishes about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gmiflow.hardware import Hardware
from gmiflow.ir.workflow import Target
from gmiflow.passes.arguments import bind_arguments, check_param_list
from gmiflow.passes.evaluate import Scope
from gmiflow.passes.imports import Loader
from gmiflow.passes.params import Given, LocalScope, UnitScope, kind_name
from gmiflow.passes.report import Report
from gmiflow.passes.settings import TARGET, Found, read_settings, split_body
from gmiflow.passes.stages import check_require
from gmiflow.passes.values import Typed
from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import MAX_NESTING

_FIELDS = {"memory": "memory_bytes", "reserve": "reserve_bytes"}
"""Setting to field of `Target`, where the names differ."""


def detected(hardware: Hardware | None) -> dict[str, Any]:
    """Fields of the target that stands for this machine: its GPUs, or its CPU without any."""
    if hardware is None or not hardware.gpus:
        return {"device": "cpu", "devices": 1}
    return {
        "device": "cuda",
        "devices": len(hardware.gpus),
        "gpu": hardware.gpus[0].name,
        "sm_count": min(gpu.sm_count for gpu in hardware.gpus),
        "memory_bytes": min(gpu.memory_bytes for gpu in hardware.gpus),
    }


def _overlaid(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``base``; a base for another kind of device has nothing to say about this one."""
    if own.get("device", base["device"]) != base["device"]:
        base = {"devices": 1}
    return {**base, **own, "said": {**base.get("said", {}), **own.get("said", {})}}


class TargetReader:
    """Resolves targets with their `base` chains."""

    def __init__(self, report: Report, loader: Loader, hardware: Hardware | None) -> None:
        self._report = report
        self._loader = loader
        self._hardware = hardware
        self._resolving: list[ast.Target] = []
        self._cyclic: set[int] = set()

    def choose(self, scope: UnitScope, wanted: ast.Expression | None, overrides: Mapping[str, Given]) -> Target | None:
        """The target to compile for: the one asked for, the only one of the file, or this machine.

        Args:
            scope: of the file.
            wanted: what `--target` says: a name, or a name with arguments.
            overrides: `--set target.field=...`.
        """
        if wanted is not None:
            fields = self._wanted(scope, wanted)
            name = wanted.callee.text if isinstance(wanted, ast.Call) else wanted.span.text.strip()
            return self._finish(scope, name, fields, overrides, wanted.span)
        own = cast("list[ast.Target]", scope.unit.declared(ast.Target))
        if len(own) > 1:
            names = ", ".join(f"`{target.name.text}`" for target in own)
            message = f"the file has several targets: {names}"
            self._report.add("E0208", message, own[1].name.span, notes=["choose one with `--target NAME`"])
            return None
        if own:
            fields = self.resolve(scope, own[0], (), scope, own[0].name.span)
            return self._finish(scope, own[0].name.text, fields, overrides, own[0].name.span)
        return self._finish(scope, "detected", detected(self._hardware), overrides, Span(scope.unit.source, 0, 0))

    def resolve(
        self, home: UnitScope, target: ast.Target, arguments: tuple[ast.Argument, ...], caller: UnitScope, at: Span
    ) -> dict[str, Any] | None:
        """Fields of a target, those of its base included."""
        if id(target) in self._cyclic:
            return None
        if any(target is other for other in self._resolving):
            self._report.add("E0413", f"target `{target.name.text}` is based on itself", at)
            self._cyclic.update(map(id, self._resolving))
            return None
        if len(self._resolving) >= MAX_NESTING:
            self._report.add("E0107", f"targets are based on each other more than {MAX_NESTING} deep", at)
            self._cyclic.update(map(id, self._resolving))
            return None
        self._resolving.append(target)
        try:
            return self._resolve(home, target, arguments, caller, at)
        finally:
            self._resolving.pop()

    def check(self, scope: UnitScope, target: ast.Target) -> None:
        """Check a target that is not used, with its defaults."""
        check_param_list(target.params or (), self._report)
        if all(param.default is not None for param in target.params or ()):
            self.resolve(scope, target, (), scope, target.name.span)

    def _resolve(
        self, home: UnitScope, target: ast.Target, arguments: tuple[ast.Argument, ...], caller: UnitScope, at: Span
    ) -> dict[str, Any] | None:
        report = self._report
        values = bind_arguments(target.params or (), arguments, {}, caller, home, target.name.text, at)
        if values is None or any(value is None for value in values.values()):
            return None
        local = LocalScope(home)
        local.values = values
        parts = split_body(target.body, (ast.Setting, ast.Require), (), "a target", report)
        settings = cast("list[ast.Setting]", parts[ast.Setting])
        base = next((s.value for s in settings if s.name.text == "base"), None)
        fields = detected(self._hardware) if base is None else self._base(home, local, base)
        found = read_settings(settings, TARGET, local, report, owner="a target", skip=("base",))
        for statement in cast("list[ast.Require]", parts[ast.Require]):
            check_require(statement, local, report)
        if fields is None or any(item.value is None for item in found.values()):
            return None
        return _overlaid(fields, _fields(found))

    def _base(self, home: UnitScope, local: Scope, base: ast.Expression) -> dict[str, Any] | None:
        path, arguments = (base.callee, base.arguments) if isinstance(base, ast.Call) else (base, ())
        if not isinstance(path, ast.Path):
            notes = ["written without quotes, for example `base = targets.h200(gpus = 2)`"]
            self._report.add("E0301", "expected the name of a target", base.span, notes=notes)
            return None
        found = home.find(path, ast.Target)
        if found is None:
            return None
        unit, meaning = found
        if not isinstance(meaning, ast.Target):
            self._report.add("E0207", f"`{path.text}` is {kind_name(meaning)}, not a target", path.span)
            return None
        return self.resolve(home.of(unit), meaning, arguments, _Caller(home, local), base.span)

    def _wanted(self, scope: UnitScope, wanted: ast.Expression) -> dict[str, Any] | None:
        path, arguments = (wanted.callee, wanted.arguments) if isinstance(wanted, ast.Call) else (wanted, ())
        if not isinstance(path, ast.Path):
            self._report.add("E0208", f"`{wanted.span.text}` names no target", wanted.span)
            return None
        meaning = scope.unit.names.get(path.names[0].text)
        if len(path.names) == 1 and not isinstance(meaning, ast.Target):
            standard = self._loader.standard("targets")
            home = scope.of(standard) if standard is not None else scope
            meaning = home.unit.names.get(path.text)
            if not isinstance(meaning, ast.Target):
                own = [
                    t.name.text for s in {scope, home} for t in cast("list[ast.Target]", s.unit.declared(ast.Target))
                ]
                message = f"there is no target `{path.text}`"
                self._report.unknown("E0208", message, wanted.span, path.text, own, what="the targets are")
                return None
            return self.resolve(home, meaning, arguments, scope, wanted.span)
        found = scope.find(path, ast.Target)
        if found is None or not isinstance(found[1], ast.Target):
            if found is not None:
                self._report.add("E0207", f"`{path.text}` is {kind_name(found[1])}, not a target", wanted.span)
            return None
        return self.resolve(scope.of(found[0]), found[1], arguments, scope, wanted.span)

    def _finish(
        self, scope: UnitScope, name: str, fields: dict[str, Any] | None, overrides: Mapping[str, Given], at: Span
    ) -> Target | None:
        found = read_settings((), TARGET, scope, self._report, owner="a target", overrides=overrides)
        if fields is None or any(item.value is None for item in found.values()):
            return None
        target = Target(name=name, span=at if at.text else None, **_overlaid(fields, _fields(found)))
        if target.device == "cpu" and target.devices > 1:
            notes = ["the CPU counts as one device; `gmi_per_gpu` says how many GMIs share it"]
            place = target.said.get("devices", at)
            self._report.add("E0408", f"target `{name}` has {target.devices} CPU devices", place, notes=notes)
            return None
        if target.memory_bytes and target.reserve_bytes >= target.memory_bytes:
            self._report.add("E0505", f"target `{name}` reserves all of its memory", target.said.get("reserve", at))
            return None
        return target


class _Caller(UnitScope):
    """The scope of the arguments of `base`: the parameters of the target that has the base, then its file."""

    def __init__(self, outer: UnitScope, local: Scope) -> None:
        self.unit = outer.unit
        self.report = outer.report
        self._local = local

    def value(self, path: ast.Path) -> Typed | None:
        return self._local.value(path)

    def knows(self, name: str) -> bool:
        return self._local.knows(name)


def _fields(found: Mapping[str, Found]) -> dict[str, Any]:
    fields = {_FIELDS.get(name, name): item.value.value for name, item in found.items() if item.value is not None}
    return {**fields, "said": {name: item.value_span for name, item in found.items()}}
