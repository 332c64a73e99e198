"""Loading of a file with everything it imports, and the names that each file declares.

In: a path. Out: a `Unit` per file. Not in here: what the declarations mean.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from gmiflow import resources
from gmiflow.diagnostics import Diagnostic
from gmiflow.passes.report import Report
from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.parser import MAX_DECLARATIONS, Parsed, accept_text, parse, read
from gmiflow.syntax.words import EDITIONS

MAX_IMPORT_DEPTH = 32

Named: TypeAlias = "ast.Param | ast.Record | ast.StageType | ast.StageInstance | ast.Workflow | ast.Target"


@dataclass(frozen=True, slots=True)
class Broken:
    """A name whose declaration could not be read; nothing more is said about it."""


@dataclass(slots=True, eq=False)
class Unit:
    """One file.

    Attributes:
        names: declared or imported name to its meaning.
        folder: where relative imports and Python modules of this file are looked for.
    """

    source: Source
    module: ast.Module
    folder: Path
    names: dict[str, Named | Unit | Broken] = field(default_factory=dict[str, "Named | Unit | Broken"])

    def declared(self, kind: type[Named]) -> list[Named]:
        """Declarations of one kind that a name stands for, in order."""
        return [item for item in self.module.items if isinstance(item, kind) and self.names.get(item.name.text) is item]


class Files:
    """Where files come from: the disk. An editor puts its buffers in front, and keeps what it has parsed."""

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path.is_file()

    def parsed(self, path: Path, name: str, text: str | None = None) -> Parsed | Diagnostic:
        """A file's syntax tree, or why it cannot be read.

        Args:
            path: where it is.
            name: what messages call it.
            text: content to use in place of the file's.
        """
        source = accept_text(text, name) if text is not None else read(path, name)
        return source if isinstance(source, Diagnostic) else parse(source)


class ParsedOnce(Files):
    """Files of the disk as they were when they were first asked for: for several checks in a row."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Path, str], Parsed | Diagnostic] = {}

    def parsed(self, path: Path, name: str, text: str | None = None) -> Parsed | Diagnostic:
        """As `Files` does; a tree is never changed, so that checks may share it."""
        if text is not None:
            return super().parsed(path, name, text)
        if (path, name) not in self._kept:
            self._kept[path, name] = super().parsed(path, name)
        return self._kept[path, name]


