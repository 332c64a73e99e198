"""Inlay hints and code lenses: what the passes worked out, beside what was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from gmiflow.lsp import facts
from gmiflow.lsp.analysis import Analysis
from gmiflow.passes.types import has_time, variables
from gmiflow.passes.workflows import CheckedWorkflow
from gmiflow.source import Span
from gmiflow.syntax import ast

DECIDED = ("num_env", "execution", "mapping", "backend", "gmi_per_gpu")
"""Settings that may be `auto`."""
MOST_TYPES = 4
"""Types shown behind one edge."""


def inlay_hints(analysis: Analysis, wanted: types.Range) -> list[types.InlayHint]:
    """The hints of a part of a document."""
    lines = analysis.document.lines
    first, last = lines.offset(wanted.start), lines.offset(wanted.end)
    found: list[types.InlayHint] = []
    for item in analysis.items:
        if item.span.end < first or item.span.start > last:
            continue
        for offset, label, tooltip in _hints(analysis, item):
            if first <= offset <= last:
                position = lines.position(offset)
                found.append(
                    types.InlayHint(position=position, label=label, tooltip=tooltip or None, padding_left=True)
                )
    return found


_Hint = tuple[int, str, str]
"""Offset, text, longer text."""


def _hints(analysis: Analysis, item: ast.Declaration) -> Iterator[_Hint]:
    match item:
        case ast.Param():
            yield from _param(analysis, item)
        case ast.StageInstance():
            yield from _stage(analysis, item)
        case ast.Workflow():
            yield from _workflow(analysis, item)
        case ast.Target():
            yield from _target(analysis, item)
        case _:
            pass


def _param(analysis: Analysis, param: ast.Param) -> Iterator[_Hint]:
    """The value of a parameter that is computed."""
    model = analysis.checked.model
    if model is None or param.default is None or isinstance(param.default, ast.Constant | ast.ListOf | ast.PythonEntry):
        return
    if isinstance(param.default, ast.Unary | ast.Path) and isinstance(param.type, ast.EnumType):
        return
    typed = model.scope.param(param) if model.scope.unit.names.get(param.name.text) is param else None
    if typed is not None and not isinstance(param.default, ast.Unary):
        yield param.default.span.end, f"= {facts.show_typed(typed)}", ""


def _stage(analysis: Analysis, stage: ast.StageInstance) -> Iterator[_Hint]:
    """Sizes that the edges gave a stage."""
    made = facts.elaborated(analysis, stage.name.text)
    if made is None:
        return
    names = sorted({name for port in made.ports.values() if port.shape for name in variables(port.shape)})
    sizes = facts.sizes(analysis, stage.name.text, names)
    if sizes:
        text = ", ".join(f"{name} = {size}" for name, size in sizes)
        yield stage.span.end, f"[{text}]", "Sizes that the edges of the workflow decide"


def _workflow(analysis: Analysis, workflow: ast.Workflow) -> Iterator[_Hint]:
    model = analysis.checked.model
    checked = model.workflows.get(workflow.name.text) if model is not None else None
    if checked is None or checked.declaration is not workflow:
        return
    compilations = [c for c in facts.compilations(analysis, workflow.name.text) if c.sized is not None]
    if compilations:
        details = "\n".join(f"{facts.target_name(c)}: {facts.summary(c)}" for c in compilations)
        more = f" (+{len(compilations) - 1})" if len(compilations) > 1 else ""
        yield workflow.name.span.end, f"{facts.short_summary(compilations[0])}{more}", details
    for statement in workflow.body:
        if isinstance(statement, ast.Edge):
            yield from _edge(checked, statement)
        elif isinstance(statement, ast.Setting) and statement.name.text in DECIDED and compilations:
            yield from _setting(statement, compilations)


def _edge(checked: CheckedWorkflow, edge: ast.Edge) -> Iterator[_Hint]:
    """The types of the data on an edge."""
    texts: list[str] = []
    lifted = False
    unifier = checked.wiring.unifier
    for wire in checked.wiring.wires:
        shape, target = wire.source_port.shape, wire.target_port.shape
        if wire.span == edge.span and shape is not None and target is not None:
            texts.append(facts.shape_text(unifier, wire.source.name, shape))
            lifted = lifted or (wire.lift and has_time(target))
    if texts:
        shown = ", ".join(texts[:MOST_TYPES] + (["..."] if len(texts) > MOST_TYPES else []))
        horizon = checked.settings["horizon"]
        stacked = (f"({shown}) x {horizon}" if len(texts) > 1 else f"{shown} x {horizon}") if lifted else shown
        yield edge.span.end, f": {stacked}", f"Stacked over the {horizon} steps of the horizon" if lifted else ""


def _target(analysis: Analysis, target: ast.Target) -> Iterator[_Hint]:
    compilations = [
        c
        for c in analysis.deep.compilations
        if c.workflow is not None and c.workflow.target.name == target.name.text and c.sized is not None
    ]
    for statement in target.body:
        if isinstance(statement, ast.Setting) and statement.name.text in DECIDED and compilations:
            yield from _setting(statement, compilations)


def _setting(setting: ast.Setting, compilations: Sequence[facts.Compilation]) -> Iterator[_Hint]:
    """What `auto` became, and how many environments each GMI has."""
    name = setting.name.text
    first = compilations[0]
    automatic = isinstance(setting.value, ast.Constant) and setting.value.kind == "auto"
    value = facts.decided(first, name)
    parts = [f"= {value}"] if value is not None and (automatic or not isinstance(setting.value, ast.Constant)) else []
    if not automatic and name != "num_env":
        parts = []
    parts += [f"{facts.per_gmi(first)} per GMI"] if name == "num_env" else []
    if parts:
        lines = [f"{facts.target_name(c)}: {facts.decided(c, name)} ({facts.reason(c, name)})" for c in compilations]
        yield setting.value.span.end, ", ".join(parts), "\n".join(dict.fromkeys(lines))


LENSES = {"explain": "Explain plan", "graph": "Graph", "run": "Run"}


def code_lenses(analysis: Analysis, commands: dict[str, str]) -> list[types.CodeLens]:
    """Lenses above every workflow.

    Args:
        analysis: of the document.
        commands: for each lens that the client can carry out the command that does; its arguments are the
            document's URI and the workflow's name.
    """
    found: list[types.CodeLens] = []
    for item in analysis.items:
        if isinstance(item, ast.Workflow):
            place = Span(item.span.source, item.span.start, item.name.span.end)
            where = analysis.document.lines.range(place.start, place.end)
            for lens, command in commands.items():
                arguments = [analysis.document.uri, item.name.text]
                shown = types.Command(title=LENSES[lens], command=command, arguments=arguments)
                found.append(types.CodeLens(range=where, command=shown))
    return found
