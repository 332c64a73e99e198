"""Renderings of diagnostics, and the rules of "did you mean"."""

import json

import pytest

from gmiflow.codes import TITLES
from gmiflow.diagnostic_formats import render_json, render_sarif
from gmiflow.diagnostics import Diagnostic, Edit, Fix, Label, closest, in_order, render_text
from gmiflow.source import Source, Span

SOURCE = Source("a file.gmi", "edition 1\n\tparam é : int = x\nlast")


def span(text, source=SOURCE):
    start = source.text.index(text)
    return Span(source, start, start + len(text))


DIAGNOSTIC = Diagnostic(
    code="E0201",
    message="unknown name `x`",
    span=span("x"),
    label="here",
    secondary=(Label(span=span("int"), text="same line"), Label(span=span("edition 1"), text="other line")),
    notes=("a note",),
    fixes=(Fix(title="write `é`", edits=(Edit(span=span("x"), text="é"),)),),
)


def test_text():
    assert render_text([DIAGNOSTIC]) == (
        "error[E0201]: unknown name `x`\n"
        " --> a file.gmi:2:18\n"
        "  |\n"
        "2 |     param é : int = x\n"
        "  |                     ^ here\n"
        "  |               --- same line\n"
        "  ...\n"
        "1 | edition 1\n"
        "  | --------- other line\n"
        "  = a note\n"
        "\n"
        "1 error\n"
    )


def test_text_counts_and_places_nothing():
    nowhere = Diagnostic(code="E0105", message="cannot read `x`", span=None)
    warning = Diagnostic(code="W0202", message="twice", span=span("last"), severity="warning")
    text = render_text([nowhere, warning, warning])
    assert text.startswith("error[E0105]: cannot read `x`\n\nwarning[W0202]: twice\n")
    assert text.endswith("\n1 error, 2 warnings\n")
    assert render_text([]) == ""


def test_color_only_paints():
    plain, colored = render_text([DIAGNOSTIC]), render_text([DIAGNOSTIC], color=True)
    assert "\x1b[" in colored
    for code in ("\x1b[1;31m", "\x1b[1;34m", "\x1b[0m"):
        colored = colored.replace(code, "")
    assert colored == plain


def test_control_characters_do_not_reach_the_terminal():
    source = Source("x.gmi", 'param a : string = "\x1b[2J\x07"')
    bad = Diagnostic(code="E0101", message="no \x1b[31m", span=Span(source, 0, 5), notes=("\x07",))
    text = render_text([bad])
    assert all(character >= " " or character == "\n" for character in text)


def test_a_long_line_is_cut_around_the_place():
    source = Source("x.gmi", "a" * 5000 + "!" + "b" * 5000)
    text = render_text([Diagnostic(code="E0102", message="m", span=Span(source, 5000, 5001))])
    line, carets = text.splitlines()[3:5]
    assert len(line) < 160
    assert line[carets.index("^")] == "!"
    assert ":1:5001" in text


def test_a_span_over_several_lines_marks_its_first():
    source = Source("x.gmi", "ab {\n  c\n}\n")
    text = render_text([Diagnostic(code="E0101", message="m", span=Span(source, 0, 11))])
    assert text.splitlines()[3:5] == ["1 | ab {", "  | ^^^^"]


def test_json():
    (item,) = json.loads(render_json([DIAGNOSTIC]))
    assert item["place"] == {
        "file": "a file.gmi", "line": 2, "column": 18, "end_line": 2, "end_column": 19, "start": 27, "end": 28,
    }  # fmt: skip
    assert (item["code"], item["severity"], item["docs"]) == ("E0201", "error", "docs/errors/E0201.md")
    assert item["fixes"][0]["edits"][0]["text"] == "é"
    assert [s["text"] for s in item["secondary"]] == ["same line", "other line"]
    assert json.loads(render_json([])) == []


def test_sarif():
    log = json.loads(render_sarif([DIAGNOSTIC, Diagnostic(code="E0105", message="m", span=None)]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["E0105", "E0201"]
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("E0201", 1, "error")
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20file.gmi"
    assert place["region"] == {"startLine": 2, "startColumn": 18, "endLine": 2, "endColumn": 19}
    assert len(first["relatedLocations"]) == 2
    replacement = first["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"]["text"] == "é"
    assert second["locations"] == []


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("horizn", ["horizon", "num_env"], "horizon"),
        ("num_evn", ["num_env"], "num_env"),  # a swap counts once
        ("Ant", ["ant"], "ant"),
        ("ab", ["cd"], None),
        ("ab", ["ac"], "ac"),
        ("abc", ["axy"], None),
        ("learning_rate", ["lr"], "lr"),  # as other trainers call it
        ("step_size", ["lr"], None),
        ("gpu", ["cpu", "cuda"], "cuda"),
        ("gpus", ["devices", "gpu"], "devices"),
        ("gpu", ["gpus"], "gpus"),
        ("x", [], None),
        ("x", ["x"], None),
        ("aa", ["ac", "ab"], "ab"),
    ],
)
def test_closest(name, candidates, expected):
    assert closest(name, candidates) == expected


def test_order_and_repetitions():
    first, second = Source("first", "abc"), Source("second", "abc")

    def at(source, start):
        return Diagnostic(code="E0101", message="m", span=Span(source, start, start + 1))

    nowhere = Diagnostic(code="E0105", message="m", span=None)
    mixed = [at(first, 2), at(second, 0), at(first, 1), nowhere, at(first, 2)]
    assert in_order(mixed) == (nowhere, at(first, 1), at(first, 2), at(second, 0))


def test_every_code_used_has_a_title():
    assert all((title and title[0].islower()) or title[0].isupper() for title in TITLES.values())
    with pytest.raises(KeyError):
        _ = Diagnostic(code="E9999", message="m", span=None).title
