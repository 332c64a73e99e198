"""2,000 random edits of the corpus: whatever comes out, the compiler answers with diagnostics.

The edits are drawn from a seed, so a failure can be run again: its number is in the name of the test.
"""

import random
from pathlib import Path

import pytest
from error_pages import FROM_TEXT, MACHINE

from gmiflow.diagnostic_formats import render_json, render_sarif
from gmiflow.diagnostics import render_text
from gmiflow.pipeline import compile_file
from gmiflow.syntax import lexer
from gmiflow.syntax.words import FUNCTIONS, KEYWORDS

HERE = Path(__file__).parent
EDITS = 2_000
SHARDS = 20
TEXTS = [path.read_bytes().decode("utf-8-sig") for path in sorted(HERE.glob("*/*.gmi"))] + [
    example.text for page in FROM_TEXT for example in (page.wrong, page.right)
]
WORDS = [*sorted(KEYWORDS), *sorted(FUNCTIONS), "env", "time", "O", "sim", "4 GiB", "3e-4", "1", "-1", '"x"', "f32"]
SIGNS = [*"{}()[]=:,.;<>!&|+-*/#$'\"\\\n\t\r ", "->", "..", "//", "///", "==", "&&", "\r\n", "é", "日本", "\0"]


def edited(draw: random.Random) -> str:
    """A text of the corpus after one to four edits of characters, words or lines."""
    text = draw.choice(TEXTS)
    for _ in range(draw.randint(1, 4)):
        text = draw.choice((edit_characters, edit_words, edit_lines))(text, draw)
    return text


def edit_characters(text: str, draw: random.Random) -> str:
    start = draw.randint(0, len(text))
    end = start + draw.choice((0, 0, 1, 2, 8))
    return text[:start] + draw.choice(["", *SIGNS]) + text[end:]


def edit_words(text: str, draw: random.Random) -> str:
    """Put a word, or one from elsewhere in the text, in the place of a word."""
    tokens = lexer.raw_tokens(text)
    if not tokens:
        return text
    token = draw.choice(tokens)
    word = draw.choice([draw.choice(WORDS), draw.choice(tokens).value, ""])
    return text[: token.start_pos] + word + text[token.end_pos :]


def edit_lines(text: str, draw: random.Random) -> str:
    """Leave a line out, repeat it, or move it."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    line = lines[draw.randrange(len(lines))]
    if draw.random() < 0.6:
        lines.remove(line)
    if draw.random() < 0.6:
        lines.insert(draw.randint(0, len(lines)), line)
    return "".join(lines)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_edits(shard, monkeypatch):
    monkeypatch.chdir(HERE / "check")
    draw = random.Random(shard)
    for _ in range(EDITS // SHARDS):
        examine(edited(draw))


def examine(text: str) -> None:
    """Compile; what is said has places inside of its sources, in order, and can be shown in every format."""
    result = compile_file("edited.gmi", text=text, hardware=MACHINE, stop_after="plan")
    for render in (render_text, render_json, render_sarif):
        render(result.diagnostics)
    assert result.failed or result.plan is not None or result.workflow is None
    for diagnostic in result.diagnostics:
        assert diagnostic.title
        assert "\n" not in diagnostic.message
        for span in (diagnostic.span, *(label.span for label in diagnostic.secondary)):
            assert span is None or 0 <= span.start <= span.end <= len(span.source.text)
    places = [d.span.start for d in result.checked.diagnostics if d.span and d.span.source.name == "edited.gmi"]
    assert places == sorted(places)
