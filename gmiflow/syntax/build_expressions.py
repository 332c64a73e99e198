"""Parse tree to syntax tree, first half: names, types and expressions.

The parse tree keeps every token, so that a node's span runs from its first to its last character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from lark import Tree

from gmiflow.source import Source, Span
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token

MAX_DEPTH = 100
"""Deepest expression or type."""

Node: TypeAlias = "Tree[Token] | Token | None"
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class ExpressionTooDeep(Exception):
    """An expression or type is nested deeper than `MAX_DEPTH`."""

    def __init__(self, span: Span) -> None:
        super().__init__("nested too deeply")
        self.span = span


class ExpressionBuilder:
    """Builds the names, types and expressions of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._depth = 0

    def expression(self, node: Node) -> ast.Expression:
        """An expression."""
        tree = as_tree(node)
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:  # a value inside of `MAX_DEPTH` operators or brackets is the last
            raise ExpressionTooDeep(self.span(tree))
        try:
            return _EXPRESSIONS[tree.data](self, tree)
        finally:
            self._depth -= 1

    # Places

    def span(self, node: Tree[Token]) -> Span:
        """From the first to the last character of a tree."""
        return Span(self.source, start_of(node), end_of(node))

    def name(self, token: Node) -> ast.Name:
        """A name."""
        token = cast("Token", token)
        return ast.Name(text=token.value, span=Span(self.source, start_of(token), end_of(token)))

    def optional_name(self, token: Node) -> ast.Name | None:
        """A name, or None."""
        return None if token is None else self.name(token)

    def doc(self, node: Node) -> ast.Doc | None:
        """A documentation comment, or None."""
        if node is None:
            return None
        found = [t for t in as_tree(node).children if isinstance(t, Token) and t.type == "DOC"]
        lines = tuple(t.value[3:].removeprefix(" ").rstrip() for t in found)
        return ast.Doc(lines=lines, span=Span(self.source, start_of(found[0]), end_of(found[-1])))

    # Types

    def type(self, node: Node) -> ast.TypeExpression:
        """A type."""
        tree = as_tree(node)
        span = self.span(tree)
        match tree.data:
            case "auto_type":
                return ast.AutoType(inner=self.type(tree.children[1]), span=span)
            case "enum_type":
                members = tuple(self.name(child.children[0]) for child in subtrees(tree))
                return ast.EnumType(members=members, span=span)
            case "list_type":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise ExpressionTooDeep(span)
                item = self.type(tree.children[2])
                self._depth -= 1
                return ast.ListType(item=item, span=span)
            case _:
                path, dims = children_of(tree)
                sizes = None if dims is None else tuple(self.expression(child) for child in subtrees(as_tree(dims)))
                return ast.NamedType(path=self.path(as_tree(path)), dims=sizes, span=span)

    # Expressions

    def optional(self, node: Node) -> ast.Expression | None:
        """An expression, or None."""
        return None if node is None else self.expression(node)

    def path(self, tree: Tree[Token]) -> ast.Path:
        """`name` or `module.name`."""
        names = tuple(self.name(t) for t in tree.children if cast("Token", t).type == "NAME")
        return ast.Path(names=names, span=self.span(tree))

    def literal(self, tree: Tree[Token]) -> ast.Constant:
        """A number, quantity, string, truth value or `auto`."""
        token = cast("Token", tree.children[0])
        span = self.span(tree)
        text = token.value
        match token.type:
            case "INT":
                return ast.Constant(kind="int", value=integer(text), text=text, span=span)
            case "FLOAT":
                return ast.Constant(kind="float", value=float(text), text=text, span=span)
            case "QUANTITY":
                number, unit = _split_quantity(text)
                return ast.Constant(kind="quantity", value=number, unit=unit, text=text, span=span)
            case "STRING":
                return ast.Constant(kind="string", value=unquote(text), text=text, span=span)
            case "AUTO":
                return ast.Constant(kind="auto", value="auto", text=text, span=span)
            case _:
                return ast.Constant(kind="bool", value=text == "true", text=text, span=span)

    def binary(self, tree: Tree[Token]) -> ast.Binary:
        """`left operator right`."""
        left, operator, right = tree.children
        return ast.Binary(
            operator=token_text(operator),
            left=self.expression(left),
            right=self.expression(right),
            span=self.span(tree),
        )

    def unary(self, tree: Tree[Token]) -> ast.Unary:
        """`operator operand`."""
        operator, operand = tree.children
        return ast.Unary(operator=token_text(operator), operand=self.expression(operand), span=self.span(tree))

    def group(self, tree: Tree[Token]) -> ast.Group:
        """`(expression)`."""
        return ast.Group(inner=self.expression(tree.children[1]), span=self.span(tree))

    def call(self, tree: Tree[Token]) -> ast.Call:
        """`callee(arguments)`."""
        callee, *rest = tree.children
        arguments = next((child for child in rest if isinstance(child, Tree)), None)
        return ast.Call(callee=self.path(as_tree(callee)), arguments=self.arguments(arguments), span=self.span(tree))

    def arguments(self, node: Node) -> tuple[ast.Argument, ...]:
        """Arguments of a call; None stands for none."""
        if node is None:
            return ()
        found: list[ast.Argument] = []
        for child in subtrees(as_tree(node)):
            if child.data == "named_argument":
                name, _, value = child.children
                found.append(ast.Argument(name=self.name(name), value=self.expression(value), span=self.span(child)))
            else:
                value = self.expression(child)
                found.append(ast.Argument(name=None, value=value, span=value.span))
        return tuple(found)

    def list_of(self, tree: Tree[Token]) -> ast.ListOf:
        """`[a, b]`."""
        return ast.ListOf(items=tuple(self.expression(child) for child in subtrees(tree)), span=self.span(tree))

    def python_entry(self, tree: Tree[Token]) -> ast.PythonEntry:
        """`py "module:Class"`."""
        return ast.PythonEntry(text=unquote(token_text(tree.children[1])), span=self.span(tree))


