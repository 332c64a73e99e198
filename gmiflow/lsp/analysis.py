"""What the compiler says about an open document, kept until it or something it imports changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from gmiflow.diagnostics import Diagnostic, in_order
from gmiflow.hardware import Hardware
from gmiflow.lsp.documents import Document, Documents
from gmiflow.lsp.indexing import index_unit
from gmiflow.lsp.symbols import Index
from gmiflow.passes.check import CheckResult, Loaded, check_loaded, load, without_collections
from gmiflow.passes.imports import Loader, Unit
from gmiflow.passes.lint import lint_results
from gmiflow.passes.report import Report
from gmiflow.pipeline import Compilation, Options, compile_checked
from gmiflow.syntax import ast, comments, lexer
from gmiflow.syntax.formatter import FormatterError, format_parsed
from gmiflow.syntax.parser import Parsed


@dataclass(frozen=True, kw_only=True)
class Deep:
    """What the linter and the lowering passes say.

    Attributes:
        diagnostics: of all workflows and targets, sorted by place.
        compilations: workflow and target, as far as they could be lowered, in order of declaration.
    """

    diagnostics: tuple[Diagnostic, ...]
    compilations: tuple[Compilation, ...]


class Read:
    """The files that something was read from, as they were then."""

    def __init__(self, files: Documents) -> None:
        self._files = files
        self._generation = files.generation
        self._disk_generation = files.disk_generation
        self._stamps: dict[str, object] = {}
        self._is_whole = False

    def note(self, loader: Loader, report: Report) -> None:
        """Take down what was read; it may be too old where an import was not found or something changed meanwhile."""
        for path in loader.paths.values():
            if (real := os.path.realpath(path)) not in self._stamps:
                self._stamps[real] = self._files.stamp(real)
        missing = any(found.code == "E0203" for found in report.diagnostics)
        self._is_whole = not missing and self._files.generation == self._generation

    def is_current(self) -> bool:
        """Whether reading again would give the same."""
        if self._files.disk_generation != self._disk_generation:
            return False
        if not self._is_whole and self._files.generation != self._generation:
            return False
        return all(self._files.stamp(real) == stamp for real, stamp in self._stamps.items())

    def may_use(self, path: Path) -> bool:
        """Whether a file may be one of these."""
        return not self._is_whole or os.path.realpath(path) in self._stamps


class Analysis:
    """One version of a document. The parts are worked out when they are first asked for."""

    def __init__(self, document: Document, files: Documents, hardware: Hardware) -> None:
        self.document = document
        self.files = files
        self.hardware = hardware
        self._lock = RLock()
        self._read: Read | None = None
        self._deep: Deep | None = None

    @property
    def name(self) -> str:
        """What messages call the file."""
        return str(self.document.path)

    @cached_property
    def items(self) -> tuple[ast.Declaration, ...]:
        """The file's declarations, as far as they could be read. Needs no more than parsing."""
        parsed = self.files.parsed(self.document.path, self.name)
        return parsed.module.items if isinstance(parsed, Parsed) else ()

    @cached_property
    def loaded(self) -> Loaded:
        """The file with everything it imports. Needs no checking."""
        read = Read(self.files)
        loaded = load(self.name, files=self.files)
        read.note(loaded.loader, loaded.report)
        self._read = read
        return loaded

    @property
    def unit(self) -> Unit | None:
        """The file's names, None when it cannot be read."""
        return self.loaded.unit

    @cached_property
    def checks(self) -> tuple[CheckResult, ...]:
        """The check of the file, with every workflow on every target."""
        results = check_loaded(self.loaded, hardware=self.hardware)
        if self._read is not None:  # the checker reads the standard library's targets
            self._read.note(self.loaded.loader, self.loaded.report)
        return results

    @property
    def checked(self) -> CheckResult:
        """The check of the file."""
        return self.checks[0]

    @cached_property
    def index(self) -> Index | None:
        """What the names of the file stand for, None when it cannot be read."""
        return index_unit(self.unit, self.document.path, self.paths) if self.unit is not None else None

    @cached_property
    def formatted(self) -> str | None:
        """The formatted text, None while the file has syntax errors."""
        parsed = self.files.parsed(self.document.path, self.name)
        if not isinstance(parsed, Parsed):
            return None
        try:
            return format_parsed(parsed, twice=False).text
        except FormatterError:  # it found that it would change more than the layout
            return None

    @cached_property
    def tokens(self) -> list[lexer.Token]:
        """The file's tokens, empty when there are too many of them."""
        try:
            return lexer.raw_tokens(self.text)
        except lexer.TooLong:
            return []

    @cached_property
    def comments(self) -> list[tuple[int, int]]:
        """Start and end of every `//` comment that documents nothing."""
        return list(comments.places(self.text, self.tokens)) if self.tokens else []

    @cached_property
    def text(self) -> str:
        """The document as the compiler sees it."""
        return self.document.text.removeprefix("\ufeff")

    @property
    def deep(self) -> Deep:
        """What the linter and the lowering passes say."""
        with self._lock:
            if self._deep is None:
                self._deep = self._lint_and_lower()
            return self._deep

    def _lint_and_lower(self) -> Deep:
        with without_collections():  # once for all, for each compilation pauses them, too
            return self._all_compilations()

    def _all_compilations(self) -> Deep:
        found = list(lint_results(self.checks))
        compilations: list[Compilation] = []
        for result in self.checks:
            if result.workflow is not None:
                compiled = compile_checked(
                    result, hardware=self.hardware, stop_after="comm", options=Options(use_profiles=False)
                )
                compilations.append(compiled)
                found += compiled.diagnostics[len(result.diagnostics) :]
        return Deep(diagnostics=in_order(found), compilations=tuple(compilations))

    @property
    def paths(self) -> Mapping[str, Path]:
        """Name of every source that was read to its file."""
        return self.loaded.loader.paths

    def is_current(self) -> bool:
        """Whether nothing that the file imports has changed since it was read, or it was not read yet."""
        return self._read is None or self._read.is_current()

    def may_use(self, path: Path) -> bool:
        """Whether it may depend on a file: one that it read, or any before it has read all that it imports."""
        return self._read is None or self._read.may_use(path)


