"""The source files behind a stage's Python entry, found and read without importing anything.

What a stage does is in its module, in the modules of the same package (or folder) that this one imports, and in
the data files that they name. A change of any of them makes measurements stale.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 400
"""So many files are followed; a package that has more is told apart by those."""

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.MULTILINE
)
_DATA = re.compile(r"""["']([\w./-]+\.(?:xml|mjcf|urdf|usd|usda|obj|stl))["']""")
_OWN_ROOMS = ("gmiflow.tasks", "gmiflow.sim", "gmiflow.rl", "gmiflow.hashing")
"""Parts of gmiflow that decide what a stage does; the rest is told apart by its version."""

_NO_STAGES = {"torch", "numpy"}
"""Libraries whose files are told apart by their version."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What belongs to an entry.

    Attributes:
        digest: SHA-256 over names and contents of the files, "" when the module cannot be found.
        packages: top-level modules of other packages that they import, sorted.
    """

    digest: str
    packages: tuple[str, ...]


def sources_of(entries: Iterable[str], folder: Path) -> dict[str, Sources]:
    """Follow the imports of each entry "package.module:Class".

    Args:
        entries: as in the plan.
        folder: of the `.gmi` file; its Python modules are found before installed ones.
    """
    found: dict[str, Sources] = {}
    for module in {entry.partition(":")[0] for entry in entries}:
        found[module] = _follow(module, _Finder(folder))
    return {entry: found[entry.partition(":")[0]] for entry in entries}


def _follow(first: str, finder: _Finder) -> Sources:
    found: dict[str, Path] = {}
    outside: set[str] = set()
    seen: set[str] = set()
    waiting = [first]
    while waiting and len(found) < MAX_FILES:
        name = waiting.pop()
        path = finder.find(name)
        if path is None:
            continue
        found[name] = path
        for imported in _imports(name, path):
            if imported in seen:
                continue
            seen.add(imported)
            if _belongs(imported, first, finder):
                waiting.append(imported)
            else:
                outside.add(imported.partition(".")[0])
    return Sources(_digest(found), tuple(sorted(outside - sys.stdlib_module_names - {"gmiflow"})))


class _Finder:
    """Finds the files of modules, each top-level package by one search only."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.absolute())
        self._tops: dict[str, tuple[Path | None, tuple[str, ...], bool]] = {}

    def find(self, name: str) -> Path | None:
        """Python file of a module, None when there is none to read."""
        top, *inner = name.split(".")
        file, places, _ = self._top(top)
        if not inner:
            return file
        for place in places:
            base = Path(place, *inner)
            for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if path.is_file():
                    return path
        return None

    def is_local(self, top: str) -> bool:
        """Whether a top-level module lies in the folder."""
        return self._top(top)[2]

    def _top(self, name: str) -> tuple[Path | None, tuple[str, ...], bool]:
        """File, folders of submodules, and whether it lies in the folder."""
        if name not in self._tops:
            local = importlib.machinery.PathFinder.find_spec(name, [self._folder])
            try:
                spec = local or importlib.util.find_spec(name)
            except (ImportError, ValueError):
                spec = None
            file = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
            places = tuple((spec.submodule_search_locations or ()) if spec is not None else ())
            python = file if file is not None and file.suffix == ".py" else None
            self._tops[name] = (python, places, local is not None)
        return self._tops[name]


def find_module(name: str, folder: Path) -> Path | None:
    """Python file of a module, looked up in ``folder`` first; None when there is none to read."""
    return _Finder(folder).find(name)


def _belongs(name: str, first: str, finder: _Finder) -> bool:
    """Whether an imported module is the stage's own: of its package, or a file beside the `.gmi` file."""
    top = name.partition(".")[0]
    if top == "gmiflow":
        return any(f"{name}.".startswith(f"{room}.") for room in _OWN_ROOMS)
    if top in sys.stdlib_module_names or top in _NO_STAGES:
        return False
    return top == first.partition(".")[0] or finder.is_local(top)


def _imports(module: str, path: Path) -> list[str]:
    """Absolute names of the modules that a file imports, and of what may be modules; stage files name few."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for origin, names, plain in _IMPORT.findall(_text(path)):
        if plain:
            found += _words(plain)
            continue
        base = _absolute(origin, package)
        found += [base, *(f"{base}.{name}" for name in _words(names))]
    return found


def _words(names: str) -> list[str]:
    """The names of an import statement, without their aliases and comments."""
    bare = re.sub(r"#[^\n]*", "", names).strip("() \t\n;")
    return [words[0] for part in bare.split(",") if (words := part.split())]


def _absolute(origin: str, package: str) -> str:
    dots = len(origin) - len(origin.lstrip("."))
    if not dots:
        return origin
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - dots + 1], *filter(None, [origin.lstrip(".")])])


def _digest(files: dict[str, Path]) -> str:
    if not files:
        return ""
    total = hashlib.sha256()
    for name, path in sorted(files.items()):
        total.update(f"{name}\0{_file_digest(path)}\n".encode())
        for data in _data_files(path):
            total.update(f"{data.name}\0{_file_digest(data)}\n".encode())
    return total.hexdigest()


def _data_files(path: Path) -> Sequence[Path]:
    """Bodies that a module names in a string, beside it or in the folder `assets`."""
    named = sorted(set(_DATA.findall(_text(path))))
    places = (path.parent, path.parent / "assets")
    return [file for name in named for place in places if (file := place / name).is_file()]


def _text(path: Path) -> str:
    return _read(path)[0]


def _file_digest(path: Path) -> str:
    return _read(path)[1]


def _read(path: Path) -> tuple[str, str]:
    """Text and SHA-256 of a file; empty when it cannot be read."""
    try:
        status = path.stat()
        return _read_version(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return "", ""


@functools.lru_cache(maxsize=512)
def _read_version(path: Path, _modified_ns: int, _size: int) -> tuple[str, str]:
    data = path.read_bytes()
    return data.decode(errors="replace"), hashlib.sha256(data).hexdigest()
