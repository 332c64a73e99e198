"""The checker: from a `.gmi` file to a `Workflow`, with names resolved, types unified and parameters evaluated.

In: a path (or the text of an editor's buffer), the choice of workflow and target, `--set` values, this machine's
hardware. Out: a `CheckResult`. Everything in the file is checked, not only the workflow that is chosen.
Not in here: where anything runs.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gmiflow.diagnostics import Diagnostic, in_order
from gmiflow.ir.workflow import Target, Workflow
from gmiflow.passes.allow import without_allowed
from gmiflow.passes.components import build
from gmiflow.passes.fit import check_fit
from gmiflow.passes.imports import Files, Loader, Unit
from gmiflow.passes.overrides import Overrides, read_overrides
from gmiflow.passes.params import LocalScope, UnitScope
from gmiflow.passes.report import Report
from gmiflow.passes.stages import StageMaker, StageOf, check_require
from gmiflow.passes.targets import TargetReader
from gmiflow.passes.types import record_type
from gmiflow.passes.workflows import CheckedWorkflow, WorkflowChecker
from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.parser import parse_value

if TYPE_CHECKING:
    from gmiflow.hardware import Hardware

MAX_COMBINATIONS = 32
"""Workflows times targets that `check_all` builds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What the checker worked out on its way, for an editor: also there when the file is wrong.

    Attributes:
        scope: the file's names and the values of its parameters.
        stages, workflows: by name, also those that are not whole.
        targets: resolves the file's targets.
        paths: name of every source that was read to its file.
    """

    scope: UnitScope
    stages: Mapping[str, StageOf]
    workflows: Mapping[str, CheckedWorkflow]
    targets: TargetReader
    paths: Mapping[str, Path]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What the checker found.

    Attributes:
        workflow: None after an error, or when the file has no workflow.
        diagnostics: sorted by place.
        allowed: warnings that a comment `// gmi: allow(...)` silences.
        sources: the file and everything that it imports.
        module: syntax tree of the file, None when it could not be read.
        model: names, types and values behind the diagnostics, None when the file could not be read.
    """

    workflow: Workflow | None
    diagnostics: tuple[Diagnostic, ...]
    sources: tuple[Source, ...]
    module: ast.Module | None
    allowed: tuple[Diagnostic, ...] = ()
    model: Model | None = field(default=None, compare=False, repr=False)

    @property
    def failed(self) -> bool:
        """Whether any diagnostic is an error."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)

    def target(self, text: str) -> Target | None:
        """The target that `--target` would mean by ``text``; None when it means none."""
        wanted = parse_value(Source("--target", text)) if text else None
        if self.model is None or wanted is None or isinstance(wanted, Diagnostic):
            return None
        return self.model.targets.choose(self.model.scope, wanted, {})


def check(
    path: str,
    *,
    text: str | None = None,
    workflow: str | None = None,
    target: str | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    hardware: Hardware | None = None,
    require_workflow: bool = False,
    files: Files | None = None,
) -> CheckResult:
    """Check a file.

    Args:
        path: as the user names it.
        text: content to use in place of the file's.
        workflow: which workflow; by default the only one, else the one called `train`.
        target: which target, as a name or with arguments ("h200(gpus = 2)"); by default the only one of the file,
            else this machine.
        overrides: `--set` pairs (path, expression), later ones win.
        hardware: this machine, for the detected target; None means a machine with a CPU alone.
        require_workflow: report a file without any workflow as an error.
        files: where files come from, None for the disk.

    Returns:
        A result; problems of the user's input are diagnostics and never exceptions.
    """
    with without_collections():
        return _check(path, text, workflow, target, overrides, hardware, require_workflow, files)


def check_all(
    path: str, *, text: str | None = None, hardware: Hardware | None = None, files: Files | None = None
) -> tuple[CheckResult, ...]:
    """Check a file once, and build every workflow on every target that can be had without arguments.

    Args:
        path: as the user names it.
        text: content to use in place of the file's.
        hardware: this machine, for a file without a target.
        files: where files come from, None for the disk.

    Returns:
        One result per pair, in order of declaration, at most `MAX_COMBINATIONS`; a single one for a file without
        a workflow, or that cannot be read. What is wrong with the file itself is in the diagnostics of each.
    """
    return check_loaded(load(path, text=text, files=files), hardware=hardware)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A file and everything that it imports, before it is checked.

    Attributes:
        unit: the file's names, None when it cannot be read.
        loader: knows the files that were read.
        report: what is wrong with them.
    """

    unit: Unit | None
    loader: Loader
    report: Report


