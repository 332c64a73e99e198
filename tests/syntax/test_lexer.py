"""Tokens: keywords, numbers and quantities, newlines; and that Lark's own lexers see the same."""

import re
from functools import cache
from pathlib import Path

import pytest
from corpus import texts
from lark import Lark, Tree
from lark import Token as LarkToken
from lark.exceptions import UnexpectedInput, UnexpectedToken

from gmiflow import resources
from gmiflow.syntax import lexer, tables
from gmiflow.syntax.parser import feed
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS, TERMINALS, UNITS

TESTS = Path(__file__).parents[1]
CORPUS = sorted([*(TESTS / "conformance").rglob("*.gmi"), *(TESTS / "errors").rglob("*.gmi")])


def kinds(text):
    return [(token.type, token.value) for token in lexer.tokens(text) if token.type != "_NL"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3e-4", [("FLOAT", "3e-4")]),
        ("3E+10", [("FLOAT", "3E+10")]),
        ("0.99", [("FLOAT", "0.99")]),
        ("1.5e3", [("FLOAT", "1.5e3")]),
        ("4096", [("INT", "4096")]),
        ("4 GiB", [("QUANTITY", "4 GiB")]),
        ("4GiB", [("QUANTITY", "4GiB")]),
        ("2.5 GB/s", [("QUANTITY", "2.5 GB/s")]),
        ("3e-4 s", [("QUANTITY", "3e-4 s")]),
        ("50%", [("QUANTITY", "50%")]),
        ("3e", [("QUANTITY", "3e")]),
        ("1 max_staleness = 2", [("INT", "1"), ("NAME", "max_staleness"), ("_ASSIGN", "="), ("INT", "2")]),
        ("16 sim.obs", [("INT", "16"), ("NAME", "sim"), ("_DOT", "."), ("NAME", "obs")]),
        ("2 x -> y", [("INT", "2"), ("NAME", "x"), ("ARROW", "->"), ("NAME", "y")]),
        ("1 f(2)", [("INT", "1"), ("NAME", "f"), ("LPAR", "("), ("INT", "2"), ("RPAR", ")")]),
        ("64 else", [("INT", "64"), ("_ELSE", "else")]),
        ("-1 .. 1", [("MINUS", "-"), ("INT", "1"), ("DOTDOT", ".."), ("INT", "1")]),
        ("1..2", [("INT", "1"), ("DOTDOT", ".."), ("INT", "2")]),
        ("a->b", [("NAME", "a"), ("ARROW", "->"), ("NAME", "b")]),
        ("a-b", [("NAME", "a"), ("MINUS", "-"), ("NAME", "b")]),
        ("a==b", [("NAME", "a"), ("COMPARE", "=="), ("NAME", "b")]),
        ("a!=!b", [("NAME", "a"), ("COMPARE", "!="), ("BANG", "!"), ("NAME", "b")]),
        ("a / b // c", [("NAME", "a"), ("SLASH", "/"), ("NAME", "b")]),
        ("größe", [("NAME", "größe")]),
        ('"a\\"b"', [("STRING", '"a\\"b"')]),
        ("/// doc", [("DOC", "/// doc")]),
        ("//// no doc", []),
    ],
)
def test_tokens(text, expected):
    assert kinds(text) == expected


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keyword_is_a_word_of_its_own(keyword):
    assert kinds(keyword + "x") == [("NAME", keyword + "x")]
    assert kinds("x" + keyword) == [("NAME", "x" + keyword)]
    assert kinds(keyword + "_1") == [("NAME", keyword + "_1")]
    (kind, value), *rest = kinds(keyword)
    assert kind.strip("_").lower() == value == keyword
    assert not rest


def test_grammar_and_words_agree():
    grammar = resources.grammar_path().read_text(encoding="utf-8")
    lists = re.findall(r"\(\?!\(\?:([a-z|]+)\)\\b\)", grammar)
    assert [set(found.split("|")) for found in lists] == [KEYWORDS, KEYWORDS]
    terminals = {terminal.name for terminal in lexer.parser().terminals}
    assert not [name for name in terminals if name.startswith("__")]
    assert terminals | {"$END"} == set(TERMINALS)
    assert {name.strip("_").lower() for name in terminals} >= KEYWORDS
    assert DECLARATION_KEYWORDS < KEYWORDS


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_unit_is_one_token(unit):
    assert kinds(f"4 {unit}") == [("QUANTITY", f"4 {unit}")]
    assert kinds(f"4{unit}") == [("QUANTITY", f"4{unit}")]


