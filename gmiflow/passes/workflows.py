"""Workflows: settings and mode, the edges, and the connected components that become independent trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from gmiflow.diagnostics import closest
from gmiflow.ir.workflow import Sizing
from gmiflow.passes.params import Given, UnitScope, a_role, fits_where
from gmiflow.passes.python_entry import check_entry
from gmiflow.passes.report import Report
from gmiflow.passes.settings import MODE_BLOCK, PLACE, SIZING, WORKFLOW, Found, Spec, read_settings, split_body
from gmiflow.passes.stages import StageOf, check_require
from gmiflow.passes.wiring import Wiring
from gmiflow.syntax import ast

_DEFAULTS: dict[str, Any] = {
    "horizon": 16,
    "iterations": 100,
    "checkpoint_every": 50,
    "seed": 0,
    "replicas": 1,
    "joint": "auto",
    "precision": "f32",
    "execution": "auto",
    "on_failure": "stop",
    "gmi": None,
    "max_staleness": 0,
    "deterministic": False,
}
_BELONGS: dict[str, tuple[str, str, str]] = {
    "max_staleness": ("async", "no experience is stale", "..."),
    "deterministic": ("serve", "actions are drawn from the policy that learns", "true"),
}
"""A setting in a mode's braces to its only mode, what the other modes do instead, and an example of a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedWorkflow:
    """A workflow before a target is known. ``whole`` is False when something in it is wrong."""

    declaration: ast.Workflow
    settings: dict[str, Any]
    found: dict[str, Found]
    sizing: Sizing
    place: dict[str, Found]
    wiring: Wiring
    components: tuple[tuple[StageOf, ...], ...]
    whole: bool


