"""Every request in every place of the project's files, of truncated ones and of broken ones: answered without an error.

Here a sample, so that the suite stays quick; `python benchmarks/lsp.py --full` takes all of them.
"""

import gc
import random
import weakref

import pytest
from lsp_files import FILES, ROOT, Editor, broken, positions, sweep
from lsprotocol.converters import get_converter

from gmiflow.lsp import completion, hints, outline, problems, semantic_tokens
from gmiflow.lsp.positions import Lines

SHARDS = 6
PLACES = 8


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_request_in_every_file(shard):
    sample, editor = random.Random(shard), Editor()
    for path in FILES[shard::SHARDS]:
        analysis = editor.open(path)
        places = positions(analysis)
        sweep(editor, analysis, sample.sample(places, min(PLACES, len(places))))
        editor.close(path)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_request_in_broken_files(shard):
    sample, editor = random.Random(100 + shard), Editor()
    for path in sample.sample(FILES[shard::SHARDS], 6):
        text = path.read_bytes().decode("utf-8", "replace")
        for variant in broken(text, sample):
            analysis = editor.open(path, variant)
            places = positions(analysis)
            sweep(editor, analysis, sample.sample(places, min(6, len(places))))
            editor.close(path)


@pytest.mark.parametrize("name", ["ant.gmi", "quickstart.gmi"])
def test_every_token_of_an_example(name):
    editor = Editor(ROOT / "examples")
    analysis = editor.open(ROOT / "examples" / name)
    slowest = sweep(editor, analysis)
    assert set(slowest) >= {"hover", "completion", "rename", "diagnostics", "tokens"}


@pytest.mark.parametrize(
    "text", ["", "\ufeff", "\0", "\r\r\r", "edition 1", 'import "', "workflow w {", "\u2028\x0b\x0c"]
)
def test_degenerate_files(text, tmp_path):
    editor = Editor(tmp_path)
    sweep(editor, editor.open(tmp_path / "a.gmi", text))


def test_an_analysis_is_freed_without_the_garbage_collector():
    """A new one comes with every letter typed; pauses to collect the old ones would be felt."""
    editor = Editor(ROOT / "examples")
    path = ROOT / "examples" / "ant.gmi"
    text = path.read_text(encoding="utf-8")
    analysis = editor.open(path, text)
    sweep(editor, analysis, positions(analysis)[:3])
    old = weakref.ref(analysis), weakref.ref(analysis.checked.model.scope)
    gc.collect()
    gc.disable()
    try:
        del analysis
        editor.open(path, text + "\n")
        assert [ref() for ref in old] == [None, None]
    finally:
        gc.enable()


def test_answers_can_be_sent():
    """What the functions answer, the protocol's converter takes; ranges stay in the document."""
    converter = get_converter()
    for path in FILES[::5]:
        editor = Editor()
        analysis = editor.open(path)
        last = analysis.document.lines.count - 1
        everything = analysis.document.lines.range(0, len(analysis.text))
        answers = [
            *problems.diagnostics(analysis),
            *outline.document_symbols(analysis),
            *outline.folding_ranges(analysis),
            *hints.inlay_hints(analysis, everything),
            semantic_tokens.semantic_tokens(analysis),
            *(i for p in positions(analysis)[::20] for i in completion.completions(analysis, p)),
        ]
        for answer in answers:
            sent = converter.unstructure(answer)
            place = sent.get("range")
            assert place is None or 0 <= place["start"]["line"] <= place["end"]["line"] <= last


def test_semantic_tokens_do_not_overlap_and_end_in_their_line():
    for path in FILES[::3]:
        analysis = Editor().open(path)
        lines: Lines = analysis.document.lines
        end = 0
        for start, stop, _, _ in semantic_tokens.coloured(analysis):
            assert end <= start < stop
            assert lines.line_of(start) == lines.line_of(stop)
            end = stop
