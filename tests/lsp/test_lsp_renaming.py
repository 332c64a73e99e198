"""A renamed file means what it meant: what would change the meaning of a name is refused, and only that."""

import pytest
from lsp_files import Editor
from lsprotocol import types

from gmiflow.lsp import navigation, renaming
from gmiflow.lsp.documents import path_of

TEXT = """edition 1

import std.algo.ppo

param lr   : float = 1e-3
param easy : int = 3
param mode : enum(easy, hard) = easy
param flag : bool = mode == hard && easy > 2
param side : int = 8

record Seen {
  obs : f32[env, O]
}

simulator Own(kind : enum(rough, noise) = rough, noise : float = 0.5, big : bool = kind == noise) {
  entry = py "gmiflow.tasks.cartpole:CartPole"
  in  action : f32[env, A]
  out obs    : u8[env, side, Wide]
  out reward : f32[env]
  require noise > 0 else "none"
}

agent Act {
  entry = py "gmiflow.rl.ppo:Actor"
  in  obs  : f32[env, O]
  out seen : Seen
  in  goal : f32[env, Goal]
}

trainer learner = ppo.Learner(lr = lr)
"""
USES_STANDARD = """edition 1

import std.algo.ppo

agent Act {
  entry = py "gmiflow.rl.ppo:Actor"
  in  obs        : f32[env, O]
  out experience : ppo.Experience
}
"""


@pytest.fixture
def project(tmp_path):
    editor = Editor(tmp_path)
    return editor, editor.open(tmp_path / "main.gmi", TEXT)


def renamed(editor, analysis, marked: str, name: str) -> str:
    """The document when the thing at the `|` has another name."""
    before, _, after = marked.partition("|")
    place = analysis.document.lines.position(analysis.text.index(before + after) + len(before))
    edit = renaming.rename(editor.analyses, analysis, place, name)
    lines, text = analysis.document.lines, analysis.text
    edits = sorted(edit.changes[analysis.document.uri], key=lambda e: lines.offset(e.range.start), reverse=True)
    for change in edits:
        text = text[: lines.offset(change.range.start)] + change.new_text + text[lines.offset(change.range.end) :]
    return text


ALLOWED = {
    "the argument of another file's type has that name": (
        ("param |lr", "epochs"),
        {"lr   :": "epochs   :", "= lr)": "= epochs)"},
    ),
    "a size is one in a record and where the record goes": (("[env, |O]", "Size"), {"[env, O]": "[env, Size]"}),
    "a word comes before a parameter": (
        ("= kind == noi|se", "loud"),
        {"rough, noise)": "rough, loud)", "== noise": "== loud"},
    ),
    "a word comes before a name of the file": (
        ("hard) = ea|sy", "soft"),
        {"(easy,": "(soft,", "= easy\n": "= soft\n"},
    ),
    "the parameter, not the word": (
        ("noi|se > 0", "sigma"),
        {"noise : float": "sigma : float", "noise > 0": "sigma > 0"},
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_renamed(project, case):
    name, changes = ALLOWED[case]
    expected = TEXT
    for old, new in changes.items():
        assert old in expected
        expected = expected.replace(old, new)
    assert renamed(*project, *name) == expected


REFUSED = [
    (
        "a parameter in a shape would become a size",
        "param si|de",
        "Side",
        "`side` would have another meaning in line 18",
    ),
    ("a size would become a parameter", "W|ide]", "wide", "`Wide` would have another meaning in line 18"),
    ("a size would become an axis", "W|ide]", "env", "another meaning"),
    ("a size would be called as a record", "[env, |O]", "Seen", "already declared"),
    ("two sizes of a stage type would be one", "[env, |O]", "Goal", "another meaning in line 27"),
    ("a word would hide a parameter", "hard) = easy|", "hard", "already declared"),
    ("a parameter would be hidden by a word", "noi|se > 0", "big", "already declared"),
    ("a keyword", "param |lr", "auto", "is a keyword"),
    ("half a character", "param |lr", "\ud800", "is not a name"),
    ("two lines", "param |lr", "a\n", "is not a name"),
]


@pytest.mark.parametrize(("name", "why"), [(case[1:3], case[3]) for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_refused(project, name, why):
    with pytest.raises(renaming.RenameError, match=why):
        renamed(*project, *name)


def test_a_size_of_the_standard_library_keeps_its_name(tmp_path):
    """The agent's own `O` is that of the record it sends."""
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", USES_STANDARD)
    place = analysis.document.lines.position(analysis.text.index("O]"))
    assert renaming.prepare_rename(analysis, place) is None


def test_so_does_one_that_another_file_joins_with_it(tmp_path):
    editor = Editor(tmp_path)
    own = editor.open(tmp_path / "own.gmi", "edition 1\n\nrecord Seen {\n  obs : f32[env, O]\n}\n")
    text = USES_STANDARD.replace("std.algo.ppo\n", 'std.algo.ppo\nimport "./own.gmi" as own\n')
    editor.open(tmp_path / "a.gmi", text.replace("f32[env, O]", "own.Seen"))
    with pytest.raises(renaming.RenameError, match="a record of the standard library"):
        renamed(editor, own, "[env, |O]", "Size")


def test_a_name_that_means_nothing_yet_is_not_captured(tmp_path):
    editor = Editor(tmp_path)
    analysis = editor.open(tmp_path / "a.gmi", "edition 1\n\nparam a : int = 1\nparam b : int = missing\n")
    with pytest.raises(renaming.RenameError, match="`missing` is used in line 4"):
        renamed(editor, analysis, "param a|", "missing")


def test_references_are_the_same_from_everywhere(project):
    """And so are sizes that a record and a stage type share."""
    editor, analysis = project
    seen: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for occurrence in analysis.index.occurrences:
        place = analysis.document.lines.position(occurrence.span.start)
        found = navigation.references(editor.analyses, analysis, place, declarations=True)
        here = {(p.range.start.line, p.range.start.character) for p in found if path_of(p.uri).name == "main.gmi"}
        seen[place.line, place.character] = here
    assert all(place in here for place, here in seen.items())
    assert all(seen[other] == here for here in seen.values() for other in here)
    size = next(place for place in seen if TEXT.splitlines()[place[0]] == "  obs : f32[env, O]" and place[1] == 17)
    assert seen[size] == {(11, 17), (24, 22)}
    kinds = navigation.highlights(analysis, types.Position(*size))
    assert [kind.range.start.line for kind in kinds] == [11, 24]
