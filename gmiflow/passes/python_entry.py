"""`py "package.module:Class"`: looked up without importing anything.

The module's file is found and parsed. What is checked is what can be known that way:

- the module is Python that this interpreter can read;
- the module and the class exist (a name that the module imports or assigns counts as a class);
- the runtime constructs a stage without arguments, so `__init__` may not require any, and a GMI with its runtime;
- a class that inherits directly from `gmiflow.api.Simulator`, `Agent` or `Trainer` has that role, and one that
  inherits from nothing has none;
- a simulator's class that inherits from nothing and has the methods `setup`, `reset` and `step` is one for an
  interpreter of its own: every stage of it needs `python`. Where a stage has `python`, the module is looked for beside
  the `.gmi` file and in gmiflow alone: what else the other interpreter has is not known here;
- a class with a literal class attribute ``PARAMS`` (a tuple, list, set or dict of strings) accepts exactly
  those parameters. Without it a class reads what it likes from ``context.params``, and nothing is checked.
"""

from __future__ import annotations

import ast as python
import importlib.machinery
import importlib.util
import io
import os
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from gmiflow.diagnostics import closest
from gmiflow.passes.params import a_role
from gmiflow.passes.report import Report
from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.parser import MAX_BYTES

Use: TypeAlias = Literal["declared", "here", "hosted"]
"""How a stage type is used: by no stage as far as is known, in this interpreter, in one of its own (`python`)."""

_HOSTED_METHODS = ("setup", "reset", "step")
_BASES = {"Simulator": "simulator", "Agent": "agent", "Trainer": "trainer"}


@dataclass(frozen=True, slots=True)
class _Module:
    source: Source
    tree: python.Module


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A file that Python would refuse, where and why."""

    span: Span
    reason: str


def check_entry(
    entry: ast.PythonEntry,
    role: str | None,
    params: dict[str, Span],
    folder: Path,
    report: Report,
    used: Use = "here",
) -> str | None:
    """Check an entry; returns its text, or None when it is wrong (reported).

    Args:
        entry: as written.
        role: role of the stage, None for the class of `gmi`, which is constructed with the runtime.
        params: names of the stage's parameters and where they are declared.
        folder: of the `.gmi` file; its Python modules are found before installed ones.
        report: where problems go.
        used: whether the class runs in this interpreter.
    """
    module, colon, name = entry.text.partition(":")
    parts = module.split(".")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in parts):
        notes = ['written `py "package.module:Class"`']
        report.add("E0212", f'`"{entry.text}"` names no Python class', entry.span, notes=notes)
        return None
    path = _find(parts, folder) if used != "hosted" or parts[0] == "gmiflow" else _find_beside(parts, folder)
    if isinstance(path, str):
        notes = [f"looked in the folder of this file ({folder}) and in the installed packages"]
        report.add("E0212", f"there is no Python module `{module}`: {path}", entry.span, notes=notes)
        return None
    found = _parse(path) if path is not None and path.suffix == ".py" else None
    if isinstance(found, _Unreadable):
        wanted = [(entry.span, f"`{module}` is used here")]
        report.add("E0214", f"Python cannot read `{module}`: {found.reason}", found.span, secondary=wanted)
        return None
    if found is not None and not _check_class(entry, found, name, role, params, report, used):
        return None
    return entry.text


def locate_entry(text: str, folder: Path) -> Span | None:
    """Where the class of an entry is declared, for an editor.

    Args:
        text: "package.module:Class".
        folder: of the `.gmi` file.

    Returns:
        The line of the class in its file (``span.source.name`` is the path), the start of the module when the
        class is not a plain one, or None when there is no such module or none to read.
    """
    module, _, name = text.partition(":")
    parts = module.split(".")
    path = _find(parts, folder) if all(part.isidentifier() for part in parts) else None
    found = _parse(path) if isinstance(path, Path) and path.suffix == ".py" else None
    if found is None:
        return None
    if isinstance(found, _Unreadable):
        return found.span
    for node in found.tree.body:
        if isinstance(node, python.ClassDef) and node.name == name:
            return _span(found.source, node)
    return Span(found.source, 0, 0)


def _find(parts: list[str], folder: Path) -> Path | str | None:
    """File of a module, None when it has none to read, or the reason why there is no such module."""
    top = parts[0]
    here = str(folder.absolute())  # Python keeps what it found in a relative path, whatever the folder is later
    local = importlib.machinery.PathFinder.find_spec(top, [here])
    try:
        spec = local or importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return f"no package `{top}` is installed"
    for depth, part in enumerate(parts[1:], 1):
        if spec.submodule_search_locations is None:
            return f"`{'.'.join(parts[:depth])}` is a module, not a package"
        name = ".".join(parts[: depth + 1])
        inner = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
        if inner is None:
            return f"`{'.'.join(parts[:depth])}` has no `{part}`"
        spec = inner
    return Path(spec.origin) if spec.has_location and spec.origin else None


def _find_beside(parts: list[str], folder: Path) -> Path | None:
    """File of a module beside the `.gmi` file; None when there is none."""
    if importlib.machinery.PathFinder.find_spec(parts[0], [str(folder.absolute())]) is None:
        return None
    found = _find(parts, folder)
    return found if isinstance(found, Path) else None


def _parse(path: Path) -> _Module | _Unreadable | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_size > MAX_BYTES:
        return None
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    return _parse_version(path, shown, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _parse_version(path: Path, shown: str, _modified_ns: int, _size: int) -> _Module | _Unreadable | None:
    """Parse one version of a Python file, which messages call ``shown``; None when nothing is known about it."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        return _Unreadable(Span(Source(shown, ""), 0, 0), f"{problem.strerror or problem}")
    try:
        text = data.decode(tokenize.detect_encoding(io.BytesIO(data).readline)[0])
    except (SyntaxError, UnicodeDecodeError) as problem:  # the first: an encoding that there is not
        start = problem.start if isinstance(problem, UnicodeDecodeError) else 0
        before = len(data[:start].decode(errors="replace"))
        reason = "it is not UTF-8 text" if isinstance(problem, UnicodeDecodeError) else f"{problem.msg}"
        return _Unreadable(_rest_of_line(Source(shown, data.decode(errors="replace")), before), reason)
    source = Source(shown, text.replace("\r\n", "\n").replace("\r", "\n"))
    if "\0" in source.text:
        return _Unreadable(_rest_of_line(source, source.text.index("\0")), "it holds a NUL byte")
    try:
        return _Module(source, python.parse(source.text))
    except SyntaxError as problem:
        lines = source.text.split("\n")
        above = min(max(problem.lineno or 1, 1), len(lines)) - 1
        column = min(max((problem.offset or 1) - 1, 0), len(lines[above]))
        start = sum(len(line) + 1 for line in lines[:above]) + column
        return _Unreadable(_rest_of_line(source, start), problem.msg)
    except (ValueError, RecursionError, MemoryError):  # the last two: nested too deeply for this process
        return None


