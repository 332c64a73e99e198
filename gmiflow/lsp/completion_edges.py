"""Completion of edges: the ports of a stage, and what an arrow may lead to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types

from gmiflow.lsp import candidates
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.context import Context
from gmiflow.lsp.symbols import ports_of, stage_type
from gmiflow.passes.imports import Unit
from gmiflow.passes.types import Shape
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token

Tokens = tuple[Token, ...]


def edge_end(analysis: Analysis, unit: Unit, context: Context) -> Iterable[types.CompletionItem]:
    """Stages or ports, in an edge that is being written outside of further brackets."""
    head = context.statement
    if len(head) >= 2 and head[-1].type == "_DOT":
        return ports(analysis, unit, context, head[-2].value, head[:-2])
    return _targets(analysis, unit, context) if head and head[-1].type == "ARROW" else ()


def ports(
    analysis: Analysis, unit: Unit, context: Context, stage: str, before: Tokens, taken: frozenset[str] = frozenset()
) -> list[types.CompletionItem]:
    """The ports of a stage behind its dot, but for those that are named already."""
    meaning = unit.names.get(stage)
    if not isinstance(meaning, ast.StageInstance):
        return []
    if any(token.type == "ARROW" for token in before):
        driven = _driven(analysis, context, stage)
        found = candidates.ports(analysis, meaning, "in", _source(analysis, before), driven)
    else:
        found = candidates.ports(analysis, meaning, "out", None, set())
    return [port for port in found if port.label not in taken]


def _targets(analysis: Analysis, unit: Unit, context: Context) -> Iterator[types.CompletionItem]:
    """Stages behind an arrow, before them the inputs that the source's type fits; first a stage with all its names."""
    source = _source(analysis, context.statement)
    names = _braced(analysis, context.statement)
    for name, meaning in unit.names.items():
        if not isinstance(meaning, ast.StageInstance):
            continue
        found = stage_type(unit, meaning)
        inputs = {port.name.text for port in ports_of(found[1]) if port.direction == "in"} if found else set()
        yield candidates.named(unit, name, meaning, 0 if names and names <= inputs else 3)
        for port in candidates.ports(analysis, meaning, "in", source, _driven(analysis, context, name)):
            if source is not None and (port.sort_text or "").startswith("0"):
                port.label = f"{name}.{port.label}"
                port.sort_text = f"0{port.label}"
                yield port


def _braced(analysis: Analysis, head: Tokens) -> set[str]:
    """The ports of `stage.{port, port} ->`."""
    opener = next((token for token in head if token.type == "LBRACE"), None)
    closer = next((token for token in head if token.type == "RBRACE"), None)
    if opener is None or closer is None:
        return set()
    inside = (token for token in analysis.tokens if opener.end_pos <= token.start_pos < closer.start_pos)
    return {token.value for token in inside if token.type == "NAME"}


def _source(analysis: Analysis, head: Tokens) -> Shape | None:
    """The type of the port on the left of an arrow."""
    model = analysis.checked.model
    if model is None or len(head) < 3:
        return None
    stage = model.stages.get(head[0].value)
    port = stage.type.ports.get(head[2].value) if stage is not None and stage.type is not None else None
    return port.shape if port is not None else None


def _driven(analysis: Analysis, context: Context, stage: str) -> set[str]:
    """Inputs of a stage that an edge of this workflow drives, the one at the cursor left out."""
    model = analysis.checked.model
    head = context.frames[0].head
    name = head[1].value if len(head) > 1 else ""
    checked = model.workflows.get(name) if model is not None else None
    wires = checked.wiring.wires if checked is not None else []
    here = context.start
    return {
        wire.target_port.name
        for wire in wires
        if wire.target.name == stage and not wire.span.start <= here <= wire.span.end
    }