_EXPRESSIONS: dict[str, Callable[[ExpressionBuilder, Tree[Token]], ast.Expression]] = {
    "path": ExpressionBuilder.path,
    "literal": ExpressionBuilder.literal,
    "binary": ExpressionBuilder.binary,
    "unary": ExpressionBuilder.unary,
    "group": ExpressionBuilder.group,
    "call": ExpressionBuilder.call,
    "list": ExpressionBuilder.list_of,
    "python_entry": ExpressionBuilder.python_entry,
}


def unknown_escapes(token: str) -> Iterator[int]:
    """Offsets, within a string token, of backslashes that start no escape."""
    index = 1
    while index < len(token) - 1:
        if token[index] == "\\":
            if token[index + 1] not in _ESCAPES:
                yield index
            index += 1
        index += 1


def unquote(token: str) -> str:
    """Content of a string token; an unknown escape stands for itself (the lexer's caller reports it)."""
    if "\\" not in token:
        return token[1:-1]
    parts: list[str] = []
    characters = iter(token[1:-1])
    for character in characters:
        if character == "\\":
            escaped = next(characters)
            parts.append(_ESCAPES.get(escaped, "\\" + escaped))
        else:
            parts.append(character)
    return "".join(parts)


def integer(text: str) -> int:
    """A whole number; one with thousands of digits is as good as its first 400, both are out of every range."""
    return int(text[:400])


def _split_quantity(text: str) -> tuple[int | float, str]:
    """Number and unit of a quantity token."""
    found = _NUMBER.match(text)
    number = found.group() if found else ""
    return (integer(number) if number.isdecimal() else float(number)), text[len(number) :].strip()


def children_of(node: Node) -> list[Node]:
    """Children of a tree; None stands for an optional part that is not there."""
    return cast("list[Node]", as_tree(node).children)


def as_tree(node: Any) -> Tree[Token]:  # noqa: ANN401 - Lark's children are not typed
    """A child that the grammar says is a tree."""
    return cast("Tree[Token]", node)


def subtrees(tree: Tree[Token]) -> Iterator[Tree[Token]]:
    """The children that are trees."""
    return (child for child in tree.children if isinstance(child, Tree))


def token_text(node: Node) -> str:
    """Text of a child that the grammar says is a token."""
    return cast("Token", node).value


def word(node: Node) -> Any:  # noqa: ANN401 - the grammar admits only the literals of the field
    """Text of a rule that holds one keyword."""
    return cast("Token", as_tree(node).children[0]).value


def start_of(node: Node) -> int:
    """Offset of the first character."""
    while not isinstance(node, Token):
        for child in children_of(node):
            if child is not None:
                node = child
                break
    return node.start_pos


def end_of(node: Node) -> int:
    """Offset after the last character."""
    while not isinstance(node, Token):
        for child in reversed(children_of(node)):
            if child is not None:
                node = child
                break
    return node.end_pos
