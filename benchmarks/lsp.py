"""How long the language server takes to answer: every request, on a file of 500 lines, through a real process.

    python benchmarks/lsp.py           # JSON lines: one per request
    python benchmarks/lsp.py --full    # also every request in every place of every file of the project, in this process

Each request is measured twice: right after a change of the text ("cold": the file is parsed and checked first) and
again without one ("warm"). Wall time is that between sending and having the answer, as an editor sees it; CPU time is
the server's meanwhile (Linux), which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests" / "lsp")]
LINES = 500
STAGE_TYPE = """
/// Task number {i}.
simulator Task{i}(kind : enum(easy, hard) = easy, noise : float = 0.1 where noise >= 0) {{
  entry = py "gmiflow.tasks.cartpole:CartPole"

  in  action     : f32[env, {actions}] range -1 .. 1
  /// What it sees.
  out obs        : f32[env, {width}]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}}

/// Environments of training {i}.
param num_env_{i} : auto int = {env} where num_env_{i} >= 64

simulator sim_{i}     = Task{i}(kind = hard, noise = 0.5)
agent     actor_{i}   = ppo.Actor(hidden = [64, 64])
trainer   learner_{i} = ppo.Learner(lr = lr)

/// Training {i}.
workflow train_{i} {{
  mode    = sync
  num_env = num_env_{i}
  horizon = 16

  sim_{i}.obs                             -> actor_{i}.obs
  actor_{i}.action                        -> sim_{i}.action
  actor_{i}.experience                    -> learner_{i}.experience
  actor_{i}.bootstrap                     -> learner_{i}.bootstrap
  sim_{i}.{{reward, terminated, truncated}} -> learner_{i}
  learner_{i}.weights                     -> actor_{i}.weights
}}
"""
HEAD = """edition 1

import std.algo.ppo
import std.targets

/// Learning rate of all trainings.
param lr : float = 3e-4

target lab {
  base        = targets.cpu
  gmi_per_gpu = 2
}
"""


def long_file(lines: int = LINES) -> str:
    """A file of at least so many lines: many small trainings, each a workflow."""
    text = HEAD
    index = 0
    while text.count("\n") < lines:
        text += STAGE_TYPE.format(i=index, actions=1 + index % 3, width=4 + index, env=256)
        index += 1
    return text


Times = tuple[float, float]
"""Wall time and CPU time in seconds."""


def cpu_seconds(pid: int) -> float:
    """Time that a process spent on a CPU, all its threads together; NaN where the system does not say."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9 if tasks else math.nan
    except OSError:
        return math.nan


class Session:
    """A server process with one open document."""

    def __init__(self, client: LanguageClient, pid: int, uri: str, text: str) -> None:
        self.client, self.pid, self.uri, self.text = client, pid, uri, text
        self.version = 1
        self.name = types.TextDocumentIdentifier(uri)
        self.whole = types.Range(types.Position(0, 0), types.Position(text.count("\n"), 0))

    async def time(self, request: Callable[[], Awaitable[object]]) -> Times:
        """How long one request takes."""
        started, cpu = time.perf_counter(), cpu_seconds(self.pid)
        await request()
        return time.perf_counter() - started, cpu_seconds(self.pid) - cpu

    def touch(self) -> None:
        """Change the text: a letter more, or less, in a comment."""
        self.version += 1
        place = types.Position(5, 12)
        if self.version % 2:
            change = types.TextDocumentContentChangePartial(types.Range(place, types.Position(5, 13)), "")
        else:
            change = types.TextDocumentContentChangePartial(types.Range(place, place), "x")
        name = types.VersionedTextDocumentIdentifier(version=self.version, uri=self.uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(name, [change]))

    def requests(self, position: types.Position) -> dict[str, Callable[[], Awaitable[object]]]:
        """Every request."""
        c, name, whole = self.client, self.name, self.whole
        at = {"text_document": name, "position": position}
        options = types.FormattingOptions(tab_size=2, insert_spaces=True)
        context = types.CodeActionContext(diagnostics=[])
        reference = types.ReferenceContext(include_declaration=True)
        return {
            "hover": lambda: c.text_document_hover_async(types.HoverParams(**at)),
            "definition": lambda: c.text_document_definition_async(types.DefinitionParams(**at)),
            "references": lambda: c.text_document_references_async(types.ReferenceParams(reference, **at)),
            "documentHighlight": lambda: c.text_document_document_highlight_async(types.DocumentHighlightParams(**at)),
            "completion": lambda: c.text_document_completion_async(types.CompletionParams(**at)),
            "signatureHelp": lambda: c.text_document_signature_help_async(types.SignatureHelpParams(**at)),
            "prepareRename": lambda: c.text_document_prepare_rename_async(types.PrepareRenameParams(**at)),
            "rename": lambda: c.text_document_rename_async(types.RenameParams(new_name="Fresh_1", **at)),
            "codeAction": lambda: c.text_document_code_action_async(types.CodeActionParams(name, whole, context)),
            "documentSymbol": lambda: c.text_document_document_symbol_async(types.DocumentSymbolParams(name)),
            "foldingRange": lambda: c.text_document_folding_range_async(types.FoldingRangeParams(name)),
            "semanticTokens": lambda: c.text_document_semantic_tokens_full_async(types.SemanticTokensParams(name)),
            "inlayHint": lambda: c.text_document_inlay_hint_async(types.InlayHintParams(name, whole)),
            "codeLens": lambda: c.text_document_code_lens_async(types.CodeLensParams(name)),
            "formatting": lambda: c.text_document_formatting_async(types.DocumentFormattingParams(name, options)),
            "workspaceSymbol": lambda: c.workspace_symbol_async(types.WorkspaceSymbolParams("train")),
        }


