"""What a class must be to serve as a stage or a GMI, as far as its text shows.

Nothing is imported, so what is checked is what the module's text tells:

- the class exists (a name that the module imports or assigns counts as one);
- the runtime constructs a stage without arguments, so `__init__` may not require any, and a GMI with its runtime;
- a class that inherits directly from `gmiflow.api.Simulator`, `Agent` or `Trainer` has that role, and one that
  inherits from nothing has none;
- a simulator's class that inherits from nothing and has the methods `setup`, `reset` and `step` is one for an
  interpreter of its own: every stage of it needs `python`, and no stage of a subclass of `gmiflow.api.Simulator` may;
- a class with a literal class attribute ``PARAMS`` (a tuple, list, set or dict of strings) accepts exactly
  those parameters. Without it a class reads what it likes from ``context.params``, and nothing is checked.
"""

from __future__ import annotations

import ast as python
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gmiflow.diagnostics import Edit, Fix, closest
from gmiflow.passes.params import a_role
from gmiflow.passes.report import Report
from gmiflow.source import Source, Span
from gmiflow.syntax import ast

Use: TypeAlias = Literal["declared", "here", "hosted"]
"""How a stage type is used: by no stage as far as is known, in this interpreter, in one of its own (`python`)."""

_HOSTED_METHODS = ("setup", "reset", "step")
_BASES = {"Simulator": "simulator", "Agent": "agent", "Trainer": "trainer", "SharedTrainer": "trainer"}


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file, parsed."""

    source: Source
    tree: python.Module


def _rename(entry: ast.PythonEntry, name: str, close: str) -> Fix:
    """Write another class in an entry; its name ends in front of the closing quote."""
    end = entry.span.end - 1
    place = Span(entry.span.source, end - len(name), end)
    return Fix(title=f"write `{close}`", edits=(Edit(span=place, text=close),))


def check_class(
    entry: ast.PythonEntry,
    module: Module,
    name: str,
    role: str | None,
    params: dict[str, Span],
    report: Report,
    used: Use,
) -> bool:
    """Check the class ``name`` of a module; whether it fits. Arguments as `python_entry.check_entry` has them."""
    classes = {node.name: node for node in module.tree.body if isinstance(node, python.ClassDef)}
    if name not in classes:
        function = next((n for n in module.tree.body if isinstance(n, python.FunctionDef) and n.name == name), None)
        if function is not None:
            place = [(line_of(module.source, function), "declared here")]
            report.add("E0214", f"`{name}` is a function, not a class", entry.span, secondary=place)
            return False
        if name in _bound_names(module.tree):
            return True
        close = closest(name, classes)
        notes = [f"did you mean `{close}`?"] if close else []
        start = [(Span(module.source, 0, 0), "the module")]
        message = f"`{entry.text.partition(':')[0]}` has no class `{name}`"
        fixes = (_rename(entry, name, close),) if close else ()
        report.add("E0213", message, entry.span, secondary=start, notes=notes, fixes=fixes)
        return False
    found = classes[name]
    place = (line_of(module.source, found), f"`{name}` is declared here")
    ok = _check_constructor(entry, module, found, role, report)
    base = f"gmiflow.api.{role.capitalize()}" if role is not None else "gmiflow.runtime.GMI"
    if not (found.bases or found.keywords or found.decorator_list):
        ok = _check_bare_class(entry, found, place, role, base, report, used) and ok
    has_role = _role(module.tree, found)
    if role is not None and has_role is not None and has_role != role:
        report.add(
            "E0214", f"`{name}` is {a_role(has_role)}, used here as {a_role(role)}", entry.span, secondary=[place]
        )
        ok = False
    if role is None and has_role is not None:
        message = f"`{name}` is {a_role(has_role)}, and `gmi` takes a subclass of `{base}`"
        report.add("E0214", message, entry.span, secondary=[place])
        ok = False
    if used == "hosted" and (has_role is not None or (found.bases and entry.text.startswith("gmiflow."))):
        notes = [
            "it takes torch tensors in gmiflow's own interpreter: leave `python` out",
            "a class for another interpreter inherits from nothing (docs/guides/foreign-interpreters.md)",
        ]
        message = f"`{name}` is a subclass of `{base}`, and the stage has `python`"
        report.add("E0214", message, entry.span, secondary=[place], notes=notes)
        ok = False
    accepted = _accepted_params(found)
    for param, span in params.items():
        if accepted is not None and param not in accepted:
            notes = [f"it takes: {', '.join(sorted(accepted)) or 'nothing'}"]
            report.add("E0214", f"`{name}` takes no parameter `{param}`", span, secondary=[place], notes=notes)
            ok = False
    return ok


def _check_bare_class(
    entry: ast.PythonEntry,
    found: python.ClassDef,
    place: tuple[Span, str],
    role: str | None,
    base: str,
    report: Report,
    used: Use,
) -> bool:
    """A class that inherits from nothing: only a simulator's may, for an interpreter of its own."""
    defined = {node.name for node in found.body if isinstance(node, python.FunctionDef)}
    missing = [method for method in _HOSTED_METHODS if method not in defined]
    if role == "simulator" and used == "hosted":
        if missing:
            notes = ["a class for another interpreter has `setup`, `reset` and `step`"]
            message = f"`{found.name}` has no method `{missing[0]}`"
            report.add("E0214", message, entry.span, secondary=[place], notes=notes)
        return not missing
    if role == "simulator" and not missing:
        if used == "here":
            notes = ['write `simulator sim = ... { python = "/path/to/python" }`']
            message = f"`{found.name}` runs in an interpreter of its own, and the stage has no `python`"
            report.add("E0214", message, entry.span, secondary=[place], notes=notes)
        return used != "here"
    report.add("E0214", f"`{found.name}` is not a subclass of `{base}`", entry.span, secondary=[place])
    return False


