"""`--set path=expression`: parsed like the language, typed like what it replaces.

Paths: `num_env` (a parameter of the file), `train.horizon` (a setting of a workflow; `workflow.horizon` for the
one in use), `learner.lr` (a parameter of a stage), `target.gmi_per_gpu` (a field of the target in use).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from gmiflow.diagnostics import Diagnostic
from gmiflow.passes.imports import Unit
from gmiflow.passes.params import Given, UnitScope
from gmiflow.passes.report import Report
from gmiflow.passes.settings import MODE_BLOCK, SIZING, TARGET, WORKFLOW
from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.parser import parse_value

_WORKFLOW_FIELDS = (*WORKFLOW, *MODE_BLOCK, *SIZING)


@dataclass(kw_only=True, slots=True)
class Overrides:
    """What `--set` replaces, by the place where it is used.

    Attributes:
        workflows: workflow name (or "" for the one in use) to setting to value.
        stages: stage name to parameter to value.
    """

    params: dict[str, Given] = field(default_factory=dict[str, Given])
    target: dict[str, Given] = field(default_factory=dict[str, Given])
    workflows: dict[str, dict[str, Given]] = field(default_factory=dict[str, "dict[str, Given]"])
    stages: dict[str, dict[str, Given]] = field(default_factory=dict[str, "dict[str, Given]"])

    def workflow(self, name: str, *, in_use: bool) -> dict[str, Given]:
        """Settings to replace in one workflow."""
        return {**(self.workflows.get("", {}) if in_use else {}), **self.workflows.get(name, {})}


def read_overrides(pairs: Sequence[tuple[str, str]], scope: UnitScope, report: Report) -> Overrides:
    """Parse the pairs and find what each means; later ones win."""
    overrides = Overrides()
    for path, text in pairs:
        source = Source(f"--set {path}", text)
        place = _place(path, scope, overrides, report)
        if place is None:
            continue
        where, name, strings = place
        parsed = parse_value(source)
        if strings and not isinstance(parsed, ast.Constant):
            parsed = ast.Constant(kind="string", value=text, text=text, span=Span(source, 0, len(text)))
        if isinstance(parsed, Diagnostic):
            report.diagnostics.append(parsed)
        else:
            where[name] = Given(expression=parsed, scope=scope, origin="--set")
    return overrides


def _place(
    path: str, scope: UnitScope, overrides: Overrides, report: Report
) -> tuple[dict[str, Given], str, bool] | None:
    """Where the value goes, under which name, and whether a bare word is a string there."""
    owner, dot, name = path.partition(".")
    names = scope.unit.names
    meaning = names.get(owner)
    if not dot:
        if isinstance(meaning, ast.Param):
            return overrides.params, owner, _is_string(meaning)
        return _unknown(path, scope, report)
    if owner == "target":
        return (
            (overrides.target, name, name == "gpu")
            if name in TARGET
            else _no_field(path, name, TARGET, "target", report)
        )
    if owner == "workflow" or isinstance(meaning, ast.Workflow):
        key = "" if owner == "workflow" else owner
        if name in _WORKFLOW_FIELDS:
            return overrides.workflows.setdefault(key, {}), name, False
        return _no_field(path, name, _WORKFLOW_FIELDS, owner, report)
    if isinstance(meaning, ast.StageInstance):
        return overrides.stages.setdefault(owner, {}), name, False
    return _unknown(path, scope, report)


def _is_string(param: ast.Param) -> bool:
    return isinstance(param.type, ast.NamedType) and param.type.path.text == "string"


def _no_field(path: str, name: str, fields: Iterable[str], owner: str, report: Report) -> None:
    source = Source(f"--set {path}", path)
    span = Span(source, len(path) - len(name), len(path))
    report.unknown("E0215", f"`{owner}` has no `{name}`", span, name, fields, what="it has", note=_placed(path))


def _placed(path: str) -> str:
    """What to do instead of setting what `place` says; "" for another path."""
    if "place" not in path.split("."):
        return ""
    return "`place` is not set from outside, but a parameter in it is: `learner = devices(learner_device)`"


def _params_of(stage: ast.StageInstance, scope: UnitScope) -> list[str]:
    """Names of the parameters of a stage's type; none where the type is not known, which is reported elsewhere."""
    meaning: object = scope.unit
    for name in stage.type.names:
        meaning = meaning.names.get(name.text) if isinstance(meaning, Unit) else None
    return [param.name.text for param in meaning.params or ()] if isinstance(meaning, ast.StageType) else []


def _unknown(path: str, scope: UnitScope, report: Report) -> None:
    """Report a path that means nothing, with the paths that the user may have meant."""
    span = Span(Source(f"--set {path}", path), 0, len(path))
    name = path.rpartition(".")[2]
    unit = scope.unit
    workflows = [workflow.name.text for workflow in cast("list[ast.Workflow]", unit.declared(ast.Workflow))]
    same = [f"{workflow}.{name}" for workflow in workflows if name in _WORKFLOW_FIELDS]
    same += [f"target.{name}"] if name in TARGET else []
    stages = cast("list[ast.StageInstance]", unit.declared(ast.StageInstance))
    same += [f"{stage.name.text}.{name}" for stage in stages if name in _params_of(stage, scope)]
    if same:
        candidates = " or ".join(f"`--set {candidate}=...`" for candidate in same)
        report.add("E0215", f"`{path}` is no parameter of the file", span, notes=[f"did you mean {candidates}?"])
        return
    params = [param.name.text for param in cast("list[ast.Param]", unit.declared(ast.Param))]
    message = f"there is nothing to set at `{path}`"
    report.unknown("E0215", message, span, path, params, what="parameters are", note=_placed(path))