class WorkflowChecker:
    """Checks the workflows of one file."""

    def __init__(self, scope: UnitScope, stages: Mapping[str, StageOf], report: Report) -> None:
        self._scope = scope
        self._stages = stages
        self._report = report

    def check(self, workflow: ast.Workflow, overrides: Mapping[str, Given]) -> CheckedWorkflow:
        """Check one workflow."""
        report = self._report
        before = len(report)
        kinds = (ast.Setting, ast.Edge, ast.Require)
        parts = split_body(workflow.body, kinds, ("sizing", "place"), "a workflow", report)
        sections = {s.name.text: s for s in cast("list[ast.Section]", parts[ast.Section])}
        settings = cast("list[ast.Setting]", parts[ast.Setting])
        found = self._settings(settings, overrides)
        mode = self._value(found, "mode")
        self._check_mode(workflow, settings, found, mode)
        wiring = Wiring(self._scope, self._stages, mode, report)
        wiring.connect(cast("list[ast.Edge]", parts[ast.Edge]))
        broken = workflow.name.text in self._scope.unit.module.broken
        if not broken:
            wiring.check_complete()
        sizing = self._sizing(sections.get("sizing"), overrides)
        place = self._place(sections.get("place"), wiring)
        for statement in cast("list[ast.Require]", parts[ast.Require]):
            check_require(statement, self._scope, report)
        components = self._components(workflow, wiring, mode) if wiring.whole and not broken else ()
        if components:
            wiring.check_sizes()
        values = {**_DEFAULTS, **{n: f.value.value for n, f in found.items() if f.value is not None}}
        whole = len(report) == before and not broken and bool(components)
        return CheckedWorkflow(
            declaration=workflow, settings=values, found=found, sizing=sizing, place=place, wiring=wiring,
            components=components, whole=whole,
        )  # fmt: skip

    # Settings

    def _settings(self, settings: list[ast.Setting], overrides: Mapping[str, Given]) -> dict[str, Found]:
        found = read_settings(
            settings, WORKFLOW, self._scope, self._report, owner="a workflow", overrides=_only(overrides, WORKFLOW)
        )
        mode = next((s for s in settings if s.name.text == "mode"), None)
        block = mode.block if mode is not None else None
        found |= read_settings(
            block or (), MODE_BLOCK, self._scope, self._report, owner="a mode", overrides=_only(overrides, MODE_BLOCK)
        )
        self._require_where(settings, found, overrides)
        written = next((s.value for s in settings if s.name.text == "gmi"), None)
        gmi = overrides["gmi"].expression if "gmi" in overrides else written
        if isinstance(gmi, ast.PythonEntry):
            check_entry(gmi, None, {}, self._scope.unit.folder, self._report)
        return found

    def _require_where(
        self, settings: list[ast.Setting], found: Mapping[str, Found], overrides: Mapping[str, Given]
    ) -> None:
        """A value that replaces `num_env = num_env` has to fit the `where` of that parameter, too."""
        for setting in settings:
            new = found[setting.name.text].value if setting.name.text in overrides and setting.value else None
            if new is None or not isinstance(setting.value, ast.Path):
                continue
            meaning = self._scope.unit.names.get(setting.value.text)
            if isinstance(meaning, ast.Param):
                place = overrides[setting.name.text].expression.span
                fits_where(meaning, new, place, self._scope, self._report)

    def _check_mode(
        self, workflow: ast.Workflow, settings: list[ast.Setting], found: Mapping[str, Found], mode: str | None
    ) -> None:
        report = self._report
        for name, (home, instead, example) in _BELONGS.items():
            if name in found and mode not in (home, None):
                notes = [f"in `{mode}` {instead}; write `mode = {home} {{ {name} = {example} }}`"]
                report.add("E0407", f"only `{home}` has `{name}`", found[name].name_span, notes=notes)
        if workflow.name.text in self._scope.unit.module.broken:
            return
        trains = mode in ("sync", "async") or "mode" not in found  # a mode that is wrong asks for nothing more
        required = ["mode", "num_env"] + (["horizon"] if trains else [])
        required += ["max_staleness"] if mode == "async" else []
        misspelt = {closest(s.name.text, WORKFLOW) for s in settings if s.name.text not in WORKFLOW}
        for name in required:
            if name not in found and name not in misspelt:
                hints = {"mode": "`mode = sync`", "num_env": "`num_env = auto`", "horizon": "`horizon = 16`"}
                hint = hints.get(name, "`mode = async { max_staleness = 1 }`")
                message = f"workflow `{workflow.name.text}` does not set `{name}`"
                report.add("E0409", message, workflow.name.span, notes=[f"for example {hint}"])

    def _sizing(self, section: ast.Section | None, overrides: Mapping[str, Given]) -> Sizing:
        settings = section.settings if section is not None else ()
        found = read_settings(
            settings, SIZING, self._scope, self._report, owner="`sizing`", overrides=_only(overrides, SIZING)
        )
        values = {name: item.value.value for name, item in found.items() if item.value is not None}
        return Sizing(**cast("dict[str, Any]", values))

    def _place(self, section: ast.Section | None, wiring: Wiring) -> dict[str, Found]:
        if section is None:
            return {}
        specs = {name: PLACE for name in self._stages}
        found = read_settings(section.settings, specs, self._scope, self._report, owner="`place`")
        for name, item in found.items():
            if name not in wiring.used:
                self._report.add("E0211", f"no edge of this workflow uses the stage `{name}`", item.name_span)
        return {name: item for name, item in found.items() if item.value is not None}

    @staticmethod
    def _value(found: Mapping[str, Found], name: str) -> str | None:
        typed = found[name].value if name in found else None
        return str(typed.value) if typed is not None else None

    # Components

    def _components(self, workflow: ast.Workflow, wiring: Wiring, mode: str | None) -> tuple[tuple[StageOf, ...], ...]:
        if not wiring.wires:
            self._report.add("E0504", f"workflow `{workflow.name.text}` has no edges", workflow.name.span)
            return ()
        groups = _connected(wiring)
        ok = [self._check_component(workflow, group, mode) for group in groups]
        return tuple(groups) if all(ok) else ()

    def _check_component(self, workflow: ast.Workflow, group: tuple[StageOf, ...], mode: str | None) -> bool:
        report = self._report
        for role in ("simulator", "agent", "trainer"):
            stages = [stage for stage in group if stage.role == role]
            if len(stages) > 1:
                places = [(stage.declaration.name.span, a_role(role)) for stage in stages]
                message = f"connected stages with {len(stages)} {role}s are not supported yet"
                notes = ["stages that are connected hold one simulator, one agent and at most one trainer"]
                report.add("E0504", message, workflow.name.span, secondary=places, notes=notes)
                return False
            if not stages and role != "trainer":
                places = [(stage.declaration.name.span, "connected to no " + role) for stage in group]
                message = f"connected stages without {a_role(role)} are not supported yet"
                report.add("E0504", message, workflow.name.span, secondary=places)
                return False
        trainer = next((stage for stage in group if stage.role == "trainer"), None)
        if mode == "serve" and trainer is not None:
            place = [(trainer.declaration.name.span, "declared here")]
            report.add("E0407", "a `serve` workflow has no trainer", workflow.name.span, secondary=place)
            return False
        if mode in ("sync", "async") and trainer is None:
            notes = ["a workflow without trainer has `mode = serve`"]
            report.add("E0407", f"`mode = {mode}` needs a trainer", workflow.name.span, notes=notes)
            return False
        return True


def _only(overrides: Mapping[str, Given], specs: Mapping[str, Spec]) -> dict[str, Given]:
    return {name: given for name, given in overrides.items() if name in specs}


def _connected(wiring: Wiring) -> list[tuple[StageOf, ...]]:
    """Connected components, in order of their first stage."""
    parent = {stage.name: stage.name for stage in wiring.stages}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for wire in wiring.wires:
        parent[root(wire.source.name)] = root(wire.target.name)
    groups: dict[str, list[StageOf]] = {}
    for stage in wiring.stages:
        groups.setdefault(root(stage.name), []).append(stage)
    return [tuple(group) for group in groups.values()]
