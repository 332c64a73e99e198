"""The language server: the protocol's requests, each answered by one function of this package.

Requests are answered for the newest text at once. Diagnostics wait until typing pauses, are worked out in a thread,
and are dropped when the text has changed meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from gmiflow import __version__
from gmiflow.hardware import detect
from gmiflow.lsp import hints, problems
from gmiflow.lsp.analysis import Analyses
from gmiflow.lsp.documents import Document, Documents, uri_of
from gmiflow.lsp.requests import SHOW_GRAPH, SHOW_PLAN, register
from gmiflow.lsp.transport import EndingOutput, Protocol, end_on_signals, in_thread, log_briefly

DEBOUNCE_SECONDS = 0.2
"""Pause in typing after which diagnostics are worked out."""

MAX_FILE_NAME = 60
"""Characters of a workflow's name that become part of the name of a file."""

COLLECTIONS = (200_000, 10, 10)
"""When Python looks for cyclic garbage: new objects, and how many runs of one generation make one of the next."""

log = logging.getLogger(__name__)


class Server(LanguageServer):
    """The server of one editor."""

    def __init__(self) -> None:
        super().__init__("gmiflow", __version__, max_workers=2, protocol_cls=Protocol)
        self.files = Documents()
        self.analyses = Analyses(files=self.files, hardware=detect())
        self.lenses: dict[str, str] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._folder: Path | None = None
        for method, handler in (
            (types.TEXT_DOCUMENT_DID_OPEN, self.opened),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.changed),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.closed),
        ):  # in place of pygls' own, which keep the text in a workspace with other ideas of a line
            self.protocol.fm.add_builtin_feature(method, handler)
        register(self)

    def prepare(self, params: types.InitializeParams) -> None:
        """Take over what the client says about itself and its workspace."""
        self.files.codec = self.workspace.position_codec
        folders = [folder.uri for folder in params.workspace_folders or []]
        folders += [params.root_uri] if params.root_uri and not folders else []
        paths = (to_fs_path(uri) for uri in folders if uri.startswith("file:"))
        self.files.folders = [Path(path) for path in paths if path]
        self.lenses = lens_commands(params.initialization_options)

    def watch(self) -> None:
        """Ask the client to say when a `.gmi` file, or a Python file that one may name, changes on the disk."""
        workspace = self.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(glob_pattern=pattern) for pattern in ("**/*.gmi", "**/*.py")]
        registration = types.Registration(
            id="files",
            method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
            register_options=types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers),
        )
        self.client_register_capability(types.RegistrationParams(registrations=[registration]))

    # Documents

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        """Read a document for the first time."""
        item = params.text_document
        self._check_users(self.files.open(item.uri, item.version, item.text))
        self._check_soon(item.uri, 0.0)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """Take over changes, in order."""
        name = params.text_document
        document = self.files.change(name.uri, name.version, params.content_changes)
        if document is not None:
            self._check_users(document)

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a document and its diagnostics."""
        uri = params.text_document.uri
        self.files.close(uri)
        self.analyses.forget(uri)
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        self.check_all_soon()

    def files_changed(self) -> None:
        """Something changed on the disk."""
        importlib.invalidate_caches()  # Python remembers which modules a folder has
        self.files.forget_listing()
        self.check_all_soon()

    def check_all_soon(self) -> None:
        """Check every open document again."""
        for document in self.files.all:
            self._check_soon(document.uri, DEBOUNCE_SECONDS)

    def _check_users(self, document: Document) -> None:
        """Check a document that changed, and the open ones that may import it."""
        self._check_soon(document.uri, DEBOUNCE_SECONDS)
        for uri in self.analyses.users_of(document.path):
            self._check_soon(uri, DEBOUNCE_SECONDS)

    def _check_soon(self, uri: str, delay_s: float) -> None:
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()
        self._waiting[uri] = asyncio.get_running_loop().call_later(delay_s, self._start_check, uri)

    def _start_check(self, uri: str) -> None:
        self._waiting.pop(uri, None)
        task = asyncio.get_running_loop().create_task(self._publish(uri))
        self._running.add(task)
        task.add_done_callback(self._checked)

    def _checked(self, task: asyncio.Task[None]) -> None:
        """Say so when a check broke down: a mistake in gmiflow, never in the file."""
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("checking a document failed", exc_info=error)

    async def _publish(self, uri: str) -> None:
        """Work out diagnostics in a thread; publish them if nothing changed meanwhile, otherwise check again."""
        async with self._turn:  # more threads would not be faster, and the newest text comes last
            analysis = self.analyses.of(uri)
            if analysis is None:
                return
            found = await in_thread(partial(problems.diagnostics, analysis))
        if self.analyses.of(uri) is not analysis:
            if uri not in self._waiting and self.files.get(uri) is not None:
                self._check_soon(uri, DEBOUNCE_SECONDS)
            return
        version = analysis.document.version
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=found)
        )
        self._refresh()

    def _refresh(self) -> None:
        """Let the client ask for hints again, which may depend on other files."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    # Views

    def show(self, name: str, text: str) -> None:
        """Write a text to a file of this server's own and ask the client to show it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gmiflow-lsp-"))
        stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in Path(name).stem)[:MAX_FILE_NAME]
        file = self._folder / f"{stem}{Path(name).suffix}"
        file.write_text(text, encoding="utf-8")
        external = file.suffix == ".svg"
        self.window_show_document(types.ShowDocumentParams(uri=uri_of(file), external=external))

    def clean(self) -> None:
        """Remove the files of `show`."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def lens_commands(options: Any) -> dict[str, str]:  # noqa: ANN401 - whatever the client sends
    """The command of each lens: the client's own, or else those of this server, which only show files."""
    given = options.get("lenses") if isinstance(options, dict) else None  # type: ignore[reportUnknownMemberType]
    if isinstance(given, dict):
        return {lens: str(given[lens]) for lens in hints.LENSES if lens in given}
    return {"explain": SHOW_PLAN, "graph": SHOW_GRAPH}


def collect_rarely() -> None:
    """Keep the cyclic garbage collector out of the answers.

    What is loaded by now lives to the end: looking through it took as long as an answer. Analyses have no cycles, so
    that little else is left to collect.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def serve() -> None:
    """Speak the protocol over stdin and stdout until the client says goodbye or goes away."""
    log_briefly()
    server = Server()
    collect_rarely()
    end_on_signals(server.clean)
    stdout = os.fdopen(os.dup(sys.stdout.fileno()), "wb")  # nothing else may write into the protocol
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        server.start_io(stdout=cast("BinaryIO", EndingOutput(stdout, server.clean)))
    finally:
        server.clean()
