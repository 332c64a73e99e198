"""Open documents, and files as the compiler gets them: buffers first, then the disk.

Each version is parsed once; of an open document only the declarations that changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec

from gmiflow.diagnostics import Diagnostic
from gmiflow.lsp.positions import BOM, Lines
from gmiflow.passes.imports import Files
from gmiflow.syntax.incremental import parse_again
from gmiflow.syntax.parser import Parsed, accept_text, parse, read

MAX_KEPT = 512
"""Parsed files that are kept; the oldest go first."""
MAX_WORKSPACE_FILES = 2_000
MAX_WORKSPACE_FOLDERS = 20_000
LISTING_SECONDS = 5.0
"""For so long the list of the workspace's files is kept, when the client does not say that one changed."""
SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__", "build", "dist", "site-packages"))
"""Folders of the workspace that hold nothing of the user's; hidden ones are skipped, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One version of an open document."""

    uri: str
    path: Path
    version: int
    lines: Lines

    @property
    def text(self) -> str:
        """Its content."""
        return self.lines.text


def path_of(uri: str, root: Path | None = None) -> Path:
    """The file of a URI. A document that is no file (`untitled:`) stands in ``root``, where its imports are found."""
    try:
        path = to_fs_path(uri) if uri.startswith("file:") else None
    except ValueError:  # no URI at all
        path = None
    if path is not None and "\0" not in path:
        return Path(path)
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in uri.rpartition(":")[2]) or "untitled"
    return (root or Path.cwd()) / f"{name.removesuffix('.gmi')}.gmi"


def uri_of(path: Path) -> str:
    """The URI of a file."""
    return from_fs_path(str(path.absolute())) or path.absolute().as_uri()


class Documents(Files):
    """The open documents, and the files behind everything else. May be read from several threads.

    Attributes:
        folders: of the workspace.
        generation: grows when a document or, as far as the client says so, a file changes.
        disk_generation: grows when, as far as the client says so, files changed that are not open.
    """

    def __init__(self) -> None:
        self.codec = PositionCodec()
        self.folders: list[Path] = []
        self.generation = 0
        self.disk_generation = 0
        self._listing: tuple[float, list[Path]] | None = None
        self._open: dict[str, Document] = {}
        self._by_path: dict[str, Document] = {}
        self._parsed: dict[tuple[str, str], tuple[object, Parsed | Diagnostic]] = {}
        self._lock = Lock()

    @property
    def root(self) -> Path | None:
        """The first folder of the workspace."""
        return self.folders[0] if self.folders else None

    @property
    def all(self) -> list[Document]:
        """The open documents."""
        return list(self._open.values())

    def get(self, uri: str) -> Document | None:
        """An open document."""
        return self._open.get(uri)

    def at(self, path: Path) -> Document | None:
        """The open document of a file."""
        try:
            return self._by_path.get(os.path.realpath(path))
        except ValueError:  # no name that a file can have: half a character, for example
            return None

    def open(self, uri: str, version: int, text: str) -> Document:
        """Open a document, or replace its content."""
        document = Document(uri=uri, path=path_of(uri, self.root), version=version, lines=Lines(text, self.codec))
        self.generation += 1
        if uri not in self._open:
            self._listing = None
        self._open[uri] = document
        self._by_path[os.path.realpath(document.path)] = document
        return document

    def change(
        self, uri: str, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]
    ) -> Document | None:
        """Apply changes, each to the result of the one before; None when the document is not open."""
        document = self._open.get(uri)
        if document is None:
            return None
        lines = document.lines
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                start, end = lines.raw_offset(change.range.start), lines.raw_offset(change.range.end)
                text = lines.text[: min(start, end)] + change.text + lines.text[max(start, end) :]
            else:
                text = change.text
            lines = Lines(text, self.codec)
        return self.open(uri, version, lines.text)

    def close(self, uri: str) -> None:
        """Forget a document; its file is read from the disk again."""
        document = self._open.pop(uri, None)
        self.generation += 1
        if document is not None and self._by_path.get(real := os.path.realpath(document.path)) is document:
            del self._by_path[real]  # unless the same file is open under another URI

    def lines(self, path: Path) -> Lines | None:
        """The lines of any file, None when it cannot be read; a byte-order mark on the disk is not for editors."""
        document = self.at(path)
        if document is not None:
            return document.lines
        try:
            with path.open(encoding="utf-8", errors="replace", newline="") as file:
                return Lines(file.read().removeprefix(BOM), self.codec)
        except OSError:
            return None

    def stamp(self, real: str) -> object:
        """What changes when a file, by its real path, does: its buffer, or its state on the disk; None without one."""
        document = self._by_path.get(real)
        return document.lines if document is not None else _stamp(Path(real))

    def forget_listing(self) -> None:
        """Files came, went or changed on the disk."""
        self.generation += 1
        self.disk_generation += 1
        self._listing = None

    def workspace_files(self) -> list[Path]:
        """The `.gmi` files below the folders of the workspace; without one, those beside the open documents."""
        now = time.monotonic()
        if self._listing is None or now - self._listing[0] > LISTING_SECONDS:
            self._listing = (now, self._list())
        return self._listing[1]

    def _list(self) -> list[Path]:
        return self._below_folders() if self.folders else self._beside_documents()

    def _beside_documents(self) -> list[Path]:
        beside = dict.fromkeys(document.path.parent for document in self.all if document.uri.startswith("file:"))
        found: list[Path] = []
        for folder in beside:
            try:
                found += sorted(folder.glob("*.gmi"))
            except OSError:
                continue
        return found[:MAX_WORKSPACE_FILES]

    def _below_folders(self) -> list[Path]:
        found: list[Path] = []
        visited = 0
        for folder in self.folders:
            for here, folders, names in os.walk(folder):
                visited += 1
                if visited > MAX_WORKSPACE_FOLDERS or len(found) >= MAX_WORKSPACE_FILES:
                    return found
                folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
                found += [Path(here, name) for name in sorted(names) if name.endswith(".gmi")]
        return found

    def exists(self, path: Path) -> bool:
        """Whether there is such a file, be it only in a buffer that was never saved."""
        return self.at(path) is not None or path.is_file()

    def parsed(self, path: Path, name: str, text: str | None = None) -> Parsed | Diagnostic:
        """A file's syntax tree: of its buffer when it is open, else of the disk's content."""
        if text is not None:
            return super().parsed(path, name, text)
        real = os.path.realpath(path)
        document = self._by_path.get(real)
        version = document.lines if document is not None else _stamp(path)
        with self._lock:
            kept = self._parsed.get((real, name))
        if kept is not None and kept[0] == version and version is not None:
            return kept[1]
        result = _read_and_parse(path, name) if document is None else _parse_again(document.text, name, kept)
        with self._lock:
            self._parsed.pop((real, name), None)
            self._parsed[(real, name)] = (version, result)
            while len(self._parsed) > MAX_KEPT:
                self._parsed.pop(next(iter(self._parsed)))
        return result


def _read_and_parse(path: Path, name: str) -> Parsed | Diagnostic:
    source = read(path, name)
    return source if isinstance(source, Diagnostic) else parse(source)


def _parse_again(text: str, name: str, kept: tuple[object, Parsed | Diagnostic] | None) -> Parsed | Diagnostic:
    """Parse the text of an open document, of which an earlier version was ``kept``."""
    source = accept_text(text, name)
    if isinstance(source, Diagnostic):
        return source
    before = kept[1] if kept is not None else None
    return parse_again(source, before if isinstance(before, Parsed) else None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file on the disk does."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)
