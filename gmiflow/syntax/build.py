"""Parse tree to syntax tree, second half: statements and declarations, one function per rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lark import Tree

from gmiflow.source import Span
from gmiflow.syntax import ast
from gmiflow.syntax.build_expressions import (
    ExpressionBuilder,
    Node,
    as_tree,
    end_of,
    integer,
    start_of,
    subtrees,
    token_text,
    unquote,
    word,
)
from gmiflow.syntax.lexer import Token


class Builder(ExpressionBuilder):
    """Builds the declarations of one source."""

    def declaration(self, item: Tree[Token]) -> ast.Declaration:
        """The declaration of an `item` tree."""
        doc, tree, _ = item.children
        return _DECLARATIONS[as_tree(tree).data](self, as_tree(tree), self.doc(doc))

    # Declarations

    def edition(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Edition:
        """`edition 1`."""
        return ast.Edition(number=integer(token_text(tree.children[1])), doc=doc, span=self.span(tree))

    def import_module(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Import:
        """`import std.tasks.ant`."""
        _, path, _, alias = tree.children
        module = self.path(as_tree(path))
        return ast.Import(
            module=module, file=None, alias=self.optional_name(alias), doc=doc,
            span=self.span(tree), target_span=module.span,
        )  # fmt: skip

    def import_file(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Import:
        """`import "./nets.gmi" as nets`."""
        _, file, _, alias = tree.children
        file = cast("Token", file)
        return ast.Import(
            module=None, file=unquote(file.value), alias=self.optional_name(alias), doc=doc,
            span=self.span(tree), target_span=Span(self.source, start_of(file), end_of(file)),
        )  # fmt: skip

    def param(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Param:
        """`param name : type = default where condition`."""
        return self._parameter(as_tree(tree.children[1]), doc, self.span(tree))

    def _parameter(self, tree: Tree[Token], doc: ast.Doc | None, span: Span) -> ast.Param:
        name, _, type_, _, default, _, where = tree.children
        return ast.Param(
            name=self.name(name), type=self.type(type_), default=self.optional(default),
            where=self.optional(where), doc=doc, span=span,
        )  # fmt: skip

    def _parameters(self, node: Node) -> tuple[ast.Param, ...] | None:
        if node is None:
            return None
        found: list[ast.Param] = []
        for child in subtrees(as_tree(node)):
            doc, parameter = child.children
            tree = as_tree(parameter)
            found.append(self._parameter(tree, self.doc(doc), self.span(tree)))
        return tuple(found)

    def record(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Record:
        """`record Name { ... }`."""
        fields: list[ast.Field] = []
        for child in subtrees(tree):
            field_doc, name, _, type_ = child.children
            fields.append(
                ast.Field(name=self.name(name), type=self.type(type_), doc=self.doc(field_doc), span=self.span(child))
            )
        return ast.Record(name=self.name(tree.children[1]), fields=tuple(fields), doc=doc, span=self.span(tree))

    def stage_type(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.StageType:
        """`simulator Name(...) { ... }`."""
        role, name, params, body = tree.children
        return ast.StageType(
            role=word(role), name=self.name(name), params=self._parameters(params), body=self._body(body),
            doc=doc, span=self.span(tree),
        )  # fmt: skip

    def stage(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.StageInstance:
        """`simulator name = Type(...)`."""
        role, name, _, path, *rest, block = tree.children
        called = any(isinstance(child, Token) for child in rest)
        arguments = next((child for child in rest if isinstance(child, Tree)), None)
        return ast.StageInstance(
            role=word(role), name=self.name(name), type=self.path(as_tree(path)),
            arguments=self.arguments(arguments) if called else None, settings=self._block(block),
            doc=doc, span=self.span(tree),
        )  # fmt: skip

    def workflow(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Workflow:
        """`workflow name { ... }`."""
        _, name, body = tree.children
        return ast.Workflow(name=self.name(name), body=self._body(body), doc=doc, span=self.span(tree))

    def target(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Target:
        """`target name(...) { ... }`."""
        _, name, params, body = tree.children
        return ast.Target(
            name=self.name(name), params=self._parameters(params), body=self._body(body), doc=doc, span=self.span(tree)
        )

    # Statements

    def _body(self, node: Node) -> tuple[ast.Statement, ...]:
        found: list[ast.Statement] = []
        for member in subtrees(as_tree(node)):
            doc, statement = member.children
            tree = as_tree(statement)
            found.append(_STATEMENTS[tree.data](self, tree, self.doc(doc)))
        return tuple(found)

    def _block(self, node: Node) -> tuple[ast.Setting, ...] | None:
        return None if node is None else tuple(self.setting(child, None) for child in subtrees(as_tree(node)))

    def setting(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Setting:
        """`name = value`."""
        name, _, value, block = tree.children
        return ast.Setting(
            name=self.name(name), value=self.expression(value), block=self._block(block), doc=doc, span=self.span(tree)
        )

    def section(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Section:
        """`name { ... }`."""
        name, block = tree.children
        return ast.Section(name=self.name(name), settings=self._block(block) or (), doc=doc, span=self.span(tree))

    def port(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Port:
        """`in name : type`."""
        direction, name, _, type_, *attributes = tree.children
        bounds: tuple[ast.Expression, ast.Expression] | None = None
        optional = False
        for attribute in map(as_tree, attributes):
            if attribute.data == "port_range":
                bounds = (self.expression(attribute.children[1]), self.expression(attribute.children[3]))
            else:
                optional = True
        return ast.Port(
            direction=word(direction), name=self.name(name), type=self.type(type_), range=bounds, optional=optional,
            doc=doc, span=self.span(tree),
        )  # fmt: skip

    def edge(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Edge:
        """`a.x -> b.y`."""
        source, _, target, block = tree.children
        return ast.Edge(
            source=self._endpoint(as_tree(source)),
            target=self._endpoint(as_tree(target)),
            attributes=self._block(block),
            doc=doc,
            span=self.span(tree),
        )

    def _endpoint(self, tree: Tree[Token]) -> ast.Endpoint:
        names = [self.name(t) for t in tree.children if isinstance(t, Token) and t.type == "NAME"]
        ports = None if tree.data == "stage_endpoint" else tuple(names[1:])
        return ast.Endpoint(stage=names[0], ports=ports, braces=tree.data == "ports_endpoint", span=self.span(tree))

    def require(self, tree: Tree[Token], doc: ast.Doc | None) -> ast.Require:
        """`require condition else message`."""
        _, condition, _, message = tree.children
        text = unquote(token_text(message))
        return ast.Require(condition=self.expression(condition), message=text, doc=doc, span=self.span(tree))


_DECLARATIONS: dict[str, Callable[[Builder, Tree[Token], ast.Doc | None], ast.Declaration]] = {
    "edition": Builder.edition,
    "import_module": Builder.import_module,
    "import_file": Builder.import_file,
    "param": Builder.param,
    "record": Builder.record,
    "stage_type": Builder.stage_type,
    "stage": Builder.stage,
    "workflow": Builder.workflow,
    "target": Builder.target,
    "require": Builder.require,
}
_STATEMENTS: dict[str, Callable[[Builder, Tree[Token], ast.Doc | None], ast.Statement]] = {
    "setting": Builder.setting,
    "section": Builder.section,
    "port": Builder.port,
    "edge": Builder.edge,
    "require": Builder.require,
}
