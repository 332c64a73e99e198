"""Signature help: the parameters of the stage type, target or function whose parenthesis is open."""

from __future__ import annotations

from lsprotocol import types

from gmiflow.lsp import facts, vocabulary
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.context import Context, context_at, trailing_path
from gmiflow.lsp.symbols import resolve_names
from gmiflow.syntax import ast
from gmiflow.syntax.words import DECLARATION_KEYWORDS

TRIGGERS = ("(", ",")
RETRIGGERS = ("=",)


def signature_help(analysis: Analysis, position: types.Position) -> types.SignatureHelp | None:
    """The signature at a position, with the parameter that is being written."""
    context = context_at(analysis, analysis.document.lines.offset(position))
    unit = analysis.unit
    if context.inside == "comment" or not context.frames or unit is None:
        return None
    opener = _opener(context)
    names = trailing_path(context.frames[opener].head) if opener is not None else []
    if opener is None or not names:
        return None
    if len(names) == 1 and names[0] in vocabulary.FUNCTIONS:
        function = _function(names[0])
        last = len(function.parameters or ()) - 1  # the dots stand for all further ones
        return _answer(function, min(_commas(context, opener), last))
    found = resolve_names(unit, names)
    if found is None or not isinstance(found[1], ast.StageType | ast.Target):
        return None
    return _answer(_declared(found[1]), _active(context, opener, found[1].params or ()))


def _opener(context: Context) -> int | None:
    """The innermost parenthesis behind a name; brackets of a list and groups inside it do not count."""
    for index in range(len(context.frames) - 1, -1, -1):
        frame = context.frames[index]
        declares = len(frame.head) == 2 and frame.head[0].value in DECLARATION_KEYWORDS
        if frame.bracket == "LPAR" and frame.head and frame.head[-1].type == "NAME" and not declares:
            return index
        if frame.bracket == "LBRACE":
            break
    return None


def _commas(context: Context, opener: int) -> int:
    """Arguments before the one that the cursor is in."""
    inner = context.frames[opener + 1 :]
    return inner[0].commas if inner else context.commas


def _active(context: Context, opener: int, params: tuple[ast.Param, ...]) -> int | None:
    """The parameter whose name is written, else the one in whose turn the cursor is."""
    names = [param.name.text for param in params]
    inner = context.frames[opener + 1 :]
    statement = inner[0].head if inner else context.statement
    word = statement[0].value if statement else context.prefix
    if word in names:
        return names.index(word)
    return min(_commas(context, opener), len(names) - 1) if names else None


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
