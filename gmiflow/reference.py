"""Markdown reference of a `.gmi` module, from its declarations and their `///` comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmiflow.syntax import ast


def reference(module: ast.Module, name: str) -> str:
    """A page about everything that a module declares, in the order of kinds that a reader looks for.

    Args:
        module: the tree of the file.
        name: how the page calls it ("std.algo.ppo").
    """
    items = module.items
    parts = [f"# {name}"]
    parts += _group("Parameters", [_params_table([i for i in items if isinstance(i, ast.Param)])])
    roles = (("simulator", "Simulators"), ("agent", "Agents"), ("trainer", "Trainers"))
    for role, title in roles:
        parts += _group(title, [_stage_type(i) for i in items if isinstance(i, ast.StageType) and i.role == role])
    parts += _group("Records", [_record(i) for i in items if isinstance(i, ast.Record)])
    parts += _group("Targets", [_target(i) for i in items if isinstance(i, ast.Target)])
    parts += _group("Stages", [_stages([i for i in items if isinstance(i, ast.StageInstance)])])
    parts += _group("Workflows", [_workflow(i) for i in items if isinstance(i, ast.Workflow)])
    return "\n\n".join(parts) + "\n"


def _group(title: str, texts: Iterable[str]) -> list[str]:
    found = [text for text in texts if text]
    return [f"## {title}", *found] if found else []


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _stage_type(item: ast.StageType) -> str:
    ports = [statement for statement in item.body if isinstance(statement, ast.Port)]
    entry = next((s.value for s in item.body if isinstance(s, ast.Setting) and s.name.text == "entry"), None)
    where = f"Python class `{entry.text}`." if isinstance(entry, ast.PythonEntry) else ""
    rows = [(port.direction, _code(port.name.text), _code(_port_type(port)), _line(port.doc)) for port in ports]
    needs = _settings_table([s for s in item.body if isinstance(s, ast.Section)])
    return _join(
        f"### {item.name.text}",
        _text(item.doc),
        _params_table(item.params or ()),
        _table(("", "Port", "Type", ""), rows),
        needs,
        where,
    )


def _port_type(port: ast.Port) -> str:
    bounds = f" range {_source(port.range[0])} .. {_source(port.range[1])}" if port.range else ""
    return _source(port.type) + bounds + (" optional" if port.optional else "")


def _record(item: ast.Record) -> str:
    rows = [(_code(f.name.text), _code(_source(f.type)), _line(f.doc)) for f in item.fields]
    return _join(f"### {item.name.text}", _text(item.doc), _table(("Field", "Type", ""), rows))


def _target(item: ast.Target) -> str:
    return _join(f"### {item.name.text}", _text(item.doc), _params_table(item.params or ()), _settings_table(item.body))


def _stages(items: Sequence[ast.StageInstance]) -> str:
    rows = [(_code(i.name.text), i.role, _code(_stage_text(i)), _line(i.doc)) for i in items]
    return _table(("Stage", "Role", "Made from", ""), rows)


def _stage_text(item: ast.StageInstance) -> str:
    arguments = ", ".join(_source(argument) for argument in item.arguments or ())
    return f"{item.type.text}({arguments})"


def _workflow(item: ast.Workflow) -> str:
    edges = [statement for statement in item.body if isinstance(statement, ast.Edge)]
    rows = [(_code(_source(e.source)), _code(_source(e.target)), _block(e.attributes), _line(e.doc)) for e in edges]
    return _join(
        f"### {item.name.text}",
        _text(item.doc),
        _settings_table(item.body),
        _table(("From", "To", "", ""), rows),
    )


def _settings_table(body: Sequence[ast.Statement]) -> str:
    rows: list[tuple[str, ...]] = []
    for statement in body:
        if isinstance(statement, ast.Setting):
            value = " ".join(filter(None, (_code(_source(statement.value)), _block(statement.block))))
            rows.append((_code(statement.name.text), value, _line(statement.doc)))
        elif isinstance(statement, ast.Section):
            rows.append((_code(statement.name.text), _block(statement.settings), _line(statement.doc)))
    return _table(("Setting", "Value", ""), rows)


def _block(settings: Sequence[ast.Setting] | None) -> str:
    return ", ".join(_code(f"{s.name.text} = {_source(s.value)}") for s in settings or ())


def _params_table(params: Sequence[ast.Param]) -> str:
    rows = [
        (
            _code(param.name.text),
            _code(_source(param.type)),
            _code(_source(param.default)) if param.default else "required",
            _code(_source(param.where)) if param.where else "",
            _line(param.doc),
        )
        for param in params
    ]
    return _table(("Parameter", "Type", "Default", "Where", ""), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table without the columns that are empty in every row."""
    kept = [index for index in range(len(head)) if any(row[index] for row in rows)]
    if not kept:
        return ""
    lines = [[head[index] for index in kept], ["---"] * len(kept)]
    lines += [[row[index].replace("|", "\\|") for index in kept] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _source(node: ast.Expression | ast.TypeExpression | ast.Argument | ast.Endpoint) -> str:
    """As written, on one line."""
    return " ".join(node.span.text.split())


def _text(doc: ast.Doc | None) -> str:
    """The documentation as paragraphs."""
    return "\n".join(doc.lines).strip() if doc else ""


def _line(doc: ast.Doc | None) -> str:
    """The documentation on one line, for a table."""
    return " ".join(line for line in doc.lines if line) if doc else ""
