"""`py "package.module:Class"`: looked up without importing anything.

The module's file is found and parsed; `python_class` tells what is checked of the class. Where a stage has `python`,
the module is looked for beside the `.gmi` file and in gmiflow alone: what else that interpreter has is not known here.
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

from gmiflow.passes.python_class import Module, Use, check_class, class_says, line_of
from gmiflow.passes.report import Report
from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.parser import MAX_BYTES

_MOST_ENTRIES = 500
"""Files of one folder that an editor looks at."""


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
    if found is not None and not check_class(entry, found, name, role, params, report, used):
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
            return line_of(found.source, node)
    return Span(found.source, 0, 0)


def classes_in(module: str, folder: Path) -> list[tuple[str, str]]:
    """Name and first line of documentation of a module's public classes, for an editor; none of an unknown one."""
    parts = module.split(".")
    path = _find(parts, folder) if all(part.isidentifier() for part in parts) else None
    found = _parse(path) if isinstance(path, Path) and path.suffix == ".py" else None
    if not isinstance(found, Module):
        return []
    nodes = (node for node in found.tree.body if isinstance(node, python.ClassDef) and not node.name.startswith("_"))
    return [(node.name, (python.get_docstring(node) or "").partition("\n")[0]) for node in nodes]


def modules_in(package: str, folder: Path) -> list[str]:
    """Public modules and packages of a package, for an editor; for "" those beside the `.gmi` file, and gmiflow."""
    parts = package.split(".") if package else []
    if not all(part.isidentifier() for part in parts):
        return []
    found = _find(parts, folder) if parts else None
    inside = found.parent if isinstance(found, Path) and found.stem == "__init__" else folder.joinpath(*parts)
    try:
        entries = sorted(inside.iterdir())[:_MOST_ENTRIES] if not isinstance(found, str) else []
    except OSError:
        entries = []
    names = [entry.stem for entry in entries if entry.suffix == ".py" or (entry.is_dir() and any(entry.glob("*.py")))]
    return [name for name in names if name.isidentifier() and name[0] != "_"] + ([] if parts else ["gmiflow"])


def says_joinable(text: str, folder: Path) -> bool | None:
    """Whether the class of an entry says `joinable = True`; None where its text does not tell.

    Args:
        text: "package.module:Class".
        folder: of the `.gmi` file.
    """
    module, _, name = text.partition(":")
    path = _find(module.split("."), folder)
    found = _parse(path) if isinstance(path, Path) and path.suffix == ".py" else None
    if not isinstance(found, Module):
        return None
    declared = (node for node in found.tree.body if isinstance(node, python.ClassDef) and node.name == name)
    node = next(declared, None)
    return None if node is None else class_says(found, node, "joinable")


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


def _parse(path: Path) -> Module | _Unreadable | None:
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_size > MAX_BYTES:
        return None
    shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    return _parse_version(path, shown, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _parse_version(path: Path, shown: str, _modified_ns: int, _size: int) -> Module | _Unreadable | None:
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
        return Module(source, python.parse(source.text))
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
