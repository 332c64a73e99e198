"""Lint rules about names: what nothing uses, and what hides something else.

In: a loaded file without errors. Out: warnings. Parameters, stages and types of a file without a workflow are there
for the files that import it, and are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label
from gmiflow.passes.imports import Unit
from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.words import AXES, DTYPES, FUNCTIONS

_TYPE_WORDS = frozenset((*DTYPES, "int", "float", "string", "weights"))


def warnings(unit: Unit) -> Iterator[Diagnostic]:
    """Warnings about the names of one file."""
    used = set(_used(unit.module))
    has_workflow = any(isinstance(item, ast.Workflow) for item in unit.module.items)
    for item in unit.module.items:
        match item:
            case ast.Import():
                yield from _import(item, used)
            case ast.Param() if has_workflow and item.name.text not in used:
                yield _unused("W0203", f"nothing uses the parameter `{item.name.text}`", item)
            case ast.StageInstance() if has_workflow and item.name.text not in used:
                yield _unused("W0204", f"no workflow uses the stage `{item.name.text}`", item)
            case ast.Record() | ast.StageType() if has_workflow and item.name.text not in used:
                yield _unused("W0205", f"nothing uses `{item.name.text}`", item)
            case _:
                pass
        if isinstance(item, ast.Target):
            yield from _target_params(item)
        if isinstance(item, ast.Target | ast.StageType):
            yield from _hiding_params(item.params or (), unit)
    yield from _hiding_words(unit.module)


def _import(item: ast.Import, used: set[str]) -> Iterator[Diagnostic]:
    name = item.alias.text if item.alias else item.module.names[-1].text if item.module else ""
    if name and name not in used:
        yield _unused("W0201", f"nothing uses the import `{name}`", item, item.target_span)


def _target_params(target: ast.Target) -> Iterator[Diagnostic]:
    """A stage type's parameters are for its Python class; a target's can only be used in its body."""
    used = set(_names_in(target.body)) | {name for param in target.params or () for name in _names_in(param.default)}
    for param in target.params or ():
        if param.name.text not in used:
            message = f"target `{target.name.text}` does not use its parameter `{param.name.text}`"
            yield _warning("W0203", message, param.name.span)


def _hiding_params(params: Sequence[ast.Param], unit: Unit) -> Iterator[Diagnostic]:
    for param in params:
        hidden = unit.names.get(param.name.text)
        name = getattr(hidden, "name", None)
        if hidden is not None:
            message = f"the parameter `{param.name.text}` hides another `{param.name.text}` of this file"
            places = (Label(span=name.span, text="declared here"),) if isinstance(name, ast.Name) else ()
            yield _warning("W0206", message, param.name.span, places)


def _hiding_words(module: ast.Module) -> Iterator[Diagnostic]:
    """Names that the language itself gives a meaning: `env` in a shape, `min(...)`, `float`."""
    meanings = dict.fromkeys(AXES, "an axis") | dict.fromkeys(FUNCTIONS, "a function")
    meanings |= dict.fromkeys(_TYPE_WORDS, "a type")
    for item in module.items:
        names: list[ast.Name] = []
        if isinstance(item, ast.Param | ast.Record | ast.StageType | ast.StageInstance | ast.Target):
            names.append(item.name)
        if isinstance(item, ast.StageType | ast.Target):
            names += [param.name for param in item.params or ()]
        if isinstance(item, ast.Import) and item.alias:
            names.append(item.alias)
        for name in names:
            if name.text in meanings:
                yield _warning("W0206", f"`{name.text}` is also {meanings[name.text]} of the language", name.span)


def _used(module: ast.Module) -> Iterator[str]:
    """Names of the file that something in it refers to."""
    for item in module.items:
        if isinstance(item, ast.StageType | ast.Target):
            local = {param.name.text for param in item.params or ()}
            yield from (name for name in _names_in((item.params, item.body)) if name not in local)
        elif isinstance(item, ast.Workflow):
            yield from _names_in(item.body)
            yield from _placed(item)
        else:
            yield from _names_in(item)


def _placed(workflow: ast.Workflow) -> Iterator[str]:
    for section in workflow.body:
        if isinstance(section, ast.Section) and section.name.text == "place":
            yield from (setting.name.text for setting in section.settings)


def _names_in(node: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a tree
    """First names of all paths, and stages of all endpoints."""
    stack: list[Any] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Path):
            yield part.names[0].text
        elif isinstance(part, ast.Endpoint):
            yield part.stage.text
        elif isinstance(part, tuple):
            stack += part
        elif is_dataclass(part) and not isinstance(part, Span) and not (isinstance(part, ast.Import)):
            stack += [getattr(part, field.name) for field in fields(part)]


def _unused(
    code: str,
    message: str,
    item: ast.Import | ast.Param | ast.StageInstance | ast.Record | ast.StageType,
    span: Span | None = None,
) -> Diagnostic:
    place = span if span is not None or isinstance(item, ast.Import) else item.name.span
    fix = Fix(
        title="remove it",
        edits=(Edit(span=_whole_lines(item.doc.span if item.doc else item.span, item.span), text=""),),
    )
    return Diagnostic(code=code, message=message, span=place, severity="warning", fixes=(fix,))


def _whole_lines(first: Span, last: Span) -> Span:
    """From the start of the first place's line to the end of the last place's, its line end included."""
    text = first.source.text
    end = text.find("\n", last.end)
    return Span(first.source, text.rfind("\n", 0, first.start) + 1, len(text) if end < 0 else end + 1)


def _warning(code: str, message: str, span: Span, secondary: tuple[Label, ...] = ()) -> Diagnostic:
    return Diagnostic(code=code, message=message, span=span, severity="warning", secondary=secondary)
