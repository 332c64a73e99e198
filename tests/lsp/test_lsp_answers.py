"""What the server says about a small project: hover, navigation, renaming, hints, lenses, outline, formatting."""

import re
from pathlib import Path

import pytest
from lsp_files import ROOT, Editor, whole
from lsprotocol import types
from pygls.uris import to_fs_path

from gmiflow.lsp import formatting, hints, navigation, outline, problems, renaming, semantic_tokens, views
from gmiflow.lsp.documents import uri_of
from gmiflow.lsp.hover import hover
from gmiflow.lsp.renaming import RenameError
from gmiflow.syntax import lexer

TEXT = """edition 1

import std.algo.ppo
import std.tasks.cartpole as tasks

/// How wide the layers are.
param width : int = 2 * 32

/// A task of our own.
simulator Own(kind : enum(easy, hard) = easy, noise : float) {
  entry = py "gmiflow.tasks.cartpole:CartPole"

  in  action     : f32[env, 1] range -1 .. 1
  /// What it sees.
  out obs        : f32[env, 4]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}

simulator sim     = Own(kind = hard, noise = 0.5)
agent     actor   = ppo.Actor(hidden = [width, width])
trainer   learner = ppo.Learner()

workflow train {
  mode    = sync
  num_env = 256
  horizon = 16

  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights
}

target laptop {
  device      = cpu
  gmi_per_gpu = 2
  memory      = 4096 MiB
}
"""


@pytest.fixture
def project(tmp_path):
    editor = Editor(tmp_path)
    return editor, editor.open(tmp_path / "main.gmi", TEXT)


def place(analysis, marked: str) -> types.Position:
    """The place of the `|` in a part of the text, which may be anywhere in it."""
    before, _, after = marked.partition("|")
    start = analysis.text.index(before + after)
    return analysis.document.lines.position(start + len(before))


def said(analysis, marked: str) -> str:
    found = hover(analysis, place(analysis, marked))
    return found.contents.value if found is not None else ""


HOVERS = [
    ("wid|th : int", ["param width : int = 2 * 32", "Value: `64`", "How wide the layers are."]),
    ("[wid|th, width]", ["Value: `64`"]),
    ("= O|wn(", ["simulator Own", "out obs : f32[env, 4]", "A task of our own."]),
    ("simulator si|m ", ["simulator sim = Own", "`noise = 0.5`", "`gmiflow.tasks.cartpole:CartPole`"]),
    ("sim.o|bs ", ["out obs : f32[env, 4]", "What it sees."]),
    ("actor.o|bs\n", ["in obs : f32[env, O]", "Here: `f32[env, 4]`"]),
    ("learner.exp|erience", ["in experience : Experience[time]", "mean : f32[time, env, 1]"]),
    ("kind = ha|rd", ["hard"]),
    ("ki|nd = hard", ["enum(easy, hard)", "Here: `hard`"]),
    ("horiz|on", ["horizon : int", "Value: `16`", "between two updates"]),
    ("num_e|nv = 256", ["128 per GMI"]),
    ("workflow tr|ain", ["dp_only, 2 GMIs of 128 environments, eager, cpu"]),
    ("memo|ry ", ["memory : bytes", "Memory of one device"]),
    ("4096 M|iB", ["4294967296"]),
    ("target lap|top", ["`device = cpu`", "`memory = 4 GiB`", "- train: dp_only, 2 GMIs of 128 environments"]),
    ("work|flow", ["how they take turns"]),
    ("[en|v, 4]", ["mapping cuts it over GMIs"]),
    ("f3|2[env, 4]", ["32-bit floating point"]),
    ('py "gmiflow.tasks|', ["never imports it"]),
    ("std.algo.pp|o", ["`Actor`", "`Learner`"]),
]


@pytest.mark.parametrize(("marked", "texts"), HOVERS)
def test_hover(project, marked, texts):
    text = said(project[1], marked)
    for expected in texts:
        assert expected in text


def test_nothing_to_hover_on_signs(project):
    assert hover(project[1], place(project[1], "train {|")) is None