@dataclass(kw_only=True)
class Analyses:
    """The analyses of the open documents, and indexes of the other files of the workspace."""

    files: Documents
    hardware: Hardware
    _kept: dict[str, Analysis] = field(default_factory=dict[str, Analysis])
    _indexes: dict[Path, tuple[Read, Index]] = field(default_factory=dict[Path, tuple["Read", Index]])
    _lock: Any = field(default_factory=RLock)

    def of(self, uri: str) -> Analysis | None:
        """The analysis of the newest version of an open document."""
        document = self.files.get(uri)
        if document is None:
            return None
        with self._lock:
            analysis = self._kept.get(uri)
            if analysis is None or analysis.document is not document or not analysis.is_current():
                analysis = self._kept[uri] = Analysis(document, self.files, self.hardware)
            return analysis

    def users_of(self, path: Path) -> list[str]:
        """The open documents that may depend on a file."""
        with self._lock:
            return [d.uri for d in self.files.all if d.uri not in self._kept or self._kept[d.uri].may_use(path)]

    def forget(self, uri: str) -> None:
        """Drop the analysis of a document that was closed."""
        with self._lock:
            self._kept.pop(uri, None)

    def indexes(self) -> Iterator[Index]:
        """The indexes of every file of the workspace, of open documents first."""
        seen: set[str] = set()
        for document in self.files.all:
            analysis = self.of(document.uri)
            if analysis is not None and analysis.index is not None:
                seen.add(analysis.index.file)
                yield analysis.index
        for path in self.files.workspace_files():
            index = self._index(path)
            if index is not None and index.file not in seen:
                seen.add(index.file)
                yield index

    def _index(self, path: Path) -> Index | None:
        """The index of a file that is not open."""
        kept = self._indexes.get(path)
        if kept is not None and kept[0].is_current():
            return kept[1]
        self._indexes.pop(path, None)
        read, report = Read(self.files), Report()
        loader = Loader(report, self.files)
        unit = loader.load(path, str(path))
        if unit is None:
            return None
        read.note(loader, report)
        index = index_unit(unit, path, loader.paths)
        self._indexes[path] = (read, index)
        return index
