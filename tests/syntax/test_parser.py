"""Syntax trees, spans, recovery, and the limits of a file."""

from dataclasses import fields, is_dataclass

import pytest
from corpus import EVERYTHING, FILES, texts

from gmiflow.source import Source
from gmiflow.syntax import ast, parser
from gmiflow.syntax.parser import MAX_BYTES, accept_text, parse, parse_value, read
from gmiflow.syntax.words import KEYWORDS


def parsed(text):
    return parse(Source("test.gmi", text))


def codes(text):
    return [(d.code, d.span.line) for d in parsed(text).diagnostics]


def value(text):
    return parse_value(Source("value", text))


def nodes(node):
    if isinstance(node, tuple):
        for item in node:
            yield from nodes(item)
    elif is_dataclass(node) and hasattr(node, "span"):
        yield node
        for field in fields(node):
            yield from nodes(getattr(node, field.name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_files_parse(path):
    assert parsed(path.read_text(encoding="utf-8")).diagnostics == ()


def test_everything_parses_to_what_it_says():
    result = parsed(EVERYTHING)
    assert result.diagnostics == ()
    kinds = [type(item).__name__ for item in result.module.items]
    assert kinds == [
        "Edition", "Import", "Import", "Param", "Param", "Param", "Param", "Param", "Param", "Param", "Require",
        "Record", "StageType", "StageInstance", "StageInstance", "Workflow", "Target",
    ]  # fmt: skip
    num_env = result.module.items[3]
    assert num_env.doc.lines == ("Environments", "over the whole run.")
    assert isinstance(num_env.type, ast.AutoType)
    assert num_env.default.value == 4096
    stage_type, sim, actor, workflow = result.module.items[12:16]
    assert [param.name.text for param in stage_type.params] == ["speed", "n"]
    assert stage_type.params[0].doc.lines == ("How fast.",)
    port = next(s for s in stage_type.body if isinstance(s, ast.Port))
    assert port.optional
    assert port.range[1].value == 1
    assert sim.settings[0].value.value == "/usr/bin/python3"
    assert actor.arguments is None
    edges = [s for s in workflow.body if isinstance(s, ast.Edge)]
    assert [(e.source.stage.text, e.target.stage.text) for e in edges] == [
        ("sim", "actor"), ("actor", "learner"), ("sim", "learner"), ("sim", "learner"),
    ]  # fmt: skip
    assert [p.text for p in edges[2].source.ports] == ["reward", "terminated"]
    assert edges[2].target.ports is None
    assert edges[1].attributes[0].value.value == 2


def test_spans_cover_the_text_of_their_node():
    module = parsed(EVERYTHING).module
    workflow = module.items[15]
    assert workflow.span.text.startswith("workflow train {")
    assert workflow.span.text.endswith("}")
    edge = next(s for s in workflow.body if isinstance(s, ast.Edge))
    assert edge.span.text.split() == ["sim.obs", "//", "still", "the", "same", "edge", "->", "actor.obs"]
    for node in nodes(module):
        assert 0 <= node.span.start <= node.span.end <= len(EVERYTHING)
        if isinstance(node, ast.Name):
            assert node.span.text == node.text
        if isinstance(node, ast.Constant):
            assert node.span.text == node.text


def test_equality_ignores_places():
    assert parsed("edition 1\n\n\nparam a : int = 1\n").module == parsed("edition 1\nparam   a:int=1").module
    assert parsed("edition 1\nparam a : int = 1\n").module != parsed("edition 1\nparam a : int = 2\n").module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", ("+", 1, ("*", 2, 3))),
        ("1 - 2 - 3", ("-", ("-", 1, 2), 3)),
        ("-1 * 2", ("*", ("-", 1), 2)),
        ("1 + 2 < 3 && true || false", ("||", ("&&", ("<", ("+", 1, 2), 3), True), False)),
        ("!true && false", ("&&", ("!", True), False)),
        ("8 / 4 / 2", ("/", ("/", 8, 4), 2)),
    ],
)
def test_precedence(text, expected):
    def shape(node):
        if isinstance(node, ast.Binary):
            return (node.operator, shape(node.left), shape(node.right))
        if isinstance(node, ast.Unary):
            return (node.operator, shape(node.operand))
        return node.value

    assert shape(value(text)) == expected


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [("4 GiB", 4, "GiB"), ("1.5e3ms", 1500.0, "ms"), ("50%", 50, "%"), ("2 GB/s", 2, "GB/s")],
)
def test_quantities(text, number, unit):
    node = value(text)
    assert (node.kind, node.value, node.unit) == ("quantity", number, unit)


@pytest.mark.parametrize("text", ["", "1 +", "(1", "a b", "1; 2", "param x : int = 1", "["])
def test_a_value_is_one_expression(text):
    assert value(text).code == "E0101"


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keywords_are_reserved(keyword):
    assert codes(f"edition 1\nparam {keyword} : int = 1\n") == [("E0113", 2)]
    assert parsed(f"edition 1\nparam {keyword}x : int = 1\n").diagnostics == ()


NAMED = {
    "parameter": "param {} : int = 1",
    "record": "record {} {{ x : f32[env] }}",
    "field": "record R {{ x : f32[env], {} : f32[env] }}",
    "stage type": "simulator {} {{ }}",
    "stage": "agent {} = ppo.Actor()",
    "workflow": "workflow {} {{ mode = sync }}",
    "target": "target {} {{ devices = 1 }}",
    "port": "agent A {{ in {} : f32[env] }}",
    "parameter of a type": "agent A({} : int = 1) {{ }}",
    "alias": "import std.targets as {}",
    "member": "param p : int = ppo.{}",
    "port of an edge": "workflow w {{ sim.{} -> actor.obs }}",
    "value": "param p : int = 1 + {}",
}