def test_definition_in_the_file_in_std_and_in_python(project):
    _, analysis = project
    here = navigation.definition(analysis, place(analysis, "= O|wn("))
    assert here == types.Location(analysis.document.uri, types.Range(types.Position(9, 10), types.Position(9, 13)))
    std = navigation.definition(analysis, place(analysis, "ppo.Act|or"))
    assert std is not None and std.uri == uri_of(ROOT / "stdlib/algo/ppo.gmi")
    line = (ROOT / "stdlib/algo/ppo.gmi").read_text().splitlines()[std.range.start.line]
    assert line.startswith("agent Actor")
    port = navigation.definition(analysis, place(analysis, "actor.o|bs\n"))
    assert port is not None and port.uri.endswith("ppo.gmi")
    python = navigation.definition(analysis, place(analysis, "cartpole:Cart|Pole"))
    assert python is not None and python.uri == uri_of(ROOT / "gmiflow/tasks/cartpole.py")
    line = (ROOT / "gmiflow/tasks/cartpole.py").read_text().splitlines()[python.range.start.line]
    assert line.startswith("class CartPole")
    module = navigation.definition(analysis, place(analysis, "cartpole as ta|sks"))
    assert module is not None and module.uri.endswith("cartpole.gmi")


def test_from_a_stage_to_its_type_and_to_its_python_class(project):
    _, analysis = project
    for marked, line in (("simulator si|m ", 9), ("si|m.obs", 9), ("= Own(ki|nd", None)):
        found = navigation.type_definition(analysis, place(analysis, marked))
        assert (found.range.start.line if found is not None else None) == line
    record = navigation.type_definition(analysis, place(analysis, "actor.experi|ence"))
    lines = (ROOT / "stdlib/algo/ppo.gmi").read_text().splitlines()
    assert lines[record.range.start.line].startswith("record Experience")
    for marked, start in (("si|m.obs", "class CartPole"), ("learn|er.weights", "class Learner(Trainer)")):
        found = navigation.implementation(analysis, place(analysis, marked))
        python = Path(to_fs_path(found.uri))
        assert python.read_text().splitlines()[found.range.start.line].startswith(start)


def applied(analysis, edit: types.WorkspaceEdit) -> str:
    """The document after an edit."""
    lines, text = analysis.document.lines, analysis.text
    edits = sorted(edit.changes[analysis.document.uri], key=lambda e: lines.offset(e.range.start), reverse=True)
    for change in edits:
        text = text[: lines.offset(change.range.start)] + change.new_text + text[lines.offset(change.range.end) :]
    return text


RENAMES = [
    ("wid|th : int", "size", TEXT.replace("width :", "size :").replace("[width, width]", "[size, size]")),
    ("simulator si|m ", "physics", re.sub(r"\bsim\b", "physics", TEXT)),
    ("noi|se = 0.5", "sigma", TEXT.replace("noise", "sigma")),
    ("kind = ha|rd", "difficult", TEXT.replace("hard", "difficult")),
    ("algo.pp|o", "rl", TEXT.replace("std.algo.ppo", "std.algo.ppo as rl").replace("= ppo.", "= rl.")),
    ("as ta|sks", "games", TEXT.replace("as tasks", "as games")),
    (
        "out rew|ard ",
        "score",
        TEXT.replace("out reward ", "out score ")
        .replace("sim.{reward,", "sim.{score,")
        .replace("-> learner\n", "-> learner.{reward, terminated, truncated}\n"),
    ),
]


@pytest.mark.parametrize(("marked", "name", "expected"), RENAMES)
def test_rename(project, tmp_path, marked, name, expected):
    editor, analysis = project
    position = place(analysis, marked)
    assert renaming.prepare_rename(analysis, position) is not None
    text = applied(analysis, renaming.rename(editor.analyses, analysis, position, name))
    assert text == expected
    errors = [d for d in editor.open(tmp_path / "main.gmi", text).deep.diagnostics if d.severity == "error"]
    assert errors == []


@pytest.mark.parametrize(("marked", "name"), [("wid|th :", "sim"), ("noi|se =", "kind"), ("noi|se =", "width")])
def test_a_name_that_is_taken_is_refused(project, marked, name):
    editor, analysis = project
    with pytest.raises(RenameError, match="already declared"):
        renaming.rename(editor.analyses, analysis, place(analysis, marked), name)


FIXED = ["ppo.Act|or", "actor.o|bs\n", "mo|de ", "en|v, 4", "work|flow", "sy|nc", "train {|"]


@pytest.mark.parametrize("marked", FIXED)
def test_words_of_the_language_and_of_std_cannot_be_renamed(project, marked):
    editor, analysis = project
    position = place(analysis, marked)
    assert renaming.prepare_rename(analysis, position) is None
    assert renaming.rename(editor.analyses, analysis, position, "other") is None