def load(path: str, *, text: str | None = None, files: Files | None = None) -> Loaded:
    """Read a file and its imports: all that the meaning of its names needs. The arguments are those of `check_all`."""
    with without_collections():
        report = Report()
        loader = Loader(report, files)
        return Loaded(unit=loader.load(Path(path), path, text=text), loader=loader, report=report)


def check_loaded(loaded: Loaded, *, hardware: Hardware | None = None) -> tuple[CheckResult, ...]:
    """The second half of `check_all`; it may be done once."""
    with without_collections():
        if loaded.unit is None:
            return (_result(None, loaded.report, loaded.loader, None, None),)
        return tuple(_Checker(loaded.unit, loaded.loader, loaded.report, hardware).every())


@contextmanager
def without_collections() -> Generator[None]:
    """Pause the cyclic garbage collector: nearly all objects of a compilation live to its end (a third of the time)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check(
    path: str,
    text: str | None,
    workflow: str | None,
    target: str | None,
    overrides: Sequence[tuple[str, str]],
    hardware: Hardware | None,
    require_workflow: bool,
    files: Files | None,
) -> CheckResult:
    loaded = load(path, text=text, files=files)
    unit, loader, report = loaded.unit, loaded.loader, loaded.report
    if unit is None:
        return _result(None, report, loader, None, None)
    checker = _Checker(unit, loader, report, hardware)
    found = checker.run(workflow, target, overrides, require_workflow)
    return _result(found, report, loader, unit, checker.model())


def _result(
    workflow: Workflow | None, report: Report, loader: Loader, unit: Unit | None, model: Model | None
) -> CheckResult:
    kept, allowed = without_allowed(report.diagnostics)
    return CheckResult(
        workflow=None if report.failed else workflow,
        diagnostics=in_order(kept),
        allowed=tuple(allowed),
        sources=tuple(loader.sources),
        module=unit.module if unit is not None else None,
        model=model,
    )


class _Checker:
    """One check of one file."""

    def __init__(self, unit: Unit, loader: Loader, report: Report, hardware: Hardware | None) -> None:
        self._unit = unit
        self._loader = loader
        self._report = report
        self._scope = UnitScope(unit, report)
        self._maker = StageMaker(report)
        self._targets = TargetReader(report, loader, hardware)
        self._stages: dict[str, StageOf] = {}
        self._workflows: dict[str, CheckedWorkflow] = {}

    def model(self) -> Model:
        """What was worked out."""
        return Model(
            scope=self._scope,
            stages=self._stages,
            workflows=self._workflows,
            targets=self._targets,
            paths=self._loader.paths,
        )

    def run(
        self, workflow: str | None, target: str | None, pairs: Sequence[tuple[str, str]], require_workflow: bool
    ) -> Workflow | None:
        """Check everything and build the chosen workflow."""
        overrides = read_overrides(pairs, self._scope, self._report)
        self._scope.given.update(overrides.params)
        self._check_declarations(overrides)
        chosen = self._choose(workflow, require_workflow)
        checked = self._check_workflows(chosen, overrides)
        wanted = self._wanted(target)
        if isinstance(wanted, Diagnostic):
            self._report.diagnostics.append(wanted)
            return None
        resolved = None
        if chosen is not None or target is not None or overrides.target:
            resolved = self._targets.choose(self._scope, wanted, overrides.target)
        return None if self._report.failed else self._build(checked, resolved)

    def every(self) -> Generator[CheckResult]:
        """Check everything, and build every workflow on every target."""
        self._check_declarations(read_overrides((), self._scope, self._report))
        self._check_workflows(None, read_overrides((), self._scope, self._report))
        own = list(self._report.diagnostics)
        failed = self._report.failed
        declared = cast("list[ast.Target]", self._unit.declared(ast.Target))
        targets = [t for t in declared if all(param.default is not None for param in t.params or ())]
        pairs = [(workflow, target) for workflow in self._workflows.values() for target in targets or [None]]
        for workflow, target in pairs[:MAX_COMBINATIONS] or [(None, None)]:
            del self._report.diagnostics[len(own) :]
            built = None if failed or workflow is None else self._build_on(workflow, target)
            yield _result(built, self._report, self._loader, self._unit, self.model())

    def _build_on(self, checked: CheckedWorkflow, target: ast.Target | None) -> Workflow | None:
        name = target.name if target is not None else None
        wanted = ast.Path(names=(name,), span=name.span) if name is not None else None
        return self._build(checked, self._targets.choose(self._scope, wanted, {}))

    def _build(self, checked: CheckedWorkflow | None, target: Target | None) -> Workflow | None:
        if checked is None or not checked.whole or target is None:
            return None
        built = build(checked, target, self._scope)
        check_fit(built, checked, self._report)
        return built

    def _check_declarations(self, overrides: Overrides) -> None:
        scope, unit = self._scope, self._unit
        for param in cast("list[ast.Param]", unit.declared(ast.Param)):
            scope.param(param)
        for record in cast("list[ast.Record]", unit.declared(ast.Record)):
            record_type(record, LocalScope(scope), self._report, time=False)
        # Stages before the types that they use: whether a class is hosted elsewhere is written at the stage.
        self._stages = {
            stage.name.text: self._maker.stage(scope, stage, overrides.stages.get(stage.name.text, {}))
            for stage in cast("list[ast.StageInstance]", unit.declared(ast.StageInstance))
        }
        for kind in cast("list[ast.StageType]", unit.declared(ast.StageType)):
            self._maker.check_type(scope, kind)
            self._maker.check_alone(scope, kind)
        for item in unit.module.items:
            if isinstance(item, ast.Require):
                check_require(item, scope, self._report)
        for target in cast("list[ast.Target]", unit.declared(ast.Target)):
            self._targets.check(scope, target)

    def _check_workflows(self, chosen: ast.Workflow | None, overrides: Overrides) -> CheckedWorkflow | None:
        checker = WorkflowChecker(self._scope, self._stages, self._report)
        for declared in cast("list[ast.Workflow]", self._unit.declared(ast.Workflow)):
            replaced = overrides.workflow(declared.name.text, in_use=declared is chosen)
            self._workflows[declared.name.text] = checker.check(declared, replaced)
        return self._workflows.get(chosen.name.text) if chosen is not None else None

    def _choose(self, name: str | None, require_workflow: bool) -> ast.Workflow | None:
        """The workflow asked for, else the only one, else the one called `train`."""
        own = {w.name.text: w for w in cast("list[ast.Workflow]", self._unit.declared(ast.Workflow))}
        if name is not None:
            if name not in own:
                source = Source("--workflow", name)
                message = f"there is no workflow `{name}`"
                span = Span(source, 0, len(name))
                self._report.unknown("E0208", message, span, name, own, what="the workflows are")
            return own.get(name)
        if not own:
            if require_workflow and not self._unit.module.broken:
                self._report.add("E0208", f"`{self._unit.source.name}` has no workflow", Span(self._unit.source, 0, 0))
            return None
        if len(own) == 1:
            return next(iter(own.values()))
        if "train" not in own:
            names = ", ".join(f"`{candidate}`" for candidate in own)
            second = list(own.values())[1]
            message = f"the file has several workflows: {names}"
            self._report.add("E0208", message, second.name.span, notes=["choose one with `--workflow NAME`"])
        return own.get("train")

    @staticmethod
    def _wanted(target: str | None) -> ast.Expression | Diagnostic | None:
        return None if target is None else parse_value(Source("--target", target))
