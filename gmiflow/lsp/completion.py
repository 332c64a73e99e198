"""Completion: from the place of the cursor to what can be written there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lsprotocol import types

from gmiflow.lsp import candidates, neighbours
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.candidates import functions, item, keywords
from gmiflow.lsp.completion_edges import Tokens, edge_end, ports
from gmiflow.lsp.completion_modules import declared, modules
from gmiflow.lsp.completion_words import strings, units
from gmiflow.lsp.context import (
    Context,
    Frame,
    context_at,
    is_stage_declaration,
    table_of,
    trailing_path,
    type_is_due,
)
from gmiflow.lsp.indexing import SECTIONS, TABLES
from gmiflow.lsp.symbols import resolve_names
from gmiflow.lsp.vocabulary import spec_of
from gmiflow.passes.imports import Named, Unit
from gmiflow.syntax import ast
from gmiflow.syntax.words import ROLES

TRIGGERS = (".", "=", ">", "(", ",", "[", ":", "/", '"', " ", "{")

_OF_CONDITIONS = frozenset(("COMPARE", "AND", "OR", "BANG"))
_WHOLE_NUMBER = re.compile(r":\s*(?:auto\s+)?int\b")
_ENUM = re.compile(r"\benum\s*\(([^)]*)\)")


def completions(analysis: Analysis, position: types.Position) -> list[types.CompletionItem]:
    """What can be written at a position, the likeliest first."""
    offset = analysis.document.lines.offset(position)
    context = context_at(analysis, offset)
    if context.inside == "string":
        return strings(analysis, context, offset)
    if context.inside == "nothing":
        return units(analysis, offset)
    if context.inside == "comment" or analysis.unit is None:
        return []
    return [*units(analysis, offset), *_Completer(analysis, analysis.unit, context).items()]


class _Completer:
    """Completion of code at one place."""

    def __init__(self, analysis: Analysis, unit: Unit, context: Context) -> None:
        self._analysis = analysis
        self._unit = unit
        self._context = context
        self._frame = context.frames[-1] if context.frames else None

    def items(self) -> list[types.CompletionItem]:
        """Candidates in this place."""
        context = self._context
        found = list(self._candidates()) if context.accepts_name or self._is_bare_word() else []
        if context.previous == "_DOT":
            return found
        offered = {candidate.label for candidate in found}
        return found + keywords(context.keywords - offered - self._unwanted())

    def _is_bare_word(self) -> bool:
        return bool(self._context.statement) and self._context.statement[-1].type in ("ARROW", "_DOT")

    def _unwanted(self) -> set[str]:
        """Keywords that the grammar takes here and no check would; the words of a type are among the candidates."""
        head = self._context.statement
        unwanted: set[str] = set() if type_is_due(head) else {"auto", "py"}
        if type_is_due(head) and (head[0].value in ("in", "out") or self._context.declaration == "record"):
            unwanted |= {"auto", "enum", "list"}  # of parameters alone
        if not any(token.type in _OF_CONDITIONS or token.value in ("where", "require") for token in head):
            unwanted |= {"true", "false"}
        if table_of(self._context.frames) != "stage type" and not head:
            unwanted |= {"in", "out"}
        if any(isinstance(node, ast.Edition) for node in self._analysis.items):
            unwanted |= {"edition"}
        return unwanted

    def _candidates(self) -> Iterable[types.CompletionItem]:
        context, frame = self._context, self._frame
        head = context.statement
        if frame is None:
            return self._in_declaration(head)
        if frame.bracket == "LBRACE":
            return self._in_braces(head)
        if frame.bracket == "LPAR":
            return self._in_parentheses(frame, head)
        return self._in_shape() if self._is_type(frame.head) else self._expression(head)

    # Outside of brackets

    def _in_declaration(self, head: Tokens) -> Iterable[types.CompletionItem]:
        if not head:
            return ()
        keyword = head[0].value
        if keyword == "import":
            return modules(head)
        if is_stage_declaration(head):
            return self._declared(head, ast.StageType, keyword)
        if keyword == "param" and type_is_due(head):
            return candidates.value_types()
        if keyword == "param" and any(token.type == "_ASSIGN" for token in head):
            return [*self._param_words(head), *self._expression(head)]
        return self._expression(head) if keyword == "require" or (keyword == "param" and len(head) > 1) else ()

    def _param_words(self, head: Tokens) -> Iterator[types.CompletionItem]:
        """Members of the type of the parameter that is being written."""
        index = next(i for i, token in enumerate(head) if token.type == "_ASSIGN")
        if head[-1].type != "_ASSIGN":
            return
        words = [token.value for token in head[:index]]
        if "enum" in words:
            first, last = head[words.index("enum")].end_pos, head[index].start_pos
            for token in self._analysis.tokens:  # what is in brackets is no part of the statement
                if first <= token.start_pos < last and token.type in ("NAME", "AUTO"):
                    yield item(token.value, types.CompletionItemKind.EnumMember, 0)
        if "auto" in words[:4]:
            yield from keywords(("auto",), 0)
        if "bool" in words:
            yield from keywords(("true", "false"), 0)

    # In { }

    def _in_braces(self, head: Tokens) -> Iterable[types.CompletionItem]:
        frames = self._context.frames
        opener = frames[-1].head
        if opener and opener[-1].type == "_DOT" and len(opener) >= 2:  # stage.{port, port}
            stage, taken = opener[-2].value, self._context.names
            return ports(self._analysis, self._unit, self._context, stage, opener[:-2], taken)
        keyword = frames[0].head[0].value if frames[0].head else ""
        table = table_of(frames)
        equals = next((i for i, token in enumerate(head) if token.type == "_ASSIGN"), None)
        if equals is not None:
            return self._setting_value(table, head[0].value, head[equals + 1 :])
        if keyword == "record" or (head and head[0].value in ("in", "out")):
            return self._data_types(head)
        if table == "workflow" and head and head[0].value != "require":
            return edge_end(self._analysis, self._unit, self._context)
        if head:
            return self._expression(head) if head[0].value == "require" else ()
        return self._statement(table)

    def _data_types(self, head: Tokens) -> Iterable[types.CompletionItem]:
        if type_is_due(head):
            return [*candidates.data_types(), *declared(self._analysis, self._unit, ast.Record)]
        return self._members(head, (ast.Record,))

    def _statement(self, table: str) -> Iterator[types.CompletionItem]:
        """What a statement may start with."""
        written = neighbours.assigned(self._analysis, self._context)
        if table == "place":
            stages = candidates.names(self._unit, (ast.StageInstance,), 0)
            yield from (stage for stage in stages if stage.label not in written)
        yield from candidates.settings(TABLES.get(table, {}), table, written)
        yield from candidates.sections(table, SECTIONS.get(table, ()), written)
        if table == "workflow":
            yield from candidates.names(self._unit, (ast.StageInstance,), 1)

    def _setting_value(self, table: str, name: str, value: Tokens) -> Iterable[types.CompletionItem]:
        spec = spec_of(table, name)
        if table == "target" and name == "base":
            own = [token.value for token in self._context.frames[0].head[1:2]]
            return [found for found in self._declared(value, ast.Target) if found.label not in own]
        words = list(candidates.values(spec.type if spec is not None else None)) if not value else []
        closed = spec is not None and spec.type.kind in ("enum", "bool", "python", "devices")
        return words if closed and not value else [*words, *self._expression(value)]

    # In ( ) and [ ]

    def _in_parentheses(self, frame: Frame, head: Tokens) -> Iterable[types.CompletionItem]:
        opener = frame.head
        if opener and opener[-1].value in ("enum", "list"):
            return candidates.value_types() if opener[-1].value == "list" else ()
        if opener and opener[0].value in (*ROLES, "target") and len(opener) == 2:  # parameters of a type
            if type_is_due(head):
                return candidates.value_types()
            value = any(token.type == "_ASSIGN" for token in head)
            return [*(self._param_words(head) if value else ()), *self._expression(head)] if len(head) > 1 else ()
        called = self._called(opener)
        if called is None:
            return self._expression(head)
        params = called.params or ()
        if not head:
            position = self._context.commas
            here = candidates.members_of(params[position].type) if position < len(params) else ()
            given = neighbours.assigned(self._analysis, self._context)
            return [*here, *candidates.arguments(params, called.name.text, given)]
        param = next((p for p in params if p.name.text == head[0].value), None)
        words = list(candidates.members_of(param.type)) if param is not None and len(head) == 2 else []
        return [*words, *self._expression(head[2:])]

    def _called(self, head: Tokens) -> ast.StageType | ast.Target | None:
        """What an open parenthesis gives arguments to, None for a function or a group."""
        found = resolve_names(self._unit, trailing_path(head))
        return found[1] if found is not None and isinstance(found[1], ast.StageType | ast.Target) else None

    def _in_shape(self) -> Iterator[types.CompletionItem]:
        yield from candidates.axes()
        for name in neighbours.size_names(self._analysis, self._context):
            yield item(name, types.CompletionItemKind.TypeParameter, 1, detail="a size that the edges decide")
        params = [*self._own_params(), *candidates.names(self._unit, (ast.Param,), 2)]
        yield from (param for param in params if _WHOLE_NUMBER.search(param.detail or ""))

    @staticmethod
    def _is_type(head: Tokens) -> bool:
        return any(token.type == "COLON" for token in head) and not any(token.type == "_ASSIGN" for token in head)

    # Expressions

    def _expression(self, before: Tokens) -> list[types.CompletionItem]:
        """Values: members of a module after a dot, otherwise everything that has a value."""
        if before and before[-1].type == "_DOT":
            return self._members(before, (ast.Param,))
        compared = self._compared(before) if before and before[-1].type == "COMPARE" else []
        return [*compared, *self._own_params(), *candidates.names(self._unit, (ast.Param, Unit)), *functions()]

    def _own_params(self) -> Iterator[types.CompletionItem]:
        """Parameters of the declaration around the place, but for those that are names of the file."""
        unknown = self._without_value()
        for name, text in neighbours.parameters(self._analysis, self._context).items():
            if not isinstance(self._unit.names.get(name), ast.Param) and name != unknown:
                yield item(name, types.CompletionItemKind.Property, 1, detail=text)

    def _without_value(self) -> str:
        """The parameter that is being declared, "" for none and behind its `where`, which is about its value."""
        for head in (*(frame.head for frame in self._context.frames), self._context.statement):
            name = head[1:] if head and head[0].value == "param" else head
            if len(name) > 1 and name[1].type == "COLON" and head[0].value not in ("in", "out"):
                return "" if any(token.value == "where" for token in head) else name[0].value
        return ""

    def _compared(self, before: Tokens) -> list[types.CompletionItem]:
        """The words of the enum that is compared."""
        names = trailing_path(before[:-1])
        found = resolve_names(self._unit, names)
        if found is not None and isinstance(found[1], ast.Param):
            return list(candidates.members_of(found[1].type))
        text = neighbours.parameters(self._analysis, self._context).get(".".join(names), "")
        members = _ENUM.search(text)
        words = [word.strip() for word in members[1].split(",")] if members is not None else []
        return [item(word, types.CompletionItemKind.EnumMember, 0) for word in words if word]

    def _declared(self, before: Tokens, kind: type[Named], role: str = "") -> Iterable[types.CompletionItem]:
        """Declarations of one kind: of a module behind its dot, else of all modules."""
        if before and before[-1].type == "_DOT":
            return self._members(before, (kind,), role)
        if before and before[-1].type != "_ASSIGN":
            return ()
        return declared(self._analysis, self._unit, kind, role)

    def _members(self, before: Tokens, kinds: tuple[type, ...], role: str = "") -> list[types.CompletionItem]:
        """What a module declares, when the place follows `module.`; what has the role comes first."""
        names = trailing_path(before[:-1]) if before and before[-1].type == "_DOT" else []
        found = resolve_names(self._unit, names)
        if found is None or not isinstance(found[1], Unit):
            return []
        members = candidates.names(found[1], kinds, 1)
        right = {n for n, m in found[1].names.items() if isinstance(m, ast.StageType) and m.role == role}
        return [_raised(candidate) if candidate.label in right else candidate for candidate in members]


def _raised(candidate: types.CompletionItem) -> types.CompletionItem:
    candidate.sort_text = f"0{candidate.label.lower()}"
    return candidate