def _check_constructor(
    entry: ast.PythonEntry, module: Module, found: python.ClassDef, role: str | None, report: Report
) -> bool:
    """A stage is constructed with nothing, a GMI (``role`` None) with its runtime."""
    node = next((n for n in found.body if isinstance(n, python.FunctionDef) and n.name == "__init__"), None)
    if node is None:
        return True
    given = 0 if role is not None else 1
    positional = [*node.args.posonlyargs, *node.args.args]
    required = [a.arg for a in positional[1 + given : len(positional) - len(node.args.defaults)]]
    required += [a.arg for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is None]
    takes_runtime = not given or len(positional) > given or node.args.vararg is not None
    if takes_runtime and not required:
        return True
    place = (line_of(module.source, node), "the constructor")
    if given:
        notes = ["the class of `gmi` is constructed with the runtime alone: `def __init__(self, runtime)`"]
        message = f"`{found.name}(runtime)` needs `{required[0]}`" if required else f"`{found.name}()` takes no runtime"
    else:
        notes = ["a stage is constructed without arguments; its parameters are in `context.params` at `setup`"]
        message = f"`{found.name}()` needs `{required[0]}`"
    report.add("E0214", message, entry.span, secondary=[place], notes=notes)
    return False


def _bound_names(tree: python.Module) -> set[str]:
    """Names that the module's top level imports or assigns; with a star import every name counts."""
    names: set[str] = set()
    for node in python.walk(tree):
        if isinstance(node, python.ImportFrom | python.Import):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, python.Name) and isinstance(node.ctx, python.Store):
            names.add(node.id)
        elif isinstance(node, python.ClassDef | python.FunctionDef):
            if node.name == "__getattr__":
                return _Everything()
            names.add(node.name)
    return _Everything() if "*" in names else names


class _Everything(set[str]):
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


def _role(tree: python.Module, found: python.ClassDef) -> str | None:
    """Role by a direct base class that is imported from `gmiflow.api`."""
    imported = {
        alias.asname or alias.name: alias.name
        for node in tree.body
        if isinstance(node, python.ImportFrom) and node.module == "gmiflow.api"
        for alias in node.names
    }
    for base in found.bases:
        if isinstance(base, python.Name) and imported.get(base.id) in _BASES:
            return _BASES[imported[base.id]]
    return None


def class_says(module: Module, found: python.ClassDef, attribute: str) -> bool | None:
    """What a class says of a yes-or-no attribute of its base in `gmiflow.api`, no by default; None if unknown."""
    for node in found.body:
        targets = node.targets if isinstance(node, python.Assign) else []
        targets = [node.target] if isinstance(node, python.AnnAssign) else targets
        if any(isinstance(target, python.Name) and target.id == attribute for target in targets):
            value = node.value if isinstance(node, python.Assign | python.AnnAssign) else None
            return value.value if isinstance(value, python.Constant) and isinstance(value.value, bool) else None
    direct = len(found.bases) == 1 and _role(module.tree, found) is not None
    return False if direct else None


def _accepted_params(found: python.ClassDef) -> set[str] | None:
    for node in found.body:
        targets = (
            node.targets
            if isinstance(node, python.Assign)
            else [node.target]
            if isinstance(node, python.AnnAssign)
            else []
        )
        if any(isinstance(t, python.Name) and t.id == "PARAMS" for t in targets):
            try:
                value = python.literal_eval(node.value)  # type: ignore[union-attr, arg-type]
                return {str(item) for item in value}
            except (ValueError, TypeError):
                return None
    return None


def line_of(source: Source, node: python.ClassDef | python.FunctionDef) -> Span:
    """The line that declares a class or function."""
    lines = source.text.splitlines(keepends=True)
    start = sum(len(line) for line in lines[: node.lineno - 1])
    return Span(source, start + node.col_offset, start + len(lines[node.lineno - 1].rstrip()))
