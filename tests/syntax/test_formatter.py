"""The formatter: layout by hand-written examples, the proof obligations by generated programs."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gmiflow.source import Source
from gmiflow.syntax import formatter
from gmiflow.syntax.comments import texts
from gmiflow.syntax.formatter import FormatterError, format_source, meaning
from gmiflow.syntax.layout import WIDTH
from gmiflow.syntax.parser import parse
from tests.syntax.programs import programs, relaid

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("stdlib/**/*.gmi"), *ROOT.glob("examples/**/*.gmi")])
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=40)


def formatted(text: str) -> str:
    result = format_source(Source("test.gmi", text))
    assert result.text is not None, [d.message for d in result.diagnostics]
    return result.text


def tree(text: str):
    parsed = parse(Source("test.gmi", text))
    assert not parsed.diagnostics, [d.message for d in parsed.diagnostics]
    return meaning(parsed.module)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_file_of_the_project_is_formatted(path):
    text = path.read_text()
    assert formatted(text) == text


def squeeze(text: str) -> str:
    """Without indentation and columns, blank lines doubled."""
    lines = (line if "//" in line or '"' in line else " ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line.strip() or "\n" for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_layout_of_the_input_does_not_matter(path):
    text = path.read_text()
    assert formatted(squeeze(text)) == formatted(text)


EXAMPLES = {
    "columns": (
        "edition 1\nparam a:int=1\nparam long_name:auto int=2 where long_name>0\nparam plain : float\n",
        "edition 1\n\n"
        "param a         : int      = 1\n"
        "param long_name : auto int = 2 where long_name > 0\n"
        "param plain     : float\n",
    ),
    "a blank line ends a table, a comment does not": (
        "workflow w {\n a = 1\n // why\n long = 2\n\n\n\n longest = 3\n}\n",
        "workflow w {\n  a    = 1\n  // why\n  long = 2\n\n  longest = 3\n}\n",
    ),
    "blank lines around bodies and after imports": (
        "edition 1\nimport std.a\nimport std.b\nparam x:int\n"
        '// of w\nworkflow w {\n\n a=1\n\n}\ntarget t {}\nrequire x>0 else "m"',
        "edition 1\n\nimport std.a\nimport std.b\n\nparam x : int\n"
        "\n// of w\nworkflow w {\n  a = 1\n}\n\ntarget t {}\n\n"
        'require x > 0 else "m"\n',
    ),
    "comments behind lines stand in a column": (
        "target t {\n a=auto//one\n longer =auto   // two\n b=1\n c=2//three\n} // end\n",
        "target t {\n  a      = auto  // one\n  longer = auto  // two\n"
        "  b      = 1\n  c      = 2  // three\n}  // end\n",
    ),
    "comments in brackets": (
        "simulator s = m.S( // first\n a=1, // one\n\n // before b\n b=2 // two\n // last\n)\n",
        "simulator s = m.S(  // first\n  a = 1,  // one\n\n  // before b\n  b = 2  // two\n  // last\n)\n",
    ),
    "comments within an expression": (
        "param x : int = (1 + // one\n // of two\n 2)\n",
        "param x : int = (\n  1 +  // one\n    // of two\n    2\n)\n",
    ),
    "comments before an arrow": (
        "workflow w {\n a.x // from\n -> b.x { depth=2 }\n}\n",
        "workflow w {\n  a.x  // from\n    -> b.x { depth = 2 }\n}\n",
    ),
    "comments among ports and in blocks": (
        "workflow w {\n a.{x, // ex\n y} -> b\n a.z -> b { // how\n depth=2 }\n}\n",
        "workflow w {\n  a.{\n    x,  // ex\n    y\n  } -> b\n  a.z -> b {  // how\n    depth = 2\n  }\n}\n",
    ),
    "documentation stays with what it documents": (
        "///one\n\n/// two\n// note\n\nagent A(///of h\nh:int) {\n///of p\n\nin p:f32[env]\n}\n",
        "/// one\n/// two\n// note\nagent A(\n  /// of h\n  h : int\n) {\n  /// of p\n  in p : f32[env]\n}\n",
    ),
    "quantities and signs": (
        "param m:bytes=4GiB\nparam f:fraction=50 %\nparam s:seconds=2\tms\n"
        "param n:int= - 1+ -( 2*-3 )\nparam b:bool=!  (a==b)&&c\n",
        "param m : bytes    = 4 GiB\nparam f : fraction = 50%\n"
        "param s : seconds  = 2 ms\nparam n : int      = -1 + -(2 * -3)\n"
        "param b : bool     = !(a == b) && c\n",
    ),
    "separators become lines, or commas": (
        "record R { a:int, bb:float, }\nworkflow w { mode=async {\n"
        "max_staleness=2\n}, sizing {\n objective=throughput\n} }\n",
        "record R {\n  a  : int\n  bb : float\n}\n\nworkflow w {\n  mode = async { max_staleness = 2 }\n"
        "  sizing { objective = throughput }\n}\n",
    ),
    "only comments": ("\n\n//a\n\n\n//b", "// a\n\n// b\n"),
    "nothing": ("\n\n", ""),
    "comments with a sign keep it": ("//!x\n//---\n//  two\n////\n", "//!x\n//---\n//  two\n////\n"),
}


@pytest.mark.parametrize(("before", "after"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_example(before, after):
    assert formatted(before) == after


def test_long_lists_are_filled_and_long_calls_broken():
    sizes = ", ".join(["1024"] * 30)
    text = formatted(f"agent a = p.A(hidden = [{sizes}], activation = elu)\n")
    assert text.split("\n")[:2] == ["agent a = p.A(", "  hidden = ["]
    assert all(len(line) <= WIDTH for line in text.split("\n"))
    assert text.count("\n") == 7  # 30 x "1024, " on lines of 16


def test_long_conditions_of_parameters_are_broken_before_where_and_then_before_operators():
    name = "x" * 18
    low, high = f"{name} >= 1000", f"{name} <= 65536"
    in_list = "agent A(\n  {} : int = 4096 where {},\n  b : int\n) {{}}\n"
    assert formatted(in_list.format(name, f"{low} && {high} && {name} != 77777")) == (
        f"agent A(\n  {name} : int = 4096\n    where {low} && {high} && {name} != 77777,\n  b : int\n) {{}}\n"
    )
    assert formatted(in_list.format(name, f"{low} && {high} || {low} && max({name})")) == (
        f"agent A(\n  {name} : int = 4096\n    where {low}\n      && {high}\n      || {low}\n      && max({name}),\n"
        "  b : int\n) {}\n"
    )


def test_a_long_condition_of_a_param_stays_on_its_line_unless_it_is_grouped():
    condition = " && ".join(["max(sizes) <= 65536"] * 5)
    assert formatted(f"param sizes : list(int) = [4] where {condition}\n").count("\n") == 1
    grouped = formatted(f"param sizes : list(int) = [4] where ({condition})\n")
    assert grouped == (
        "param sizes : list(int) = [4] where (\n  max(sizes) <= 65536\n" + "    && max(sizes) <= 65536\n" * 4 + ")\n"
    )


def test_a_line_of_exactly_the_width_is_not_broken():
    call = "agent a = p.A(name = {})"
    fitting = call.format("x" * (WIDTH - len(call) + 2))
    assert formatted(fitting + "\n") == fitting + "\n"
    longer = call.format("x" * (WIDTH - len(call) + 3))
    assert formatted(longer + "\n").count("\n") == 3


def test_carriage_returns_are_kept_and_made_uniform():
    assert formatted("edition 1\r\nparam a:int\n// end") == "edition 1\r\n\r\nparam a : int\r\n// end\r\n"


def test_a_file_with_syntax_errors_is_not_formatted():
    result = format_source(Source("test.gmi", "edition 1\nparam in : int\n"))
    assert result.text is None
    assert [d.code for d in result.diagnostics] == ["E0113"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda text: text.replace("1", "2"), "does not say the same"),
        (lambda text: text.replace("// why", ""), "comment"),
        (lambda text: text.replace("param", "parm"), "does not say the same"),
    ],
)
def test_a_formatter_that_damages_a_file_is_found_out(monkeypatch, broken, message):
    original = formatter.layout
    monkeypatch.setattr(formatter, "layout", lambda text, tokens: broken(original(text, tokens)))
    with pytest.raises(FormatterError, match=message):
        format_source(Source("test.gmi", "param a : int = 1 // why\n"))


def test_a_formatter_that_does_not_settle_is_found_out(monkeypatch):
    results = iter(["param a : int = 1\n", "param a : int =  1\n"])
    monkeypatch.setattr(formatter, "layout", lambda text, tokens: next(results))
    with pytest.raises(FormatterError, match="changes it again"):
        format_source(Source("test.gmi", "param a : int   = 1\n"))


@RELAXED
@given(programs())
def test_generated_programs_keep_their_meaning_and_settle(program):
    text = formatted(program)
    assert tree(text) == tree(program)
    assert formatted(text) == text


@RELAXED
@given(st.data(), programs())
def test_comments_and_line_ends_anywhere_are_kept(data, program):
    changed, comments = data.draw(relaid(program))
    assert tree(changed) == tree(program)
    text = formatted(changed)
    assert tree(text) == tree(program)
    assert [line for line in texts(text) if line.startswith("// ")] == comments


@RELAXED
@given(st.data(), st.sampled_from(FILES))
def test_comments_in_the_project_files_are_kept(data, path):
    original = path.read_text()
    changed, _ = data.draw(relaid(original))
    assert tree(formatted(changed)) == tree(original)
    assert texts(formatted(changed)) == texts(changed)
