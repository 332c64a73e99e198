"""Signature help: the parameters of the stage type, target or function whose parenthesis is open."""

from __future__ import annotations

from lsprotocol import types

from gmiflow.lsp import facts, vocabulary
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.context import Context, context_at, trailing_path
from gmiflow.lsp.symbols import resolve_names
from gmiflow.syntax import ast
from gmiflow.syntax.lexer import Token

TRIGGERS = ("(", ",")
RETRIGGERS = ("=",)


def signature_help(analysis: Analysis, position: types.Position) -> types.SignatureHelp | None:
    """The signature at a position, with the parameter that is being written."""
    context = context_at(analysis, analysis.document.lines.offset(position))
    unit = analysis.unit
    if context.inside == "comment" or not context.frames or unit is None:
        return None
    names = trailing_path(_call(context))
    if len(names) == 1 and names[0] in vocabulary.FUNCTIONS:
        return _answer(_function(names[0]), 0)
    found = resolve_names(unit, names)
    if found is None or not isinstance(found[1], ast.StageType | ast.Target):
        return None
    signature = _declared(found[1])
    return _answer(signature, _active(context, found[1].params or ()))


def _call(context: Context) -> tuple[Token, ...]:
    """The tokens before the innermost parenthesis; brackets of a list inside it do not count."""
    for frame in reversed(context.frames):
        if frame.bracket == "LPAR":
            return frame.head
        if frame.bracket == "LBRACE":
            break
    return ()


def _active(context: Context, params: tuple[ast.Param, ...]) -> int | None:
    """The parameter whose name is written, else the one in whose turn the cursor is."""
    names = [param.name.text for param in params]
    inner = next((i for i, frame in enumerate(context.frames) if frame.bracket == "LPAR"), len(context.frames))
    statement = context.frames[inner + 1].head if inner + 1 < len(context.frames) else context.statement
    word = statement[0].value if statement else context.prefix
    if word in names:
        return names.index(word)
    return min(context.commas, len(names) - 1) if names else None


def _declared(node: ast.StageType | ast.Target) -> types.SignatureInformation:
    params = [facts.one_line(param) for param in node.params or ()]
    doc = "\n".join(node.doc.lines).strip() if node.doc is not None else ""
    return types.SignatureInformation(
        label=f"{node.name.text}({', '.join(params)})",
        documentation=types.MarkupContent(kind=types.MarkupKind.Markdown, value=doc) if doc else None,
        parameters=[
            types.ParameterInformation(label=text, documentation="\n".join(param.doc.lines) if param.doc else None)
            for text, param in zip(params, node.params or (), strict=True)
        ],
    )


def _function(name: str) -> types.SignatureInformation:
    label, text = vocabulary.FUNCTIONS[name]
    inside = label[label.index("(") + 1 : -1].split(", ")
    return types.SignatureInformation(
        label=label, documentation=text, parameters=[types.ParameterInformation(label=part) for part in inside]
    )


def _answer(signature: types.SignatureInformation, active: int | None) -> types.SignatureHelp:
    return types.SignatureHelp(signatures=[signature], active_signature=0, active_parameter=active)
