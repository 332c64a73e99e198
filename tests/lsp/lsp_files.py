"""The `.gmi` files that the editor tests look at, and every request of the server at one place."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lsprotocol import types

from gmiflow.hardware import Hardware
from gmiflow.lsp import (
    completion,
    formatting,
    hints,
    navigation,
    outline,
    problems,
    renaming,
    semantic_tokens,
    signature,
    views,
)
from gmiflow.lsp.analysis import Analyses, Analysis
from gmiflow.lsp.documents import Documents, uri_of
from gmiflow.lsp.hover import hover

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("examples", "stdlib", "tests/conformance", "tests/errors", "tests/golden")
    for path in (ROOT / folder).rglob("*.gmi")
)
MACHINE = Hardware(cores=2, gpus=())


class Editor:
    """An editor without a process: documents, and what the server answers about them."""

    def __init__(self, *folders: Path) -> None:
        self.files = Documents()
        self.files.folders = list(folders)
        self.analyses = Analyses(files=self.files, hardware=MACHINE)

    def open(self, path: Path, text: str | None = None) -> Analysis:
        """Open a file, or a text in its place."""
        uri = uri_of(path)
        if text is None:
            text = path.read_bytes().decode("utf-8", "replace")
        self.files.open(uri, 1, text)
        analysis = self.analyses.of(uri)
        assert analysis is not None
        return analysis

    def close(self, path: Path) -> None:
        """Close a file; what it imports stays known."""
        self.files.close(uri_of(path))
        self.analyses.forget(uri_of(path))

    def mark(self, path: Path, marked: str) -> tuple[Analysis, types.Position]:
        """Open a text that has `|` where the cursor is."""
        before, _, after = marked.partition("|")
        analysis = self.open(path, before + after)
        return analysis, analysis.document.lines.position(len(before))


def whole(analysis: Analysis) -> types.Range:
    return analysis.document.lines.range(0, len(analysis.text))


Request = tuple[str, Callable[[], object]]


def at_place(editor: Editor, analysis: Analysis, position: types.Position) -> Iterator[Request]:
    """Every request that is about a position."""
    yield "hover", lambda: hover(analysis, position)
    yield "definition", lambda: navigation.definition(analysis, position)
    yield "typeDefinition", lambda: navigation.type_definition(analysis, position)
    yield "implementation", lambda: navigation.implementation(analysis, position)
    yield "references", lambda: navigation.references(editor.analyses, analysis, position, declarations=True)
    yield "highlight", lambda: navigation.highlights(analysis, position)
    yield "completion", lambda: completion.completions(analysis, position)
    yield "signature", lambda: signature.signature_help(analysis, position)
    yield "prepareRename", lambda: renaming.prepare_rename(analysis, position)
    yield "rename", lambda: renaming.rename(editor.analyses, analysis, position, "Fresh_name_1")
    place = types.Range(start=position, end=position)
    yield "codeAction", lambda: problems.actions(analysis, place, None)


def of_document(analysis: Analysis) -> Iterator[Request]:
    """Every request that is about a document."""
    everything = whole(analysis)
    yield "diagnostics", lambda: problems.diagnostics(analysis)
    yield "formatting", lambda: formatting.format_document(analysis)
    yield "rangeFormatting", lambda: formatting.format_document(analysis, everything)
    yield "symbols", lambda: outline.document_symbols(analysis)
    yield "folding", lambda: outline.folding_ranges(analysis)
    yield "tokens", lambda: semantic_tokens.semantic_tokens(analysis)
    yield "tokensOfRange", lambda: semantic_tokens.semantic_tokens(analysis, everything)
    yield "hints", lambda: hints.inlay_hints(analysis, everything)
    yield "lenses", lambda: hints.code_lenses(analysis, {"explain": "e", "graph": "g", "run": "r"})
    yield "fixAll", lambda: problems.actions(analysis, everything, [problems.FIX_ALL])
    yield "explain", lambda: views.explanation(analysis, "")
    yield "graph", lambda: views.graph(analysis, "")


def positions(analysis: Analysis) -> list[types.Position]:
    """The start, the inside and the end of every token, and the ends of the file."""
    offsets = {0, len(analysis.text)}
    for token in analysis.tokens:
        offsets |= {token.start_pos, (token.start_pos + token.end_pos) // 2, token.end_pos}
    return [analysis.document.lines.position(offset) for offset in sorted(offsets)]


STRAY = ("{", "}", "(", '"', "->", ".", "= ", "\u00e9\U0001f980", "\r")


def broken(text: str, random_numbers: random.Random) -> Iterator[str]:
    """A text cut off in places, and with a token missing, doubled or replaced."""
    for part in (0.2, 0.5, 0.8, 0.97):
        yield text[: int(len(text) * part)]
    for _ in range(3):
        place = random_numbers.randrange(len(text) + 1)
        yield (
            text[:place]
            + random_numbers.choice(["{", "}", "(", '"', "->", ".", "= ", "\u00e9\U0001f980", "\r"])
            + text[place:]
        )
        yield text[:place] + text[place + random_numbers.randrange(1, 30) :]


def sweep(editor: Editor, analysis: Analysis, places: list[types.Position] | None = None) -> dict[str, float]:
    """Make every request; returns the longest time of each in seconds."""
    slowest: dict[str, float] = {}
    requests = [*of_document(analysis)]
    requests += [r for p in (positions(analysis) if places is None else places) for r in at_place(editor, analysis, p)]
    for name, request in requests:
        started = time.perf_counter()
        with contextlib.suppress(renaming.RenameError):  # the name is taken here
            request()
        slowest[name] = max(slowest.get(name, 0.0), time.perf_counter() - started)
    return slowest