class Loader:
    """Loads files once each. Problems go to ``report``; a file that cannot be loaded is None.

    Attributes:
        sources: what was read, the files that import before those that they import.
        paths: name of a source to its file, of those too that cannot be read.
    """

    def __init__(self, report: Report, files: Files | None = None) -> None:
        self._report = report
        self._files = files or Files()
        self._units: dict[str, Unit | None] = {}
        self._loading: list[str] = []
        self._declarations = 0
        self.sources: list[Source] = []
        self.paths: dict[str, Path] = {}

    def load(self, path: Path, name: str, text: str | None = None, at: Span | None = None) -> Unit | None:
        """Load a file and its imports.

        Args:
            path: where it is.
            name: what messages call the file.
            text: content to use in place of the file's.
            at: the import that asks for it.
        """
        key = os.path.realpath(path)
        if key in self._loading:
            self._report_cycle(key, at)
            return None
        if key in self._units:
            return self._units[key]
        if len(self._loading) >= MAX_IMPORT_DEPTH:
            self._report.add("E0205", f"imports are nested deeper than {MAX_IMPORT_DEPTH} files", at)
            return None
        self.paths[name] = path
        parsed = self._files.parsed(path, name, text)
        if isinstance(parsed, Diagnostic):
            self._report.add(parsed.code if at is None else "E0203", parsed.message, at)
            self._units[key] = None
            return None
        self._loading.append(key)
        unit = self._unit(parsed, path.parent)
        self._loading.pop()
        self._units[key] = unit
        return unit

    def standard(self, module: str, at: Span | None = None) -> Unit | None:
        """Load a module of the standard library by its path without `std`, for example "targets"."""
        relative = "/".join(module.split(".")) + ".gmi"
        return self.load(resources.stdlib_path() / relative, f"std/{relative}", at=at)

    def _unit(self, parsed: Parsed, folder: Path) -> Unit:
        source = parsed.source
        self.sources.append(source)
        self._report.diagnostics += parsed.diagnostics
        unit = Unit(source, parsed.module, folder)
        unit.names.update(dict.fromkeys(parsed.module.broken, Broken()))
        self._declarations += len(parsed.module.items)
        if self._declarations > MAX_DECLARATIONS:
            self._report.add("E0108", f"more than {MAX_DECLARATIONS} declarations with all imports", Span(source, 0, 0))
            return unit
        self._check_edition(unit, bool(parsed.diagnostics))
        places: dict[str, Span] = {}
        for item in parsed.module.items:
            if isinstance(item, ast.Import):
                self._import(unit, item, places)
            elif not isinstance(item, ast.Edition | ast.Require):
                self._declare(unit, item.name, item, places)
        return unit

    def _declare(self, unit: Unit, name: ast.Name, meaning: Named | Unit | Broken, places: dict[str, Span]) -> None:
        if name.text in places:
            before = [(places[name.text], "first declared here")]
            self._report.add("E0202", f"`{name.text}` is declared twice", name.span, secondary=before)
            if type(unit.names[name.text]) is not type(meaning):  # which one is meant cannot be known
                unit.names[name.text] = Broken()
            return
        places[name.text] = name.span
        unit.names[name.text] = meaning

    def _check_edition(self, unit: Unit, syntax_errors: bool) -> None:
        editions = [item for item in unit.module.items if isinstance(item, ast.Edition)]
        start = Span(unit.source, 0, 0)
        if not editions:
            if not (syntax_errors and "edition" in unit.source.text):
                self._report.add("E0110", "the file must start with `edition 1`", start, replace="edition 1\n\n")
            return
        for edition in editions:
            if edition.number not in EDITIONS:
                message = f"edition {edition.number} is not known to this gmiflow"
                self._report.add("E0111", message, edition.span, notes=[f"it knows edition {max(EDITIONS)}"])
        if editions[0] is not unit.module.items[0]:
            self._report.add("E0110", "`edition` must be the first declaration", editions[0].span)
        for extra in editions[1:]:
            first = [(editions[0].span, "first stated here")]
            self._report.add("E0110", "the edition is stated twice", extra.span, secondary=first)

    def _import(self, unit: Unit, item: ast.Import, places: dict[str, Span]) -> None:
        name = item.alias or self._default_name(item)
        if name is None:
            note = 'add a name: `import "./file.gmi" as file`'
            self._report.add("E0203", "this import needs a name", item.target_span, notes=[note])
            return
        before = len(self._report)
        imported = self._module(item) if item.module is not None else self._file(unit, item)
        if imported is None and len(self._report) == before:  # loaded before, and reported then
            self._declare(unit, name, Broken(), places)
            return
        if imported is not None:
            self._note_repetition(unit, imported, item)
        elif item.alias is None:
            self._spoil_nearest(unit)
        self._declare(unit, name, imported or Broken(), places)

    def _spoil_nearest(self, unit: Unit) -> None:
        """After a misspelt import: the name that the right one would have had is not complained about."""
        edits = [edit for fix in self._report.diagnostics[-1].fixes for edit in fix.edits]
        for edit in edits:
            word = Path(edit.text).stem if "/" in edit.text else edit.text.removesuffix(".gmi").rpartition(".")[2]
            unit.names.setdefault(word, Broken())

    def _note_repetition(self, unit: Unit, imported: Unit, item: ast.Import) -> None:
        other = next((name for name, meaning in unit.names.items() if meaning is imported), None)
        if other is not None:
            message = f"this module is already imported as `{other}`"
            self._report.add("W0202", message, item.target_span, severity="warning")

    @staticmethod
    def _default_name(item: ast.Import) -> ast.Name | None:
        if item.module is not None:
            return item.module.names[-1]
        stem = Path(item.file or "").stem
        return ast.Name(text=stem, span=item.target_span) if stem.isidentifier() else None

    def _module(self, item: ast.Import) -> Unit | None:
        assert item.module is not None
        first, *rest = item.module.names
        span = item.module.span
        if first.text == "std" and not rest:
            notes = ["the standard library has: " + ", ".join(f"`{name}`" for name in resources.standard_modules())]
            self._report.add("E0203", "`std` is not a module; import one that is in it", span, notes=notes)
            return None
        if first.text != "std":
            notes = [
                "the modules of the standard library start with `std.`",
                'other files are imported by their path: `import "./file.gmi" as file`',
            ]
            self._report.add("E0203", f"there is no module `{item.module.text}`", span, notes=notes)
            return None
        path = ".".join(name.text for name in rest)
        if not (resources.stdlib_path() / ("/".join(path.split(".")) + ".gmi")).is_file():
            known = resources.standard_modules()
            message = f"there is no module `{item.module.text}`"
            self._report.unknown("E0203", message, span, item.module.text, known, what="the standard library has")
            return None
        return self.standard(path, span)

    def _file(self, unit: Unit, item: ast.Import) -> Unit | None:
        file = item.file or ""
        if "://" in file or os.path.isabs(file):
            self._report.add("E0203", "imports are paths relative to this file", item.target_span)
            return None
        path = unit.folder / file
        if not self._files.exists(path):
            folder = file[: file.rfind("/") + 1]
            near = [f"{folder}{sibling.name}" for sibling in _sibling_files(path)]
            quoted = item.target_span
            inside = Span(quoted.source, quoted.start + 1, quoted.end - 1)
            self._report.unknown("E0203", f"there is no file `{file}`", inside, file, near)
            return None
        return self.load(
            path, os.path.normpath(os.path.join(os.path.dirname(unit.source.name), file)), at=item.target_span
        )

    def _report_cycle(self, key: str, at: Span | None) -> None:
        chain = [*self._loading[self._loading.index(key) :], key]
        notes = ["a module may not import itself, directly or through others"]
        text = " -> ".join(os.path.basename(part) for part in chain)
        self._report.add("E0204", f"modules import each other: {text}", at, notes=notes)


def _sibling_files(path: Path) -> list[Path]:
    try:
        return sorted(path.parent.glob("*.gmi"))[:200]
    except OSError:
        return []
