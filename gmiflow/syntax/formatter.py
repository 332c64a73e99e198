"""The formatter: one way to write each file. There are no options.

Two spaces of indentation, lines of at most 100 columns where () and [] allow it, names, types, `=`, `:` and
`->` in columns inside a block, one blank line at most, and one around everything in braces. Comments stay
where they are. Nothing is returned unless the result says the same as the input, a second run changes
nothing, and no comment is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from gmiflow.diagnostics import Diagnostic
from gmiflow.source import Source
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.arrange import Arranger
from gmiflow.syntax.comments import Comments, texts
from gmiflow.syntax.incremental import parse_again
from gmiflow.syntax.layout import Writer
from gmiflow.syntax.parser import Parsed, feed, parse


class FormatterError(Exception):
    """The formatter would have changed more than the layout: a mistake in gmiflow, never in the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Formatted:
    """The result for one file.

    Attributes:
        text: the formatted text; None when the file has syntax errors.
        diagnostics: the syntax errors.
    """

    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()


def format_source(source: Source) -> Formatted:
    """Format a file and prove that only its layout changed.

    Line ends are those of the file's first line.

    Raises:
        FormatterError: the proof failed.
    """
    return format_parsed(parse(source))


def format_parsed(before: Parsed, *, twice: bool = True) -> Formatted:
    """As `format_source`, for a file that is parsed already.

    Args:
        before: the file.
        twice: prove that a second run changes nothing, too; an editor has no time for that.

    Raises:
        FormatterError: the proof failed.
    """
    if before.diagnostics:
        return Formatted(text=None, diagnostics=before.diagnostics)
    source = before.source
    tokens = lexer.raw_tokens(source.text)
    text = layout(source.text, tokens)
    if text == source.text:
        return Formatted(text=text)
    after = parse_again(Source(source.name, text), before)
    if after.diagnostics or not says_the_same(after.module, before.module):
        raise FormatterError("the formatted text does not say the same")
    tokens_after = lexer.raw_tokens(text)
    if texts(text, tokens_after) != texts(source.text, tokens):
        raise FormatterError("a comment was lost or moved past another")
    if twice and layout(text, tokens_after) != text:
        raise FormatterError("formatting the formatted text changes it again")
    return Formatted(text=text)


def layout(text: str, tokens: list[lexer.Token]) -> str:
    """The formatted text of a file without syntax errors, without any proof.

    Args:
        text: of the file.
        tokens: its `raw_tokens`.
    """
    newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    comments = Comments(text, tokens)
    tree = feed(lexer.significant(tokens, len(text)), "start")
    rows, end = Arranger(comments).file(tree, len(text))
    if comments.left:
        raise FormatterError(f"no place for the comment {comments.left[0]!r}")
    writer = Writer()
    writer.rows(rows, 0)
    writer.comments(end, 0, first=not rows)
    while writer.lines and not writer.lines[-1]:
        writer.lines.pop()
    return "".join(line + newline for line in writer.lines)


def says_the_same(one: ast.Module, other: ast.Module) -> bool:
    """Whether two files differ in nothing but layout, and the spelling of quantities."""
    return one == other or meaning(one) == meaning(other)


def meaning(node: Any) -> Any:  # noqa: ANN401 - any part of a tree
    """A part of a syntax tree as nested tuples, without spans and without the spelling of quantities."""
    if isinstance(node, tuple):
        return tuple(meaning(item) for item in node)  # type: ignore[reportUnknownVariableType]
    if isinstance(node, ast.Constant) and node.kind == "quantity":
        return ("quantity", repr(node.value), node.unit)
    if is_dataclass(node):
        compared = (getattr(node, field.name) for field in fields(node) if field.compare)
        return (type(node).__name__, *(meaning(value) for value in compared))
    return node