def _rest_of_line(source: Source, start: int) -> Span:
    """From ``start`` to the end of its line, at least one character where there is one."""
    end = source.text.find("\n", start)
    end = len(source.text) if end < 0 else end
    return Span(source, start, max(end, min(start + 1, len(source.text))))


def _check_class(
    entry: ast.PythonEntry,
    module: _Module,
    name: str,
    role: str | None,
    params: dict[str, Span],
    report: Report,
    used: Use,
) -> bool:
    classes = {node.name: node for node in module.tree.body if isinstance(node, python.ClassDef)}
    if name not in classes:
        function = next((n for n in module.tree.body if isinstance(n, python.FunctionDef) and n.name == name), None)
        if function is not None:
            place = [(_span(module.source, function), "declared here")]
            report.add("E0214", f"`{name}` is a function, not a class", entry.span, secondary=place)
            return False
        if name in _bound_names(module.tree):
            return True
        close = closest(name, classes)
        notes = [f"did you mean `{close}`?"] if close else []
        start = [(Span(module.source, 0, 0), "the module")]
        report.add(
            "E0213", f"`{entry.text.partition(':')[0]}` has no class `{name}`", entry.span, secondary=start, notes=notes
        )
        return False
    found = classes[name]
    place = (_span(module.source, found), f"`{name}` is declared here")
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
    entry: ast.PythonEntry, module: _Module, found: python.ClassDef, role: str | None, report: Report
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
    place = (_span(module.source, node), "the constructor")
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


def _span(source: Source, node: python.ClassDef | python.FunctionDef) -> Span:
    """The line that declares a class or function."""
    lines = source.text.splitlines(keepends=True)
    start = sum(len(line) for line in lines[: node.lineno - 1])
    return Span(source, start + node.col_offset, start + len(lines[node.lineno - 1].rstrip()))
