"""Completion: from the place of the cursor to what can be written there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types

from gmiflow import resources
from gmiflow.lsp import candidates
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.candidates import item, keywords
from gmiflow.lsp.completion_words import files, units
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
from gmiflow.lsp.places import declaration_at
from gmiflow.lsp.symbols import resolve_names
from gmiflow.lsp.vocabulary import spec_of
from gmiflow.passes.imports import Unit
from gmiflow.passes.types import Shape
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token
from gmiflow.syntax.words import ROLES

TRIGGERS = (".", "=", ">", "(", ",", "[", ":", "/", '"', " ", "{")


def completions(analysis: Analysis, position: types.Position) -> list[types.CompletionItem]:
    """What can be written at a position, the likeliest first."""
    offset = analysis.document.lines.offset(position)
    context = context_at(analysis, offset)
    if context.inside == "string":
        return files(analysis, context)
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
        words = context.keywords - offered
        if context.accepts_name and (context.statement or self._frame is not None):
            words -= {"true", "false", "auto", "py"} if "auto" not in offered and self._expects_name() else set()
        if table_of(context.frames) != "stage type" and not context.statement:
            words -= {"in", "out"}
        return found + keywords(words)

    def _is_bare_word(self) -> bool:
        return bool(self._context.statement) and self._context.statement[-1].type in ("ARROW", "_DOT")

    def _expects_name(self) -> bool:
        """Whether a value of the language's own words would be out of place."""
        return self._context.previous in ("", "ARROW")

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

    def _in_declaration(self, head: tuple[Token, ...]) -> Iterable[types.CompletionItem]:
        if not head:
            return ()
        keyword = head[0].value
        if keyword == "import":
            return self._modules(head)
        if is_stage_declaration(head):
            return self._members(head) or candidates.names(self._unit, (ast.StageType, Unit), 0)
        if keyword == "param" and type_is_due(head):
            return candidates.value_types()
        if keyword == "param" and any(token.type == "_ASSIGN" for token in head):
            return [*self._param_words(head), *self._expression(head)]
        return self._expression(head) if keyword == "require" or (keyword == "param" and len(head) > 1) else ()

    def _modules(self, head: tuple[Token, ...]) -> Iterator[types.CompletionItem]:
        path = [token.value for token in head[1:] if token.type == "NAME"]
        root = resources.stdlib_path()
        if len(head) == 1:
            yield item("std", types.CompletionItemKind.Module, 0, detail="the standard library")
        elif path[:1] == ["std"] and head[-1].type == "_DOT":
            folder = root.joinpath(*path[1:])
            for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
                if entry.is_dir() or entry.suffix == ".gmi":
                    yield item(entry.stem, types.CompletionItemKind.Module, 0, detail=".".join((*path, entry.stem)))

    def _param_words(self, head: tuple[Token, ...]) -> Iterator[types.CompletionItem]:
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

    def _in_braces(self, head: tuple[Token, ...]) -> Iterable[types.CompletionItem]:
        frames = self._context.frames
        opener = frames[-1].head
        if opener and opener[-1].type == "_DOT" and len(opener) >= 2:  # stage.{port, port}
            return self._ports(opener[-2].value, opener[:-2], taken=self._context.names)
        keyword = frames[0].head[0].value if frames[0].head else ""
        table = table_of(frames)
        equals = next((i for i, token in enumerate(head) if token.type == "_ASSIGN"), None)
        if equals is not None:
            return self._setting_value(table, head[0].value, head[equals + 1 :])
        if keyword == "record" or (head and head[0].value in ("in", "out")):
            return candidates.data_types(self._unit) if type_is_due(head) else self._members(head)
        if table == "workflow" and head:
            return self._edge_end(head)
        if head:
            return self._expression(head) if head[0].value == "require" else ()
        return self._statement(table)

    def _statement(self, table: str) -> Iterator[types.CompletionItem]:
        """What a statement may start with."""
        written = self._written()
        if table == "place":
            yield from candidates.names(self._unit, (ast.StageInstance,), 0)
        yield from candidates.settings(TABLES.get(table, {}), table, written)
        yield from candidates.sections(table, SECTIONS.get(table, ()), written)
        if table == "workflow":
            yield from candidates.names(self._unit, (ast.StageInstance,), 1)

    def _written(self) -> set[str]:
        """Settings and sections of the declaration around the place."""
        for declared in self._analysis.items:
            if declared.span.start <= self._context.start <= declared.span.end:
                body = getattr(declared, "body", ())
                return {s.name.text for s in body if isinstance(s, ast.Setting | ast.Section)}
        return set()

    def _setting_value(self, table: str, name: str, value: tuple[Token, ...]) -> Iterable[types.CompletionItem]:
        spec = spec_of(table, name)
        if table == "target" and name == "base":
            return self._members(value) or candidates.names(self._unit, (ast.Target, Unit), 0)
        words = list(candidates.values(spec.type if spec is not None else None)) if not value else []
        closed = spec is not None and spec.type.kind in ("enum", "bool", "python", "devices")
        return words if closed and not value else [*words, *self._expression(value)]

    def _edge_end(self, head: tuple[Token, ...]) -> Iterable[types.CompletionItem]:
        arrow = next((i for i, token in enumerate(head) if token.type == "ARROW"), None)
        if head[-1].type == "_DOT" and len(head) >= 2:
            return self._ports(head[-2].value, head[:-2], taken=frozenset())
        if arrow is not None and arrow == len(head) - 1:
            return self._targets(head)
        return ()

    def _targets(self, head: tuple[Token, ...]) -> Iterator[types.CompletionItem]:
        """Stages behind an arrow, before them the inputs that the source's type fits."""
        source = self._source(head)
        for name, meaning in self._unit.names.items():
            if not isinstance(meaning, ast.StageInstance):
                continue
            yield candidates.named(self._unit, name, meaning, 3)
            driven = self._driven(name)
            for port in candidates.ports(self._analysis, meaning, "in", source, driven):
                if source is not None and (port.sort_text or "").startswith("0"):
                    port.label = f"{name}.{port.label}"
                    port.sort_text = f"0{port.label}"
                    yield port

    def _ports(self, stage: str, before: tuple[Token, ...], taken: frozenset[str]) -> list[types.CompletionItem]:
        meaning = self._unit.names.get(stage)
        if not isinstance(meaning, ast.StageInstance):
            return []
        if any(token.type == "ARROW" for token in before):
            driven = self._driven(stage)
            found = candidates.ports(self._analysis, meaning, "in", self._source(before), driven)
        else:
            found = candidates.ports(self._analysis, meaning, "out", None, set())
        return [port for port in found if port.label not in taken]

    def _source(self, head: tuple[Token, ...]) -> Shape | None:
        """The type of the port on the left of an arrow."""
        model = self._analysis.checked.model
        if model is None or len(head) < 3:
            return None
        stage = model.stages.get(head[0].value)
        port = stage.type.ports.get(head[2].value) if stage is not None and stage.type is not None else None
        return port.shape if port is not None else None

    def _driven(self, stage: str) -> set[str]:
        """Inputs of a stage that an edge of this workflow drives, the one at the cursor left out."""
        model = self._analysis.checked.model
        head = self._context.frames[0].head
        name = head[1].value if len(head) > 1 else ""
        checked = model.workflows.get(name) if model is not None else None
        wires = checked.wiring.wires if checked is not None else []
        here = self._context.start
        return {
            wire.target_port.name
            for wire in wires
            if wire.target.name == stage and not wire.span.start <= here <= wire.span.end
        }

    # In ( ) and [ ]

    def _in_parentheses(self, frame: Frame, head: tuple[Token, ...]) -> Iterable[types.CompletionItem]:
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
            return [*here, *candidates.arguments(params, called.name.text, self._given())]
        param = next((p for p in params if p.name.text == head[0].value), None)
        words = list(candidates.members_of(param.type)) if param is not None and len(head) == 2 else []
        return [*words, *self._expression(head[2:])]

    def _called(self, head: tuple[Token, ...]) -> ast.StageType | ast.Target | None:
        """What an open parenthesis gives arguments to, None for a function or a group."""
        found = resolve_names(self._unit, trailing_path(head))
        return found[1] if found is not None and isinstance(found[1], ast.StageType | ast.Target) else None

    def _given(self) -> set[str]:
        """Names of arguments that stand in the brackets around the place."""
        around = declaration_at(self._analysis, self._context.start)
        arguments = around.arguments if isinstance(around, ast.StageInstance) else None
        return {a.name.text for a in arguments or () if a.name is not None}

    def _in_shape(self) -> Iterator[types.CompletionItem]:
        yield from candidates.axes()
        yield from candidates.names(self._unit, (ast.Param,), 2)

    @staticmethod
    def _is_type(head: tuple[Token, ...]) -> bool:
        return any(token.type == "COLON" for token in head) and not any(token.type == "_ASSIGN" for token in head)

    # Expressions

    def _expression(self, before: tuple[Token, ...]) -> list[types.CompletionItem]:
        """Values: members of a module after a dot, otherwise everything that has a value."""
        members = self._members(before)
        if members or (before and before[-1].type == "_DOT"):
            return members
        head = self._context.frames[0].head if self._context.frames else ()
        local = self._local_params(head[1].value) if len(head) > 1 else []
        return [*local, *candidates.names(self._unit, (ast.Param, Unit)), *candidates.functions()]

    def _local_params(self, owner: str) -> list[types.CompletionItem]:
        meaning = self._unit.names.get(owner)
        params = meaning.params or () if isinstance(meaning, ast.StageType | ast.Target) else ()
        found = list(candidates.arguments(params, owner, set()))
        for candidate in found:
            candidate.insert_text = None
        return found

    def _members(self, before: tuple[Token, ...]) -> list[types.CompletionItem]:
        """What a module declares, when the place follows `module.`."""
        if len(before) < 2 or before[-1].type != "_DOT":
            return []
        meaning = self._unit.names.get(before[-2].value)
        kinds: tuple[type, ...] = (ast.Param, ast.Record, ast.StageType, ast.Target)
        if is_stage_declaration(before):
            kinds = (ast.StageType,)
        if not isinstance(meaning, Unit):
            return []
        found = candidates.names(meaning, kinds, 1)
        role = before[0].value
        right = {n for n, m in meaning.names.items() if isinstance(m, ast.StageType) and m.role == role}
        return [_raised(candidate) if candidate.label in right else candidate for candidate in found]


def _raised(candidate: types.CompletionItem) -> types.CompletionItem:
    candidate.sort_text = f"0{candidate.label.lower()}"
    return candidate
