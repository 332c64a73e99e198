"""Parsing again after an edit gives exactly what parsing everything gives: trees, places and diagnostics."""

import random
from collections.abc import Iterator

import pytest
from corpus import EVERYTHING, FILES, ROOT

from gmiflow.source import Source, Span
from gmiflow.syntax import ast, incremental, lexer, parser
from gmiflow.syntax.incremental import parse_again
from gmiflow.syntax.parser import Parsed, parse

BROKEN = sorted((ROOT / "tests" / "errors").glob("E01*.gmi"))
TEXTS = [EVERYTHING, *(path.read_bytes().decode("utf-8", "replace").removeprefix("\ufeff") for path in FILES + BROKEN)]
TEXTS = [text for text in TEXTS if len(text) < 6_000]
STRAY = (
    *'{}()[]",= \t\\x1',
    *("->", ".", "\r", "\n", "\r\n", "\u00e9\U0001f980", "///", "\n/// d\n", "  /// d\n", "// c\n", "\n//// c\n"),
    *("param", "\nparam p : int = 3\n", "param p : int = 3 /// d\n", '\nrequire 1 > 0 else "a\\q"\n', "require", "in"),
    *("\nsimulator", "\nworkflow w {\n", "\ntarget t {\n}\n", "import", "\n  param q : int\n", "\n/// d\n\n// c\n"),
)


def places(node: object) -> Iterator[tuple[str, int, int, str]]:
    """Every span in a tree: of what, from where to where, in which text."""
    if isinstance(node, tuple):
        for item in node:
            yield from places(item)
    elif hasattr(node, "__dataclass_fields__"):
        for name in node.__dataclass_fields__:
            value = getattr(node, name)
            if isinstance(value, Span):
                yield type(node).__name__, value.start, value.end, value.source.text
            else:
                yield from places(value)


def assert_same(found: Parsed, text: str) -> None:
    whole = parse(Source("a.gmi", text))
    assert found == whole, text  # the source, the trees and the diagnostics with their places
    assert found.module.broken == whole.module.broken, text
    assert list(places(found.module)) == list(places(whole.module)), text


def edited(text: str, numbers: random.Random) -> str:
    """A text after one edit of an editor: typed, pasted, removed, a line moved or doubled, another file."""
    place = numbers.randrange(len(text) + 1)
    lines = text.split("\n")
    here, there = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.choice(("type", "type", "type", "remove", "remove", "paste", "swap", "double", "open")):
        case "type":
            return text[:place] + numbers.choice(STRAY) + text[place:]
        case "remove":
            return text[:place] + text[place + numbers.randrange(1, 30) :]
        case "paste":
            other = numbers.choice(TEXTS)
            start = numbers.randrange(len(other) + 1)
            return text[:place] + other[start : start + numbers.randrange(300)] + text[place:]
        case "swap":
            lines[here], lines[there] = lines[there], lines[here]
        case "double":
            lines.insert(there, lines[here])
        case _:
            return numbers.choice(TEXTS)
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_edits_the_result_is_that_of_parsing_everything(seed):
    numbers = random.Random(seed)
    for _ in range(12):
        text, before = numbers.choice(TEXTS), None
        for _ in range(10):
            before = parse_again(Source("a.gmi", text), before)
            assert_same(before, text)
            text = edited(text, numbers)[:8_000]


def test_only_what_changed_is_parsed(monkeypatch):
    read: list[str] = []
    real = incremental.feed

    def counting(tokens, start):
        read.append(" ".join(token.value for token in tokens).strip())
        return real(tokens, start)

    monkeypatch.setattr(incremental, "feed", counting)
    monkeypatch.setattr(parser, "feed", counting)
    text = "edition 1\n\n/// About p.\nparam p : int = 1\n\nparam q : int = 2\n\nparam r : int = 3\n"
    first = parse_again(Source("a.gmi", text), None)
    assert len(read) == 4
    read.clear()
    changed = text.replace("= 2", "= 20")
    second = parse_again(Source("a.gmi", changed), first)
    assert read == ["param q : int = 20"]
    assert_same(second, changed)
    assert [item.span.text for item in second.module.items[2:]] == ["param q : int = 20", "param r : int = 3"]


def test_a_mistake_is_found_without_reading_the_other_declarations(monkeypatch):
    from gmiflow.syntax import recovery

    read: list[str] = []
    real = recovery.feed

    def counting(tokens, start):
        read.append(tokens[1].value)
        return real(tokens, start)

    text = "edition 1\nparam p : int = 1\nparam q : int = max(2)\n/// About r.\nparam r : int = 3\n"
    first = parse_again(Source("a.gmi", text), None)
    monkeypatch.setattr(recovery, "feed", counting)
    broken = text.replace("max(2)", "max(2")
    second = parse_again(Source("a.gmi", broken), first)
    assert read == ["q"]
    assert [d.code for d in second.diagnostics] == ["E0103"]
    assert_same(second, broken)
    assert [type(item) for item in second.module.items] == [ast.Edition, ast.Param, ast.Param]


def test_limits_of_a_whole_file_hold(monkeypatch):
    deep = f"edition 1\nparam p : int = {'(' * 101}1{')' * 101}\nparam q : int = 1\n"
    assert_same(parse_again(Source("a.gmi", deep), None), deep)
    monkeypatch.setattr(parser, "MAX_DECLARATIONS", 3)
    monkeypatch.setattr(incremental, "MAX_DECLARATIONS", 3)
    many = "edition 1\n" + "param p : int = 1\n" * 3
    found = parse_again(Source("a.gmi", many), None)
    assert [d.code for d in found.diagnostics] == ["E0108"]
    assert_same(found, many)
    monkeypatch.setattr(lexer, "MAX_TOKENS", 20)
    assert_same(parse_again(Source("a.gmi", many), None), many)