@pytest.mark.parametrize("place", NAMED)
@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_no_keyword_is_a_name_anywhere(keyword, place):
    text = "edition 1\n" + NAMED[place] + "\n"
    if place != "value" or keyword not in ("true", "false", "auto"):  # values themselves
        assert [line for _, line in codes(text.format(keyword))] == [2]
    assert parsed(text.format(f"{keyword}x")).diagnostics == ()


def test_four_mistakes_in_four_declarations():
    text = (
        "edition 1\nparam a : int = 1;\nparam b int = 2\nparam c : int = 3\nsimulater d = e()\ntarget f {\n  g : 1\n}\n"
    )
    assert codes(text) == [("E0115", 2), ("E0101", 3), ("E0101", 5), ("E0115", 7)]


def test_several_mistakes_in_one_body_and_the_rest_survives():
    text = "edition 1\nworkflow w {\n  a = 1\n  b : 2\n  c = 'x'\n  d.e => f.g\n  h = 3\n}\nparam p : int = 1\n"
    result = parsed(text)
    assert [(d.code, d.span.line) for d in result.diagnostics] == [("E0115", 4), ("E0115", 5), ("E0115", 6)]
    workflow, param = result.module.items[1:]
    assert [s.name.text for s in workflow.body] == ["a", "h"]
    assert param.name.text == "p"
    assert result.module.broken == {"w"}


def test_an_unclosed_bracket_spoils_only_its_declaration():
    text = "edition 1\nworkflow w {\n  a = max(1, 2\n  b = 3\n\nparam p : int = 1\nparam q : int = ]\n"
    assert codes(text) == [("E0103", 3), ("E0101", 7)]


def test_an_unclosed_bracket_hides_no_documentation_after_it():
    text = "edition 1\nsimulator s = T(a = 1\n\n/// About b.\n// A remark.\n/// More.\nparam b : int = 1\n"
    result = parsed(text)
    assert [d.code for d in result.diagnostics] == ["E0103"]
    assert result.module.items[-1].doc.lines == ("About b.", "More.")


def test_documentation_stays_with_its_declaration_after_a_mistake():
    result = parsed("edition 1\nparam a : = 1\n/// About b.\nparam b : int = 1\n")
    assert len(result.diagnostics) == 1
    assert result.module.items[1].doc.lines == ("About b.",)


def test_deep_nesting_is_one_diagnostic():
    for text in ("(" * 5000, "[" * 101, "!" * 5000 + "true", "-" * 101 + "1", "f(" * 101, " + ".join(["1"] * 300)):
        assert [d.code for d in parsed(f"edition 1\nparam a : int = {text}\n").diagnostics] == ["E0107"]
    assert [d.code for d in parsed("edition 1\n" + "a {" * 200).diagnostics] == ["E0107"]
    nested = "list(" * 150 + "int" + ")" * 150
    assert [d.code for d in parsed(f"edition 1\nparam a : {nested} = []\n").diagnostics] == ["E0107"]
    assert parsed("edition 1\nparam a : int = " + "(" * 90 + "1" + ")" * 90 + "\n").diagnostics == ()


def test_too_many_declarations(monkeypatch):
    assert parser.MAX_DECLARATIONS == 10_000
    monkeypatch.setattr(parser, "MAX_DECLARATIONS", 100)
    text = "edition 1\n" + "".join(f"param p{i} : int = 1\n" for i in range(100))
    result = parsed(text)
    assert [d.code for d in result.diagnostics] == ["E0108"]
    assert len(result.module.items) == 100


def test_files_that_are_no_text(tmp_path):
    cases = {
        "missing.gmi": None,
        "binary.gmi": b"\x00\x01\x02" * 100,
        "latin1.gmi": "edition 1 // größe".encode("latin-1"),
        "utf16.gmi": "edition 1\n".encode("utf-16"),
        "huge.gmi": b"/" * (MAX_BYTES + 1),
    }
    expected = {"huge.gmi": "E0106"}
    for name, content in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        result = read(tmp_path / name, name)
        assert result.code == expected.get(name, "E0105")
        assert name in result.message
    assert read(tmp_path, "folder").code == "E0105"
    (tmp_path / "bom.gmi").write_bytes(b"\xef\xbb\xbfedition 1\n")
    assert read(tmp_path / "bom.gmi", "bom.gmi").text == "edition 1\n"
    assert accept_text("x" * (MAX_BYTES + 1), "buffer").code == "E0106"


@pytest.mark.parametrize(
    "text",
    ["\n" * 200_000, "// x\n" * 50_000, " " * 500_000, '"' * 100_000, "a " * 50_000, "}\n" * 20_000, "\r" * 100_000,
     "1" * 100_000, "/// x\n" * 20_000, "param a : int = " + "9" * 10_000, "->\n" * 20_000, "é" * 50_000,
     "->\n" * 1_300_000, "workflow w {\n" + "  a = \n" * 100_000 + "}\n"],
)  # fmt: skip
@pytest.mark.timeout(120)
def test_odd_files_end_in_diagnostics(text):
    """Within the time that the mark allows, without a traceback, and with an end to the complaints."""
    assert len(parsed("edition 1\n" + text).diagnostics) <= 130


def test_text_without_final_newline_or_with_windows_line_ends():
    for text in texts():
        tree = parsed(text).module
        assert parsed(text.rstrip("\n")).module == tree
        assert parsed(text.replace("\n", "\r\n")).module == tree
        assert parsed(text.replace("  ", "\t")).module == tree
