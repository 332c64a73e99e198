"""Random edits of good and bad files: nothing but diagnostics, and nothing is dropped silently."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gmiflow.diagnostic_formats import render_json, render_sarif
from gmiflow.diagnostics import render_text
from gmiflow.passes.check import check

ROOT = Path(__file__).parents[2]
FILES = sorted(
    [*(ROOT / "examples").glob("*.gmi"), *(ROOT / "stdlib").rglob("*.gmi"), *(ROOT / "tests/errors").glob("*.gmi")]
)
TEXTS = [path.read_bytes().decode() for path in FILES]
FRAGMENTS = [
    "{", "}", "(", ")", "[", "]", "->", "=", "\n", "\n\n", '"', "///", "//", ".", "..", ",", ":", "param ",
    "in ", "auto ",
    "4 GiB", "3e-4", "\r", "\t", "é", "$", "\0",
    "workflow x {\n", "&& ", "-", "!", "1", "0", "py ", "env",
    "time", "O",
    "std", "import std.targets\n", "optional", "range ", "\ud800", "#", "'", ";", "mode", "edition 1\n",
]  # fmt: skip


@st.composite
def edited(draw):
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["delete", "insert", "copy"])):
            case "delete":
                text = text[:place] + text[place + draw(st.integers(1, 12)) :]
            case "insert":
                text = text[:place] + draw(st.sampled_from(FRAGMENTS)) + text[place:]
            case _:
                start = draw(st.integers(0, len(text)))
                text = text[:place] + text[start : start + draw(st.integers(1, 40))] + text[place:]
    return text


def examine(text):
    result = check("edited.gmi", text=text)
    for render in (render_text, render_json, render_sarif):
        render(result.diagnostics)
    errors = [d for d in result.diagnostics if d.severity == "error"]
    assert not (errors and result.workflow)
    for diagnostic in result.diagnostics:
        assert diagnostic.title
        for span in [diagnostic.span, *(label.span for label in diagnostic.secondary)]:
            assert span is None or 0 <= span.start <= span.end <= len(span.source.text)
    places = [d.span.start for d in result.diagnostics if d.span and d.span.source.name == "edited.gmi"]
    assert places == sorted(places)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(edited())
def test_edits_of_real_files(text):
    examine(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text):
    examine(text)
    examine("edition 1\n" + text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*FRAGMENTS, "a", " = ", "simulator s", "workflow w", "target t", "a.b"]), max_size=40))
def test_any_words(words):
    examine("edition 1\n" + " ".join(words))
