"""Things with names in Markdown: how they are declared, what their documentation says, what they came to be."""

from __future__ import annotations

from collections.abc import Callable

from gmiflow.lsp import facts, vocabulary
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.symbols import DECLARATIONS, Symbol, ports_of, stage_type
from gmiflow.passes.imports import Unit
from gmiflow.passes.types import variables
from gmiflow.passes.values import SCALARS
from gmiflow.syntax import ast

MOST_MEMBERS = 40
"""Names of a module that are listed."""


def markdown(analysis: Analysis, symbol: Symbol, stage: str | None = None, workflow: str | None = None) -> str:
    """Everything about a symbol.

    Args:
        analysis: of the document that asks.
        symbol: what to describe.
        stage: the stage that a port or argument is looked at through.
        workflow: the workflow around the place.
    """
    parts = [f"```gmi\n{declaration(symbol)}\n```"]
    parts += [resolved] if (resolved := _resolved(analysis, symbol, stage, workflow)) else []
    parts += [text] if (text := documentation(symbol)) else []
    return "\n\n".join(parts)


def declaration(symbol: Symbol) -> str:
    """How a symbol is declared, as code."""
    node = symbol.node
    match node:
        case ast.StageType():
            return _stage_type(node)
        case ast.Target():
            return f"target {node.name.text}{_params(node.params)}"
        case ast.Record():
            fields = [f"  {item.name.text} : {facts.one_line(item.type)}" for item in node.fields]
            return "\n".join([f"record {node.name.text} {{", *fields, "}"])
        case ast.Param():
            text = facts.one_line(node)
            return text if text.startswith("param") or symbol.kind != "param" else f"param {text}"
        case ast.StageInstance():
            return f"{node.role} {node.name.text} = {node.type.text}{_arguments(node)}"
        case ast.Workflow():
            return f"workflow {node.name.text}"
        case ast.Port():
            return port_text(node)
        case ast.Field():
            return f"{node.name.text} : {facts.one_line(node.type)}"
        case _:
            return _word(symbol)


def port_text(port: ast.Port) -> str:
    """A port on one line."""
    bounds = " range " + " .. ".join(map(facts.one_line, port.range)) if port.range is not None else ""
    optional = " optional" if port.optional else ""
    return f"{port.direction} {port.name.text} : {facts.one_line(port.type)}{bounds}{optional}"


def documentation(symbol: Symbol) -> str:
    """What its `///` comment says, or what the vocabulary says about a word of the language."""
    if symbol.kind == "module" and symbol.unit is not None:
        return _members(symbol.unit)
    doc = getattr(symbol.node, "doc", None)
    if isinstance(doc, ast.Doc):
        return "\n".join(doc.lines).strip()
    if isinstance(symbol.node, ast.StageInstance) and symbol.unit is not None:
        found = stage_type(symbol.unit, symbol.node)
        return "\n".join(found[1].doc.lines).strip() if found is not None and found[1].doc is not None else ""
    words: dict[str, Callable[[], str]] = {
        "setting": lambda: vocabulary.SETTINGS.get(f"{symbol.owner}.{symbol.name}", ""),
        "section": lambda: vocabulary.SECTIONS.get(f"{symbol.owner}.{symbol.name}", ""),
        "value": lambda: vocabulary.SETTINGS.get(symbol.owner, ""),
        "type": lambda: vocabulary.TYPES.get(symbol.name, ""),
        "axis": lambda: vocabulary.AXES.get(symbol.name, ""),
        "function": lambda: vocabulary.FUNCTIONS[symbol.name][1],
        "entry": lambda: "The Python class behind it. The compiler reads its file and never imports it.",
    }
    return words[symbol.kind]() if symbol.kind in words else ""


def _word(symbol: Symbol) -> str:
    match symbol.kind:
        case "module":
            return f"module {symbol.unit.source.name if symbol.unit is not None else symbol.name}"
        case "function":
            return vocabulary.FUNCTIONS[symbol.name][0]
        case "setting":
            spec = vocabulary.spec_of(symbol.owner, symbol.name)
            kind = str(spec.type) if spec is not None else "target"
            return f"{symbol.name} : {kind}"
        case "member" | "value":
            return f"{symbol.name}  // of {symbol.owner}"
        case "entry":
            return f'py "{symbol.name}"'
        case "variable":
            return f"{symbol.name}  // a size of {symbol.owner}, given by the edges"
        case _:
            return symbol.name


def _stage_type(node: ast.StageType) -> str:
    head = f"{node.role} {node.name.text}{_params(node.params)}"
    ports = [f"  {port_text(port)}" for port in ports_of(node)]
    return "\n".join([f"{head} {{", *ports, "}"]) if ports else head


def _params(params: tuple[ast.Param, ...] | None) -> str:
    if not params:
        return "()" if params is not None else ""
    texts = [facts.one_line(param) for param in params]
    line = f"({', '.join(texts)})"
    return line if len(line) <= 60 else "(\n" + "".join(f"  {text},\n" for text in texts) + ")"


def _arguments(stage: ast.StageInstance) -> str:
    return "" if stage.arguments is None else f"({', '.join(map(facts.one_line, stage.arguments))})"


def _members(unit: Unit) -> str:
    """What a module declares, one line each."""
    lines: list[str] = []
    for name, meaning in unit.names.items():
        kind = DECLARATIONS.get(type(meaning))
        if kind is not None:
            doc = getattr(meaning, "doc", None)
            first = f": {doc.lines[0]}" if isinstance(doc, ast.Doc) and doc.lines else ""
            lines.append(f"- `{name}`{first}")
    more = [f"- and {len(lines) - MOST_MEMBERS} more"] if len(lines) > MOST_MEMBERS else []
    return "\n".join(lines[:MOST_MEMBERS] + more)