def test_references_with_and_without_the_declaration(project):
    editor, analysis = project
    position = place(analysis, "wid|th : int")
    found = navigation.references(editor.analyses, analysis, position, declarations=True)
    assert [p.range.start.line for p in found] == [6, 21, 21]
    assert len(navigation.references(editor.analyses, analysis, position, declarations=False)) == 2
    kinds = [h.kind for h in navigation.highlights(analysis, position)]
    assert kinds == [types.DocumentHighlightKind.Write, *[types.DocumentHighlightKind.Read] * 2]


def test_inlay_hints(project):
    _, analysis = project
    found = {h.position.line: h.label for h in hints.inlay_hints(analysis, whole(analysis))}
    lines = analysis.text.splitlines()
    assert {lines[n].split("  ")[0].strip() or lines[n].strip()[:12]: label for n, label in found.items()} == {
        "param width : int = 2 * 32": "= 64",
        "agent": "[A = 1, O = 4]",
        "trainer": "[A = 1, O = 4]",
        "workflow train {": "dp_only, 2 GMI x 128, eager",
        "num_env = 25": "128 per GMI",
        "sim.obs     ": ": f32[env, 4]",
        "actor.action": ": f32[env, 1]",
        "actor.experi": ": Experience x 16",
        "actor.bootst": ": f32[env]",
        "sim.{reward,": ": (f32[env], bool[env], bool[env]) x 16",
        "learner.weig": ": weights",
    }
    part = types.Range(types.Position(6, 0), types.Position(7, 0))
    assert [h.label for h in hints.inlay_hints(analysis, part)] == ["= 64"]


def test_hints_about_what_auto_became(tmp_path):
    text = TEXT.replace("num_env = 256", "num_env = auto").replace(
        "gmi_per_gpu = 2", "gmi_per_gpu = auto\n  mapping = auto"
    )
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", text)
    found = {h.label: h.tooltip for h in hints.inlay_hints(analysis, whole(analysis))}
    assert found["= 256, 128 per GMI"] == "target laptop: 256 (default: no profile of this workload on this machine)"
    assert found["= dp_only"] == "target laptop: dp_only (chosen)"
    assert found["= 2"].startswith("target laptop: 2 (default")


def test_lenses_graph_and_explanation(project):
    _, analysis = project
    [lens] = hints.code_lenses(analysis, {"graph": "show"})
    assert (lens.command.title, lens.command.arguments) == ("Graph", [analysis.document.uri, "train"])
    assert lens.range.start.line == 24
    picture, problem = views.graph(analysis, "train")
    assert (picture[:4], problem) == ("<svg", "")
    text = views.explanation(analysis, "train")
    assert "128 on each of 2 GMIs" in text
    assert "dp_only" in text


def test_views_of_a_file_with_mistakes_say_what_is_wrong(tmp_path):
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", TEXT.replace("mode    = sync", "mode = sink"))
    picture, problem = views.graph(analysis, "train")
    assert picture == ""
    assert "E0" in problem and problem == views.explanation(analysis, "train")
    assert "no workflow" in views.explanation(Editor(tmp_path).open(tmp_path / "b.gmi", "edition 1\n"), "train")


def test_outline(project):
    _, analysis = project
    found = outline.document_symbols(analysis)
    names = ["ppo", "tasks", "width", "Own", "sim", "actor", "learner", "train", "laptop"]
    assert [symbol.name for symbol in found] == names
    own = found[3]
    assert [c.name for c in own.children] == [
        "kind", "noise", "entry", "action", "obs", "reward", "terminated", "truncated",
    ]  # fmt: skip
    for symbol in found:
        assert symbol.range.start <= symbol.selection_range.start
        assert symbol.selection_range.end <= symbol.range.end


def test_folding(project):
    _, analysis = project
    folds = {(f.start_line, f.end_line, f.kind) for f in outline.folding_ranges(analysis)}
    assert (2, 3, types.FoldingRangeKind.Imports) in folds
    assert (9, 17, None) in folds
    assert (24, 34, None) in folds


def test_folding_of_comments_and_lists(tmp_path):
    text = "edition 1\n\n// one\n// two\n\n/// doc\n/// more\nparam x : list(int) = [\n  1,\n  2\n]\n"
    folds = outline.folding_ranges(Editor(tmp_path).open(tmp_path / "a.gmi", text))
    assert [(f.start_line, f.end_line) for f in folds] == [(2, 3), (5, 6), (7, 9)]