async def measure(repeat: int) -> None:
    """Start a server, measure, and print."""
    text = long_file()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.gmi"
        path.write_text(text, encoding="utf-8")
        client = LanguageClient("benchmark", "1")
        published: asyncio.Queue[int | None] = asyncio.Queue()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def on_diagnostics(params: types.PublishDiagnosticsParams) -> None:
            published.put_nowait(params.version)

        started = time.perf_counter()
        await client.start_io(sys.executable, "-m", "gmiflow.cli", "lsp")
        folders = [types.WorkspaceFolder(uri=Path(folder).as_uri(), name="w")]
        await client.initialize_async(
            types.InitializeParams(capabilities=types.ClientCapabilities(), workspace_folders=folders)
        )
        client.initialized(types.InitializedParams())
        pid = server_pid(client)
        report("start", [(time.perf_counter() - started, cpu_seconds(pid))])
        session = Session(client, pid, path.as_uri(), text)
        item = types.TextDocumentItem(session.uri, "gmi", 1, text)
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        await published.get()
        await measure_requests(session, repeat)
        await measure_diagnostics(session, published, repeat)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()


async def measure_requests(session: Session, repeat: int) -> None:
    """Every request, at places over the whole file, right after a change and without one."""
    places = random.Random(0)
    for name in session.requests(types.Position(0, 0)):
        cold, warm = [], []
        for _ in range(repeat):
            line = places.randrange(session.whole.end.line)
            width = len(session.text.split("\n")[line])
            request = session.requests(types.Position(line, places.randrange(width + 1)))[name]
            session.touch()
            cold.append(await session.time(request))
            warm.append(await session.time(request))
        report(f"{name} after a change", cold)
        report(name, warm)


async def measure_diagnostics(session: Session, published: asyncio.Queue[int | None], repeat: int) -> None:
    """From the last change to the diagnostics of that version; the pause that the server waits for included."""
    found = []
    for _ in range(max(1, repeat // 4)):
        session.touch()

        async def arrived() -> None:
            while await published.get() != session.version:
                pass

        found.append(await session.time(arrived))
    report("diagnostics (0.2 s pause included)", found)


def server_pid(client: LanguageClient) -> int:
    """The process that the client started."""
    return client._server.pid  # type: ignore[union-attr]  # pygls has no public name for it


def report(name: str, times: list[Times]) -> None:
    """One line of JSON, in milliseconds."""
    line: dict[str, object] = {"request": name, "n": len(times)}
    for kind, seconds in zip(("wall", "cpu"), zip(*times, strict=True), strict=True):
        line[f"{kind}_median_ms"] = round(statistics.median(seconds) * 1e3, 2)
        line[f"{kind}_max_ms"] = round(max(seconds) * 1e3, 2)
    print(json.dumps(line), flush=True)


def full() -> int:
    """Every request in every place of every file, the files on all cores; returns the number of places."""
    from lsp_files import FILES

    places = variants = 0
    slowest: dict[str, float] = {}
    with ProcessPoolExecutor() as pool:
        for done, (times, swept_places, swept_variants) in enumerate(pool.map(swept, FILES), start=1):
            for name, seconds in times.items():
                slowest[name] = max(slowest.get(name, 0.0), seconds)
            places += swept_places
            variants += swept_variants
            if done % 20 == 0:
                print(f"{done} of {len(FILES)} files, {places} places", file=sys.stderr, flush=True)
    for name, seconds in slowest.items():
        print(json.dumps({"full sweep": name, "max_ms": round(seconds * 1e3, 2)}))
    print(json.dumps({"full sweep": {"files": len(FILES), "variants": variants, "places": places, "errors": 0}}))
    return places


def swept(path: Path) -> tuple[dict[str, float], int, int]:
    """Every request in every place of a file and in some of broken ones: the slowest of each, places and variants."""
    from lsp_files import Editor, broken, positions, sweep

    slowest: dict[str, float] = {}
    places = 0
    text = path.read_bytes().decode("utf-8", "replace")
    variants = [text, *broken(text, random.Random(str(path)))]
    for number, variant in enumerate(variants):
        editor = Editor()
        analysis = editor.open(path, variant)
        every = positions(analysis)
        chosen = every if number == 0 else every[:: max(1, len(every) // 10)]
        for name, seconds in sweep(editor, analysis, chosen).items():
            slowest[name] = max(slowest.get(name, 0.0), seconds)
        places += len(chosen)
    return slowest, places, len(variants)


def main() -> None:
    """Command line."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("--repeat", type=int, default=40)
    arguments.add_argument("--full", action="store_true", help="sweep over all files of the project, too (minutes)")
    chosen = arguments.parse_args()
    lines = long_file().count("\n")
    print(
        json.dumps(
            {"machine": platform.processor() or platform.machine(), "python": platform.python_version(), "lines": lines}
        )
    )
    asyncio.run(measure(chosen.repeat))
    if chosen.full:
        full()


if __name__ == "__main__":
    main()
