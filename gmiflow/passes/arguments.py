"""Arguments of stage types and targets: matched with the parameters, evaluated, and checked.

In: parameters as declared and arguments as written. Out: a value for every parameter. Not in here: what one
parameter's value is (`params`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gmiflow.passes.evaluate import names_in, names_of_value
from gmiflow.passes.params import Given, LocalScope, UnitScope, bind_param
from gmiflow.passes.report import Report
from gmiflow.passes.values import Typed
from gmiflow.source import Source, Span
from gmiflow.syntax import ast


def bind_arguments(
    params: Sequence[ast.Param],
    arguments: Sequence[ast.Argument],
    overrides: Mapping[str, Given],
    caller: UnitScope,
    home: UnitScope,
    called: str,
    at: Span,
) -> dict[str, Typed | None] | None:
    """Values of the parameters of a stage type or target.

    Args:
        params: as declared, in ``home``.
        arguments: as written, in ``caller``.
        overrides: from `--set`, before the arguments.
        caller: scope of the call.
        home: scope of the declaration.
        called: name of what is called, for messages.
        at: the call.

    Returns:
        One entry per parameter, None where its value is wrong; None when the arguments do not fit.
    """
    report = home.report
    given = _match_arguments(params, arguments, caller, called)
    if given is None:
        return None
    names = [param.name.text for param in params]
    for name in overrides.keys() - set(names):
        message = f"`{called}` has no parameter `{name}`"
        report.unknown("E0215", message, _path_of(overrides[name], name), name, names, what="its parameters are")
        return None
    local = LocalScope(home)
    for param in params:
        name = param.name.text
        chosen = overrides.get(name) or given.get(name)
        if chosen is None and names_of_value(param.default, param.type) & set(names) - local.values.keys():
            local.values[name] = None  # `check_param_list` reports it
            continue
        if chosen is None and param.default is None:
            places = [(param.name.span, "declared here")]
            report.add("E0210", f"`{called}` needs a value for `{name}`", at, secondary=places)
            local.values[name] = None
            continue
        local.values[name] = bind_param(param, chosen, local, report)
    return local.values


def _match_arguments(
    params: Sequence[ast.Param], arguments: Sequence[ast.Argument], caller: UnitScope, called: str
) -> dict[str, Given] | None:
    report = caller.report
    names = [param.name.text for param in params]
    given: dict[str, Given] = {}
    ok = True
    for index, argument in enumerate(arguments):
        if not names:
            report.add("E0210", f"`{called}` has no parameters", argument.span)
            ok = False
        elif argument.name is None:
            message = f"arguments of `{called}` are written with their name"
            likely = f"{names[index]} = {argument.span.text}" if index < len(names) else None
            notes = [f"its parameters are: {', '.join(f'`{name}`' for name in names)}"]
            report.add("E0210", message, argument.span, notes=notes, replace=likely)
            ok = False
        elif argument.name.text not in names:
            message = f"`{called}` has no parameter `{argument.name.text}`"
            report.unknown("E0210", message, argument.name.span, argument.name.text, names, what="its parameters are")
            ok = False
        elif argument.name.text in given:
            report.add("E0210", f"`{argument.name.text}` is given twice", argument.name.span)
            ok = False
        else:
            given[argument.name.text] = Given(expression=argument.value, scope=caller, origin="argument")
    return given if ok else None


def _path_of(given: Given, name: str) -> Span:
    """The last word of the path of a `--set`."""
    source = given.expression.span.source
    path = source.name.removeprefix("--set ")
    return Span(Source(source.name, path), len(path) - len(name), len(path))


def check_param_list(params: Sequence[ast.Param], report: Report) -> None:
    """Names must be unique, and a default or `where` may use only parameters before it."""
    seen: dict[str, Span] = {}
    names = {param.name.text for param in params}
    for param in params:
        name = param.name.text
        used = names_of_value(param.default, param.type) | (names_in([param.where]) - {name})
        later = (used & names) - seen.keys()
        if later:
            message = f"`{name}` uses `{min(later)}`, which is not declared before it"
            report.add("E0413", message, param.span)
        if name in seen:
            first = [(seen[name], "first declared here")]
            report.add("E0202", f"parameter `{name}` is declared twice", param.name.span, secondary=first)
        seen[name] = param.name.span