def test_formatting_changes_only_the_lines_that_differ(tmp_path):
    untidy = TEXT.replace("mode    = sync", "mode=sync").replace("out reward     :", "out reward:")
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", untidy)
    edits = formatting.format_document(analysis)
    assert [edit.new_text for edit in edits] == ["  out reward     : f32[env]\n", "  mode    = sync\n"]
    text = applied(analysis, types.WorkspaceEdit(changes={analysis.document.uri: edits}))
    assert text == TEXT
    part = types.Range(types.Position(24, 0), types.Position(30, 0))
    assert [edit.new_text for edit in formatting.format_document(analysis, part)] == ["  mode    = sync\n"]


def test_no_formatting_of_a_file_with_mistakes(tmp_path):
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", "edition 1\nparam x : = 1\n")
    assert formatting.format_document(analysis) == []


def test_semantic_tokens(project):
    _, analysis = project
    found = {
        analysis.text[start:end]: (kind, set(marks)) for start, end, kind, marks in semantic_tokens.coloured(analysis)
    }
    assert found["workflow"] == ("keyword", set())
    assert found["Own"][0] == "class"
    assert found["noise"][0] == "parameter"
    assert found["obs"][0] == "property"
    assert found["hard"] == ("enumMember", {"readonly"})
    assert found["sync"] == ("enumMember", {"readonly", "defaultLibrary"})
    assert found["env"] == ("typeParameter", {"defaultLibrary"})
    assert found["4096 MiB"][0] == "number"
    assert found["/// What it sees."] == ("comment", {"documentation"})


def test_every_name_of_an_example_has_a_meaning():
    """No name of a file without mistakes is left without an occurrence."""
    for path in sorted((ROOT / "examples").glob("*.gmi")) + sorted((ROOT / "stdlib").rglob("*.gmi")):
        analysis = Editor().open(path)
        known = {o.span.start for o in analysis.index.occurrences}
        imports = [i.target_span for i in analysis.items if type(i).__name__ == "Import"]
        for token in lexer.raw_tokens(analysis.text):
            in_import = any(span.start <= token.start_pos < span.end for span in imports)
            if token.type == "NAME" and not in_import:
                assert token.start_pos in known, (path.name, token)


def test_fix_all(tmp_path):
    text = TEXT.replace("learner.weights ", "learner.weightz ").replace("ppo.Learner", "ppo.Lerner")
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", text)
    [action] = problems.actions(analysis, whole(analysis), [problems.FIX_ALL])
    once = applied(analysis, action.edit)  # the wrong port is seen when the stage is right
    analysis = Editor(tmp_path).open(tmp_path / "a.gmi", once)
    [action] = problems.actions(analysis, whole(analysis), [problems.FIX_ALL])
    assert applied(analysis, action.edit) == TEXT
    assert problems.actions(analysis, whole(analysis), [types.CodeActionKind.Refactor]) == []


HALF = "edition 1\n\nworkflow  a { mode=sync\n  seed = 1 }\n\n// between\nworkflow b {\nmode=sync }\n"


@pytest.mark.parametrize(("line", "changes"), [(3, ("a",)), (5, ()), (7, ("b",)), (0, ())])
def test_a_declaration_in_the_range_is_formatted_as_a_whole(tmp_path, line, changes):
    """Half of one could lack a brace; what is formatted then stays as it is when the rest follows."""
    first, second = "workflow a {\n  mode = sync\n  seed = 1\n}", "{\n  mode = sync\n}"
    editor = Editor(tmp_path)
    analysis = editor.open(tmp_path / "a.gmi", HALF)
    part = types.Range(types.Position(line, 2), types.Position(line, 3))
    edits = formatting.format_document(analysis, part)
    text = applied(analysis, types.WorkspaceEdit(changes={analysis.document.uri: edits}))
    expected = HALF
    if "a" in changes:
        expected = expected.replace("workflow  a { mode=sync\n  seed = 1 }", first)
    if "b" in changes:
        expected = expected.replace("{\nmode=sync }", second)
    assert text == expected
    again = editor.open(tmp_path / "a.gmi", text)
    rest = {again.document.uri: formatting.format_document(again)}
    assert (
        applied(again, types.WorkspaceEdit(changes=rest))
        == f"edition 1\n\n{first}\n\n// between\nworkflow b {second}\n"
    )