def test_newlines_end_statements_only_where_they_can():
    text = "a = f(1,\n  2)\n\n\nb = [\n1\n]\nx {\n\n  c = 1,\n\n  d = 2\n}\ny\n  // comment\n  -> z"
    tokens = [token.type for token in lexer.tokens(text)]
    assert tokens.count("_NL") == 5  # after ), ], 2, } and at the end
    assert tokens[-1] == "_NL"


def test_line_ends_of_windows():
    text = "param a : int = 1\nparam b : int = 2\n"
    assert kinds(text) == kinds(text.replace("\n", "\r\n"))


class _Newlines:
    """The newline rule again, as a post-lexer for Lark."""

    always_accept = ("_NL",)

    def process(self, stream):
        opened, last = [], "_NL"
        for token in stream:
            if token.type == "_NL":
                if last in ("_NL", "LBRACE", "COMMA") or (opened and opened[-1] != "LBRACE"):
                    continue
            elif token.type in ("LPAR", "LSQB", "LBRACE"):
                opened.append(token.type)
            elif token.type in ("RPAR", "RSQB", "RBRACE") and opened:
                opened.pop()
            last = token.type
            yield token
        if last != "_NL":
            yield LarkToken("_NL", "")


def plain(node):
    if isinstance(node, Tree):
        return (str(node.data), [plain(child) for child in node.children])
    return None if node is None else (node.type, node.value)


def read_by_lark(kind, text):
    """Tree by one of Lark's own lexers, None for a text that it refuses."""
    try:
        return plain(_lark(kind).parse(text, start="start"))
    except UnexpectedInput:
        return None


@cache
def _lark(kind):
    return Lark(
        resources.grammar_path().read_text(encoding="utf-8"),
        parser="lalr",
        lexer=kind,
        start=list(tables.STARTS),
        keep_all_tokens=True,
        maybe_placeholders=True,
        postlex=_Newlines(),
    )


def read_by_gmiflow(text):
    try:
        return plain(feed(lexer.tokens(text), "start"))
    except (UnexpectedToken, lexer.TooDeep):
        return None


@pytest.mark.parametrize("kind", ["basic", "contextual"])
def test_larks_lexers_give_the_same_tree(kind):
    for text in texts():
        assert read_by_lark(kind, text) == read_by_gmiflow(text) is not None


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_larks_lexers_agree_on_the_corpus(path):
    """Well-formed or not: the basic and the contextual lexer and gmiflow's own give one tree, or all refuse."""
    text = path.read_bytes().decode("utf-8-sig")
    found = read_by_gmiflow(text)
    if path.stem.startswith("E0107"):  # Lark's lexers do not count
        return
    assert read_by_lark("basic", text) == found
    assert read_by_lark("contextual", text) == found


def test_serialised_tables_equal_the_grammar(tmp_path, monkeypatch):
    """A wheel's tables, the cache's, and the grammar itself parse alike; a damaged or foreign file is not used."""
    grammar = resources.grammar_path().read_text(encoding="utf-8")
    built = tables.build(grammar)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables.load()
    (cached,) = (tmp_path / "gmiflow").glob("*.tables")
    assert (tmp_path / "gmiflow").stat().st_mode & 0o077 == 0
    loaded = tables.load()
    packaged = tmp_path / "package"
    tables.write_tables(packaged / "gmi.tables")
    assert (packaged / "gmi.tables").read_bytes()[:32] == cached.read_bytes()[:32]
    assert [t.name for t in loaded.terminals] == [t.name for t in built.terminals]
    for text in texts():
        trees = []
        for lark in (built, loaded):
            state = lark.parse_interactive(start="start")
            for token in lexer.tokens(text):
                state.feed_token(token)
            trees.append(plain(state.feed_eof()))
        assert trees[0] == trees[1]
    cached.write_bytes(cached.read_bytes()[:100])
    assert tables.load().terminals
    cached.write_bytes(b"x" * 32 + b"not a pickle")
    assert tables.load().terminals


def test_a_cache_that_others_can_write_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "gmiflow").mkdir(mode=0o777)
    (tmp_path / "gmiflow").chmod(0o777)
    tables.load()
    assert not list((tmp_path / "gmiflow").iterdir())
