"""What can be written in a place, as completion items: names of the file and its modules, ports, settings, values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lsprotocol import types

from gmiflow.lsp import facts, vocabulary
from gmiflow.lsp.analysis import Analysis
from gmiflow.lsp.describe import declaration, documentation, port_text
from gmiflow.lsp.symbols import DECLARATIONS, Symbol, enum_of, ports_of, stage_type
from gmiflow.passes.imports import Unit
from gmiflow.passes.settings import Spec
from gmiflow.passes.stages import StagePort
from gmiflow.passes.types import RecordOf, Shape, Tensor, Variable, Weights, has_time, without_time
from gmiflow.passes.values import SCALARS, ValueType
from gmiflow.syntax import ast
from gmiflow.syntax.words import AXES, DTYPES, FUNCTIONS

KINDS: dict[str, types.CompletionItemKind] = {
    "module": types.CompletionItemKind.Module,
    "param": types.CompletionItemKind.Constant,
    "record": types.CompletionItemKind.Struct,
    "stage_type": types.CompletionItemKind.Class,
    "stage": types.CompletionItemKind.Variable,
    "workflow": types.CompletionItemKind.Function,
    "target": types.CompletionItemKind.Class,
}


def item(
    label: str,
    kind: types.CompletionItemKind,
    rank: int,
    *,
    detail: str = "",
    documentation: str = "",
    insert: str | None = None,
) -> types.CompletionItem:
    """One candidate; a lower rank stands higher, equal ranks keep their alphabetical order."""
    text = types.MarkupContent(kind=types.MarkupKind.Markdown, value=documentation) if documentation else None
    return types.CompletionItem(
        label=label,
        kind=kind,
        detail=detail or None,
        documentation=text,
        sort_text=f"{rank}{label.lower()}",
        insert_text=insert,
    )


def keywords(words: Iterable[str], rank: int = 5) -> list[types.CompletionItem]:
    """Keywords."""
    kind = types.CompletionItemKind.Keyword
    return [item(word, kind, rank, documentation=vocabulary.KEYWORDS[word]) for word in sorted(words)]


def names(unit: Unit, kinds: tuple[type, ...], rank: int = 2) -> Iterator[types.CompletionItem]:
    """Declared names of some kinds."""
    for name, meaning in unit.names.items():
        if isinstance(meaning, Unit):
            if Unit in kinds:
                yield module(name, meaning, rank + 1)
        elif isinstance(meaning, kinds) and type(meaning) in DECLARATIONS:
            yield named(unit, name, meaning, rank)


def module(name: str, unit: Unit, rank: int) -> types.CompletionItem:
    """A module that a file imports."""
    return item(name, KINDS["module"], rank, detail=unit.source.name)


def named(unit: Unit | None, name: str, meaning: object, rank: int, module: str = "") -> types.CompletionItem:
    """A declaration of a file, seen from one that knows that file as ``module``."""
    symbol = Symbol(kind=DECLARATIONS[type(meaning)], name=name, node=meaning, unit=unit)
    first = declaration(symbol).split("\n")[0]
    label = f"{module}.{name}" if module else name
    return item(label, KINDS[symbol.kind], rank, detail=first, documentation=documentation(symbol))


def settings(specs: Mapping[str, Spec], table: str, written: frozenset[str]) -> Iterator[types.CompletionItem]:
    """Settings of a table that are not written yet."""
    known = [*specs, *(["base"] if table == "target" else [])]
    for name in known:
        if name not in written:
            spec = specs.get(name)
            detail = str(spec.type) if spec is not None else "target"
            text = vocabulary.SETTINGS.get(f"{table}.{name}", "")
            yield item(
                name, types.CompletionItemKind.Property, 0, detail=detail, documentation=text, insert=f"{name} = "
            )


def sections(table: str, words: Iterable[str], written: frozenset[str]) -> Iterator[types.CompletionItem]:
    """Sections that are not written yet."""
    for name in words:
        if name not in written:
            text = vocabulary.SECTIONS.get(f"{table}.{name}", "")
            yield item(name, types.CompletionItemKind.Module, 1, detail="section", documentation=text)


def values(kind: ValueType | None) -> Iterator[types.CompletionItem]:
    """Words of a type: members of an enum, truth values, `auto`."""
    if kind is None:
        return
    for member in kind.members:
        yield item(member, types.CompletionItemKind.EnumMember, 0, detail=str(kind))
    if kind.auto:
        yield item("auto", types.CompletionItemKind.Keyword, 0, documentation=vocabulary.KEYWORDS["auto"])
    if kind.kind == "bool":
        yield from keywords(("true", "false"), 0)
    if kind.kind == "python":
        yield item("py", types.CompletionItemKind.Keyword, 0, insert='py "', documentation=vocabulary.KEYWORDS["py"])
    if kind.kind == "devices":
        yield function("devices", 0)


def members_of(node: ast.TypeExpression) -> Iterator[types.CompletionItem]:
    """Words of a declared type."""
    kind = enum_of(node)
    for member in kind.members if kind is not None else ():
        yield item(member.text, types.CompletionItemKind.EnumMember, 0, detail=facts.one_line(kind) if kind else "")
    if isinstance(node, ast.AutoType):
        yield item("auto", types.CompletionItemKind.Keyword, 0, documentation=vocabulary.KEYWORDS["auto"])
    if isinstance(node, ast.NamedType) and node.path.text == "bool":
        yield from keywords(("true", "false"), 0)


def function(name: str, rank: int = 4) -> types.CompletionItem:
    """A function of the language."""
    signature, text = vocabulary.FUNCTIONS[name]
    return item(name, types.CompletionItemKind.Function, rank, detail=signature, documentation=text)


def functions() -> list[types.CompletionItem]:
    """The functions that any expression may call."""
    return [function(name) for name in FUNCTIONS]


def units(dimension: str) -> Iterator[types.CompletionItem]:
    """Units behind a number."""
    for rank, unit in enumerate(vocabulary.units_of(dimension)):
        yield item(unit, types.CompletionItemKind.Unit, rank, detail=dimension)


def arguments(params: Sequence[ast.Param], owner: str, given: frozenset[str]) -> Iterator[types.CompletionItem]:
    """Parameters that have no argument yet; those without default first."""
    for param in params:
        if param.name.text not in given:
            symbol = Symbol(kind="argument", name=param.name.text, owner=owner, node=param)
            rank = 0 if param.default is None else 1
            kind = types.CompletionItemKind.Property
            detail, text = facts.one_line(param), documentation(symbol)
            yield item(param.name.text, kind, rank, detail=detail, documentation=text, insert=f"{param.name.text} = ")


def data_types() -> Iterator[types.CompletionItem]:
    """Types of ports and fields, but for records."""
    kind = types.CompletionItemKind.TypeParameter
    for name in (*DTYPES, "weights"):
        yield item(name, kind, 0, documentation=vocabulary.TYPES[name])


def value_types() -> list[types.CompletionItem]:
    """Types of parameters."""
    kind = types.CompletionItemKind.TypeParameter
    return [item(name, kind, 0, documentation=vocabulary.TYPES[name]) for name in SCALARS]


def axes() -> list[types.CompletionItem]:
    """The axes of a shape."""
    return [item(name, types.CompletionItemKind.Constant, 0, documentation=vocabulary.AXES[name]) for name in AXES]


def ports(
    analysis: Analysis, stage: ast.StageInstance, direction: str, source: Shape | None, driven: set[str]
) -> Iterator[types.CompletionItem]:
    """Ports of a stage: those whose type fits ``source`` first, those that are driven already last."""
    unit = analysis.unit
    found = stage_type(unit, stage) if unit is not None else None
    if found is None:
        return
    made = facts.elaborated(analysis, stage.name.text)
    for port in ports_of(found[1]):
        if port.direction != direction:
            continue
        known = made.ports.get(port.name.text) if made is not None else None
        rank = 2 * (port.name.text in driven) + (not _fits(source, known))
        symbol = Symbol(kind="port", name=port.name.text, node=port)
        detail, text = port_text(port), documentation(symbol)
        yield item(port.name.text, types.CompletionItemKind.Field, rank, detail=detail, documentation=text)


def _fits(source: Shape | None, port: StagePort | None) -> bool:
    """Whether data of one type may drive an input, as far as that can be told without the other edges."""
    target = port.shape if port is not None else None
    if source is None:
        return True
    if target is None or (has_time(source) and not has_time(target)):
        return False
    if isinstance(source, Weights) or isinstance(target, Weights):
        return isinstance(source, Weights) and isinstance(target, Weights)
    if not isinstance(source, Tensor) or not isinstance(target, Tensor):
        return isinstance(source, RecordOf) and isinstance(target, RecordOf) and source.name == target.name
    left, right = without_time(source), without_time(target)
    assert isinstance(left, Tensor) and isinstance(right, Tensor)
    pairs = zip(left.dims, right.dims, strict=False)
    same = all(a == b or isinstance(a, Variable) or isinstance(b, Variable) for a, b in pairs)
    return left.dtype == right.dtype and len(left.dims) == len(right.dims) and same
