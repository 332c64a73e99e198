"""From text to a syntax tree: the boundary where every reading and parsing mistake becomes a Diagnostic."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from lark import Tree
from lark.exceptions import UnexpectedToken

from gmiflow.diagnostics import Diagnostic
from gmiflow.source import Source, Span
from gmiflow.syntax import ast, lexer
from gmiflow.syntax.build import Builder
from gmiflow.syntax.build_expressions import ExpressionTooDeep, unknown_escapes
from gmiflow.syntax.lexer import Token

MAX_BYTES = 4 * 2**20
MAX_DECLARATIONS = 10_000


Known: TypeAlias = "dict[int, tuple[ast.Declaration, int]]"
"""Declarations without mistakes by the offset of their first token, with the offset where the next one may start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A part of a file that was parsed by itself (see `incremental`).

    Attributes:
        start, end: where it is in ``source``.
        items: the declarations in it, with spans in ``source``.
        reusable: nothing is to be said about it.
    """

    source: Source
    start: int
    end: int
    items: tuple[ast.Declaration, ...]
    reusable: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """A file's tree, as much of it as could be read, and what was wrong.

    Attributes:
        pieces: parts without mistakes, when they are kept for the next version of the file.
    """

    source: Source
    module: ast.Module
    diagnostics: tuple[Diagnostic, ...]
    pieces: tuple[Piece, ...] = field(default=(), compare=False, repr=False)


def read(path: Path, name: str) -> Source | Diagnostic:
    """Read a file as UTF-8 text; ``name`` is what messages call it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():  # a pipe would make it wait
            return Diagnostic(code="E0105", message=f"cannot read `{name}`: not a regular file", span=None)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        return Diagnostic(code="E0105", message=f"cannot read `{name}`: {reason}", span=None)
    if len(data) > MAX_BYTES:
        return Diagnostic(code="E0106", message=f"`{name}` is larger than {MAX_BYTES >> 20} MiB", span=None)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"`{name}` is not UTF-8 text (line {line}, byte {error.start} of the file)"
        return Diagnostic(code="E0105", message=message, span=None)
    return accept_text(text, name)


def accept_text(text: str, name: str) -> Source | Diagnostic:
    """Check text that is already in memory; a byte-order mark is dropped."""
    if len(text) > MAX_BYTES:
        return Diagnostic(code="E0106", message=f"`{name}` is larger than {MAX_BYTES >> 20} MiB", span=None)
    if "\0" in text:
        return Diagnostic(code="E0105", message=f"`{name}` is a binary file, not text", span=None)
    return Source(name, text.removeprefix("\ufeff"))


def parse(source: Source, known: Known | None = None) -> Parsed:
    """Parse a whole file.

    Args:
        source: the file.
        known: of a file that has mistakes, the declarations that have none.
    """
    whole = Span(source, 0, len(source.text))
    try:
        tokens = lexer.tokens(source.text)
    except (lexer.TooDeep, lexer.TooLong) as error:
        return Parsed(source=source, module=ast.Module(items=(), span=whole), diagnostics=(_refused(source, error),))
    diagnostics = wrong_escapes(source, tokens)
    trees: Sequence[Tree[Token] | ast.Declaration] = ()
    broken: frozenset[str] = frozenset()
    try:
        trees = cast("list[Tree[Token]]", feed(tokens, "start").children) if known is None else ()
    except UnexpectedToken:
        known = {}
    if known is not None:
        from gmiflow.syntax.recovery import recover  # only files with mistakes pay for loading it

        recovered = recover(source, tokens, known)
        trees, broken = recovered.trees, frozenset(recovered.broken)
        diagnostics += recovered.diagnostics
    if len(trees) > MAX_DECLARATIONS:
        message = f"{len(trees)} declarations; a file may have {MAX_DECLARATIONS}"
        diagnostics.append(Diagnostic(code="E0108", message=message, span=Span(source, 0, 0)))
        trees = trees[:MAX_DECLARATIONS]
    module = ast.Module(items=_build(source, trees, diagnostics), broken=broken, span=whole)
    return Parsed(source=source, module=module, diagnostics=tuple(diagnostics))


def _build(
    source: Source, trees: Sequence[Tree[Token] | ast.Declaration], diagnostics: list[Diagnostic]
) -> tuple[ast.Declaration, ...]:
    """The declarations of trees that are not built yet."""
    items: list[ast.Declaration] = []
    builder = Builder(source)
    for tree in trees:
        try:
            items.append(builder.declaration(tree) if isinstance(tree, Tree) else tree)
        except ExpressionTooDeep as error:
            diagnostics.append(_too_deep(error.span))
            builder = Builder(source)
    return tuple(items)


def parse_value(source: Source) -> ast.Expression | Diagnostic:
    """Parse one expression, as `--set` gives it."""
    whole = Span(source, 0, len(source.text))
    try:
        tokens = lexer.tokens(source.text)
        tree = feed(tokens, "value")
        return Builder(source).expression(tree.children[0])
    except (lexer.TooDeep, lexer.TooLong) as error:
        return _refused(source, error)
    except ExpressionTooDeep as error:
        return _too_deep(error.span)
    except UnexpectedToken as error:
        token = cast("Token", error.token)
        span = token_span(source, token) if token.type != "$END" else whole
        return Diagnostic(code="E0101", message=f"`{source.text.strip()}` is not a value", span=span)


def feed(tokens: list[Token], start: str) -> Tree[Token]:
    """Run the parser over tokens.

    Raises:
        UnexpectedToken: at the first token that does not fit; its `interactive_parser` knows what would.
    """
    state = cast("Any", lexer.parser()).parse_interactive(start=start)
    feed_token = cast("Callable[[Token], None]", state.parser_state.feed_token)
    try:
        for token in tokens:
            feed_token(token)
        return cast("Tree[Token]", state.feed_eof())
    except UnexpectedToken as error:
        error.interactive_parser = state
        raise


def token_span(source: Source, token: Token) -> Span:
    """The place of a token."""
    return Span(source, token.start_pos, token.end_pos)


def _refused(source: Source, error: lexer.TooDeep | lexer.TooLong) -> Diagnostic:
    if isinstance(error, lexer.TooDeep):
        return _too_deep(token_span(source, error.token))
    message = f"`{source.name}` has more than {lexer.MAX_TOKENS} words and signs"
    return Diagnostic(code="E0106", message=message, span=None)


def _too_deep(span: Span) -> Diagnostic:
    return Diagnostic(code="E0107", message=f"nested deeper than {lexer.MAX_NESTING} levels", span=span)


def wrong_escapes(source: Source, tokens: list[Token]) -> list[Diagnostic]:
    """What is to be said about the strings: escapes that there are not."""
    found: list[Diagnostic] = []
    for token in tokens:
        if token.type == "STRING" and "\\" in token.value:
            for offset in unknown_escapes(token.value):
                start = token.start_pos + offset
                found.append(
                    Diagnostic(
                        code="E0117",
                        message=f"unknown escape `{token.value[offset : offset + 2]}` in a string",
                        span=Span(source, start, start + 2),
                        notes=('the escapes are \\n, \\t, \\" and \\\\',),
                    )
                )
    return found
