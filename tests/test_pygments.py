"""The Pygments lexer sees what the parser's lexer sees, on every `.gmi` file and on generated programs."""

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String

from gmiflow.pygments_lexer import GmiLexer
from gmiflow.source import Source
from gmiflow.syntax import lexer
from gmiflow.syntax.comments import places
from gmiflow.syntax.parser import parse, read
from gmiflow.syntax.words import DECLARATION_KEYWORDS, KEYWORDS, UNITS
from tests.syntax.programs import programs

ROOT = Path(__file__).parents[1]


def parses(path: Path) -> bool:
    """Whether the syntax and the units are right: a number with an unknown unit is marked as an error."""
    source = read(path, path.name)
    if not isinstance(source, Source) or parse(source).diagnostics:
        return False
    quantities = [token.value for token in lexer.raw_tokens(source.text) if token.type == "QUANTITY"]
    return all(re.sub(r"^[\d.]+(?:[eE][+-]?\d+)?[ \t]*", "", value) in UNITS for value in quantities)


FILES = [
    path
    for folder in ("stdlib", "examples", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.gmi"))
    if parses(path)
]

KINDS = {"INT": Number.Integer, "FLOAT": Number.Float, "QUANTITY": Number, "STRING": String.Double, "DOC": String.Doc}
PUNCTUATION = {"LBRACE", "RBRACE", "LPAR", "RPAR", "LSQB", "RSQB", "COMMA", "COLON", "_DOT"}


def expected_kind(token, previous):
    """Pygments' kind of a token of the parser's lexer."""
    if token.type == "STRING" and previous == "_PY":
        return Name.Class
    if token.type in KINDS:
        return KINDS[token.type]
    if token.value in ("true", "false", "auto"):
        return Keyword.Constant
    if token.value in DECLARATION_KEYWORDS:
        return Keyword.Declaration
    if token.value in KEYWORDS:
        return Keyword
    return Punctuation if token.type in PUNCTUATION else Operator


def compare(text: str) -> None:
    found = {start: (kind, value) for start, kind, value in GmiLexer().get_tokens_unprocessed(text)}
    assert "".join(value for _, value in found.values()) == text
    assert Error not in {kind for kind, _ in found.values()}
    previous = ""
    for token in lexer.raw_tokens(text):
        if token.type == "_NL":
            continue
        kind, value = found[token.start_pos]
        if token.type == "NAME":
            # A name of the language (a type, an axis, a function) is still one whole name.
            assert kind in Name or kind is Keyword.Type, token
            assert value == token.value
        else:
            expected = expected_kind(token, previous)
            assert kind is expected or (token.type == "QUANTITY" and kind in Number), token
        previous = token.type
    for start, _ in places(text):
        assert found[start][0] is Comment.Single


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_of_the_project(path):
    source = read(path, path.name)
    assert isinstance(source, Source)
    compare(source.text)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=30)
@given(programs())
def test_generated_programs(program):
    compare(program)


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_unit_is_marked(unit):
    kinds = [kind for _, kind, value in GmiLexer().get_tokens_unprocessed(f"4 {unit}") if value.strip()]
    assert kinds == [Number, Keyword.Type]


def test_the_entry_point_names_the_lexer():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    value = project["entry-points"]["pygments.lexers"]["gmiflow"]
    assert EntryPoint("gmiflow", value, "pygments.lexers").load() is GmiLexer