# What the checker and the passes made of it


def _resolved(analysis: Analysis, symbol: Symbol, stage: str | None, workflow: str | None) -> str:
    match symbol.kind:
        case "param":
            return _param_value(analysis, symbol)
        case "port":
            return _port_type(analysis, symbol, stage, workflow)
        case "argument":
            made = facts.elaborated(analysis, stage) if stage is not None else None
            value = dict(made.params).get(symbol.name) if made is not None else None
            return f"Here: `{facts.show_value(value, None)}`" if value is not None else ""
        case "stage":
            return _stage_values(analysis, symbol) if symbol.unit is analysis.unit else ""
        case "variable":
            return _variable_sizes(analysis, symbol)
        case "setting":
            return _setting_value(analysis, symbol, workflow)
        case "workflow":
            found = [(facts.target_name(c), facts.summary(c)) for c in facts.compilations(analysis, symbol.name)]
            return "\n".join(f"- On {where}: {text}" for where, text in found if text)
        case "target":
            return _target_values(analysis, symbol) if symbol.unit is analysis.unit else ""
        case _:
            return ""


def _target_values(analysis: Analysis, symbol: Symbol) -> str:
    """The hardware that a target of this file stands for, and what each workflow becomes on it."""
    found = [
        (c.workflow.target, f"- {c.workflow.name}: {text}" if (text := facts.summary(c)) else "")
        for c in analysis.deep.compilations
        if c.workflow is not None and c.workflow.target.name == symbol.name
    ]
    if not found:
        return ""
    target = found[0][0]
    memory = SCALARS["bytes"]
    values = {
        "gpu": target.gpu,
        "devices": str(target.devices) if target.device == "cuda" else "",
        "memory": facts.show_value(target.memory_bytes, memory) if target.memory_bytes else "",
        "reserve": facts.show_value(target.reserve_bytes, memory) if target.reserve_bytes else "",
        "sm_count": str(target.sm_count or ""),
        "cores": str(target.cores or ""),
    }
    parts = [f"`device = {target.device}`", *(f"`{name} = {text}`" for name, text in values.items() if text)]
    return "\n\n".join([", ".join(parts), "\n".join(line for _, line in found if line)]).strip()


def _param_value(analysis: Analysis, symbol: Symbol) -> str:
    model = analysis.checked.model
    if model is None or not isinstance(symbol.node, ast.Param) or symbol.unit is None:
        return ""
    typed = model.scope.of(symbol.unit).param(symbol.node)
    return f"Value: `{facts.show_typed(typed)}`" if typed is not None else ""


def _port_type(analysis: Analysis, symbol: Symbol, stage: str | None, workflow: str | None) -> str:
    made = facts.elaborated(analysis, stage) if stage is not None else None
    unifier = facts.unifier_of(analysis, stage, workflow) if stage is not None else None
    port = made.ports.get(symbol.name) if made is not None else None
    if stage is None or unifier is None or port is None or port.shape is None:
        return ""
    lines = [f"Here: `{facts.shape_text(unifier, stage, port.shape)}`"]
    fields = facts.record_lines(unifier, stage, port.shape)
    return "\n\n".join([*lines, "```gmi\n" + "\n".join(fields) + "\n```"] if fields else lines)


def _stage_values(analysis: Analysis, symbol: Symbol) -> str:
    made = facts.elaborated(analysis, symbol.name)
    if made is None:
        return ""
    names = sorted({name for port in made.ports.values() if port.shape for name in variables(port.shape)})
    lines = [f"`{name} = {facts.show_value(value, None)}`" for name, value in made.params]
    lines += [f"`{name} = {size}`" for name, size in facts.sizes(analysis, symbol.name, names)]
    entry = [f"Python class `{made.entry}`"] if made.entry else []
    return "\n\n".join([*([", ".join(lines)] if lines else []), *entry])


def _variable_sizes(analysis: Analysis, symbol: Symbol) -> str:
    """The sizes that a shape variable has in the stages of this file."""
    unit = analysis.unit
    found: list[str] = []
    for item in analysis.items:
        kind = stage_type(unit, item) if unit is not None and isinstance(item, ast.StageInstance) else None
        if isinstance(item, ast.StageInstance) and kind is not None and kind[1].name.text == symbol.owner:
            found += [
                f"`{size}` in `{item.name.text}`" for _, size in facts.sizes(analysis, item.name.text, [symbol.name])
            ]
    return "Here: " + ", ".join(found) if found else ""


def _setting_value(analysis: Analysis, symbol: Symbol, workflow: str | None) -> str:
    model = analysis.checked.model
    lines: list[str] = []
    checked = model.workflows.get(workflow) if model is not None and workflow is not None else None
    if checked is not None and symbol.owner in ("workflow", "mode") and symbol.name in checked.found:
        typed = checked.found[symbol.name].value
        lines += [f"Value: `{facts.show_typed(typed)}`"] if typed is not None else []
    if symbol.owner in ("workflow", "target"):
        for compilation in analysis.deep.compilations:
            value = facts.decided(compilation, symbol.name)
            here = compilation.workflow is not None and workflow in (None, compilation.workflow.name)
            if value is not None and here:
                lines.append(f"- {_decision(compilation, symbol.name, value)}")
    return "\n".join(dict.fromkeys(lines))


def _decision(compilation: facts.Compilation, name: str, value: str) -> str:
    why = facts.reason(compilation, name)
    each = f", {facts.per_gmi(compilation)} per GMI" if name == "num_env" else ""
    return f"On {facts.target_name(compilation)}: `{value}`{each}" + (f" ({why})" if why and why != "given" else "")
