"""From a parse tree to the pieces of a layout: which spaces, which columns, and where each comment belongs.

One function per rule of the grammar that is more than its parts with spaces between them. Comments go to
the largest thing that starts or ends where they stand: a comment above a statement to the statement, one
behind its last token to the end of its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

from lark import Tree

from gmiflow.syntax.comments import Before, CommentLine, Comments
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.pieces import SPACE, Block, Brackets, Item, Piece, Row, Space, Word, flat

Child: TypeAlias = "Tree[Token] | Token"
Pieces: TypeAlias = "tuple[Piece, ...]"
RowRule: TypeAlias = "Callable[[Arranger, Tree[Token]], tuple[list[Pieces], Pieces]]"
PieceRule: TypeAlias = "Callable[[Arranger, Tree[Token]], Pieces]"

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)[ \t]*(.+)")
_TOP_OF_FILE = frozenset(("edition", "import"))
_SPACES = {"_WHERE": Space.CONDITION, "AND": Space.OPERAND, "OR": Space.OPERAND}
_DOCUMENTATION = frozenset(("doc", "parameter_doc"))


@dataclass(frozen=True, slots=True)
class _Element:
    """A tree between separators, with the comments around it."""

    tree: Tree[Token]
    before: Before
    behind: str | None


class Arranger:
    """Arranges the declarations of one file; every comment is used once."""

    def __init__(self, comments: Comments) -> None:
        self._comments = comments

    def file(self, tree: Tree[Token], length: int) -> tuple[tuple[Row, ...], Before]:
        """The rows of a whole file of ``length`` code points, and the comments at its end."""
        rows: list[Row] = []
        previous = ""
        for item in _trees(tree):
            declaration = _without_documentation(item)[0]
            before, behind = self._around(declaration)
            kind = _group_of(declaration)
            apart = kind == "body" or previous == "body" or (previous in _TOP_OF_FILE and kind != previous)
            rows.append(self._row(cast("Tree[Token]", declaration), before, behind, apart=apart))
            previous = kind
        return tuple(rows), self._comments.before(length)

    # Rows

    def _row(self, tree: Tree[Token], before: Before, behind: str | None, *, apart: bool = False) -> Row:
        cells, rest = self._ROWS.get(str(tree.data), Arranger._plain)(self, tree)
        texts: list[str] = []
        for cell in cells:
            text = flat(cell)
            if text is None:
                joined = tuple(piece for part in cells for piece in (*part, SPACE))
                return Row(kind="", cells=(), rest=(*joined, *rest), before=before, behind=behind, apart=apart)
            texts.append(text)
        return Row(kind=str(tree.data), cells=tuple(texts), rest=rest, before=before, behind=behind, apart=apart)

    def _plain(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        return [], self._spaced(_children(tree))

    def _param(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        """`param name : type = default where condition`."""
        keyword, parameter = _children(tree)
        name, colon, type_, *rest = _children(parameter)
        first = self._spaced((keyword, name))
        if rest and _is(rest[0], "_ASSIGN"):
            return [first, self._spaced((colon, type_))], self._spaced(rest)
        return [first], self._spaced((colon, type_, *rest))

    def _field(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        name, *rest = _without_documentation(tree)
        return [self._pieces(name)], self._spaced(rest)

    def _setting(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        name, *rest = _children(tree)
        return [self._pieces(name)], self._spaced(rest)

    def _port(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        direction, name, *rest = _children(tree)
        return [self._pieces(direction), self._pieces(name)], self._spaced(rest)

    def _edge(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        source, *rest = _children(tree)
        cell, pieces = self._pieces(source), self._spaced(rest)
        arrow = cast("Word", pieces[0])
        if arrow.before.lines:
            return [], (*cell, SPACE, *pieces)
        return [cell], pieces

    def _stage(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        role, name, assign, path, *rest = _children(tree)
        pieces = self._spaced((assign, path))
        if rest and _is(rest[0], "LPAR"):
            closing = next(i for i, child in enumerate(rest) if _is(child, "RPAR"))
            pieces += self._brackets(rest[: closing + 1])
            rest = rest[closing + 1 :]
        if rest:
            pieces += (SPACE, *self._spaced(rest))
        return [self._pieces(role), self._pieces(name)], pieces

    def _record(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        keyword, name, *braced = _children(tree)
        return [], (*self._spaced((keyword, name)), SPACE, self._block(braced, body=True))

    def _named_body(self, tree: Tree[Token]) -> tuple[list[Pieces], Pieces]:
        """A stage type, workflow or target: `keyword name(parameters) { ... }`."""
        keyword, name, *parameters, body = _children(tree)
        pieces = self._spaced((keyword, name))
        for child in parameters:
            pieces += self._pieces(child)
        return [], (*pieces, SPACE, self._block(_children(body), body=True))

    # Pieces

    def _pieces(self, node: Child) -> Pieces:
        if isinstance(node, Token):
            return (self._word(node),)
        return self._PIECES.get(str(node.data), Arranger._spaced_tree)(self, node)

    def _word(self, token: Token) -> Word:
        start = token.start_pos
        text = token.value
        if token.type == "QUANTITY" and (found := _QUANTITY.fullmatch(text)):
            number, unit = found.groups()
            text = f"{number}%" if unit == "%" else f"{number} {unit}"
        return Word(text=text, before=self._comments.before(start), behind=self._comments.behind(start))

    def _spaced(self, nodes: Sequence[Child]) -> Pieces:
        """The nodes with spaces between them."""
        pieces: list[Piece] = []
        for node in nodes:
            space = _SPACES.get(node.type, SPACE) if isinstance(node, Token) else SPACE
            pieces += [space, *self._pieces(node)] if pieces else self._pieces(node)
        return tuple(pieces)

    def _spaced_tree(self, tree: Tree[Token]) -> Pieces:
        return self._spaced(_children(tree))

    def _tight(self, tree: Tree[Token]) -> Pieces:
        return tuple(piece for child in _children(tree) for piece in self._pieces(child))

    def _bracketed(self, tree: Tree[Token]) -> Pieces:
        return self._brackets(_children(tree))

    def _called(self, tree: Tree[Token]) -> Pieces:
        """`name(arguments)`, and the types that look like it."""
        name, *rest = _children(tree)
        return (*self._pieces(name), *self._brackets(rest))

    def _ports(self, tree: Tree[Token]) -> Pieces:
        stage, dot, *braced = _children(tree)
        return (*self._pieces(stage), *self._pieces(dot), *self._brackets(braced))

    def _block_tree(self, tree: Tree[Token]) -> Pieces:
        return (self._block(_children(tree), body=False),)

    def _documented_parameter(self, tree: Tree[Token]) -> Pieces:
        return self._pieces(_without_documentation(tree)[0])

    def _brackets(self, children: Sequence[Child]) -> Pieces:
        opening, *inside, closing = children
        first = self._word(cast("Token", opening))
        elements, last = self._elements(inside, cast("Token", closing))
        items = tuple(
            Item(pieces=self._pieces(element.tree), before=element.before, behind=element.behind)
            for element in elements
        )
        nested = any(isinstance(piece, Brackets) for item in items for piece in item.pieces)
        named = any(child.tree.data in ("named_argument", "documented_parameter") for child in elements)
        return (Brackets(open=first, items=items, close=last, fill=not (nested or named)),)

    def _block(self, children: Sequence[Child], *, body: bool) -> Block:
        opening, *inside, closing = children
        first = self._word(cast("Token", opening))
        elements, last = self._elements(inside, cast("Token", closing))
        rows = tuple(
            self._row(cast("Tree[Token]", _statement(element.tree)), element.before, element.behind)
            for element in elements
        )
        return Block(open=first, rows=rows, close=last, body=body)

    def _elements(self, children: Sequence[Child], closing: Token) -> tuple[list[_Element], Word]:
        """Elements between commas, and the closing bracket.

        A comment behind or before a comma stays with the element before it where that has none, and
        goes above the next otherwise.
        """
        found: list[_Element] = []
        moved: tuple[CommentLine, ...] = ()
        for child in _split_arguments(children):
            if isinstance(child, Token) and child.type == "COMMA":
                comma = self._word(child)
                behind = found[-1].behind
                if comma.behind and (behind or comma.before.lines):
                    comma_lines = (*comma.before.lines, CommentLine(comma.behind, False, False))
                else:
                    comma_lines = comma.before.lines
                    found[-1] = _Element(found[-1].tree, found[-1].before, behind or comma.behind)
                moved += comma_lines
                continue
            before, behind = self._around(_statement(child))
            tree = child if isinstance(child, Tree) else Tree("word", [child])
            found.append(_Element(tree, Before((*moved, *before.lines), before.blank), behind))
            moved = ()
        last = self._word(closing)
        lines = Before((*moved, *last.before.lines), last.before.blank)
        return found, Word(text=last.text, before=lines, behind=last.behind)

    def _around(self, node: Child) -> tuple[Before, str | None]:
        """Take the comments above the first and behind the last token of a node."""
        first, last = node, node
        while isinstance(first, Tree):
            first = _without_documentation(first)[0]
        while isinstance(last, Tree):
            last = _children(last)[-1]
        before = self._comments.before(first.start_pos)
        return before, self._comments.behind(last.start_pos)

    # The rules, by the grammar's names

    _ROWS: ClassVar[dict[str, RowRule]] = {
        "param": _param,
        "field": _field,
        "setting": _setting,
        "port": _port,
        "edge": _edge,
        "stage": _stage,
        "record": _record,
        "stage_type": _named_body,
        "workflow": _named_body,
        "target": _named_body,
    }
    _PIECES: ClassVar[dict[str, PieceRule]] = {
        "path": _tight,
        "unary": _tight,
        "named_type": _tight,
        "port_endpoint": _tight,
        "call": _called,
        "enum_type": _called,
        "list_type": _called,
        "ports_endpoint": _ports,
        "list": _bracketed,
        "group": _bracketed,
        "dims": _bracketed,
        "parameters": _bracketed,
        "block": _block_tree,
        "documented_parameter": _documented_parameter,
    }


def _children(node: Child) -> list[Child]:
    """What was written: no placeholders, no line ends."""
    children = cast("list[Child | None]", cast("Tree[Token]", node).children)
    return [child for child in children if child is not None and (isinstance(child, Tree) or child.type != "_NL")]


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in _children(tree) if isinstance(child, Tree)]


def _without_documentation(tree: Child) -> list[Child]:
    return [child for child in _children(tree) if not (isinstance(child, Tree) and child.data in _DOCUMENTATION)]


def _statement(node: Child) -> Child:
    """The statement of a `member`; other nodes are what they are."""
    if isinstance(node, Tree) and node.data == "member":
        return _without_documentation(node)[0]
    return node


def _split_arguments(children: Sequence[Child]) -> list[Child]:
    """The children, those of an `arguments` tree in its place."""
    found: list[Child] = []
    for child in children:
        found += _children(child) if isinstance(child, Tree) and child.data == "arguments" else [child]
    return found


def _is(child: Child, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


def _group_of(declaration: Child) -> str:
    kind = str(cast("Tree[Token]", declaration).data)
    if kind in ("record", "stage_type", "workflow", "target"):
        return "body"
    return "import" if kind.startswith("import") else kind
