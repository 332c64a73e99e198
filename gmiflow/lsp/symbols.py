"""What every name of a file stands for: the occurrences that navigation, renaming, hover and colours share.

Built from the compiler's own tree and units. A name that means nothing has no occurrence; the checker speaks about it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from gmiflow.passes.imports import Broken, Unit
from gmiflow.source import Span
from gmiflow.syntax import ast

SymbolKind: TypeAlias = Literal[
    "module", "param", "record", "stage_type", "stage", "workflow", "target",
    "argument", "port", "field", "variable", "member",
    "setting", "section", "value", "type", "axis", "function", "entry",
]  # fmt: skip
"""The first row are declarations of a file, the second parts of them, the third words of the language."""

DECLARATIONS: dict[type, SymbolKind] = {
    ast.Param: "param",
    ast.Record: "record",
    ast.StageType: "stage_type",
    ast.StageInstance: "stage",
    ast.Workflow: "workflow",
    ast.Target: "target",
}
RENAMEABLE: frozenset[SymbolKind] = frozenset(
    (*DECLARATIONS.values(), "module", "argument", "port", "field", "variable", "member")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbol:
    """A thing with a name. Two are equal when they are the same thing, also when they come from different checks.

    Attributes:
        file: real path of the file that declares it, "" for a word of the language.
        owner: the declaration or table of settings that it is a part of, "" for none.
        node: its declaration.
        unit: the file of the declaration; for a module the file that it names.
    """

    kind: SymbolKind
    name: str
    file: str = ""
    owner: str = ""
    node: object = field(default=None, compare=False, repr=False)
    unit: Unit | None = field(default=None, compare=False, repr=False)

    @property
    def declared_name(self) -> ast.Name | None:
        """Where it gets its name, None for words of the language and modules."""
        if isinstance(self.node, ast.Name):
            return self.node
        name = getattr(self.node, "name", None)
        return name if isinstance(name, ast.Name) and self.kind != "module" else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence:
    """A name in the text. ``stage`` is the stage that a port of an edge belongs to."""

    span: Span
    symbol: Symbol
    declares: bool = False
    stage: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BareEnd:
    """An end of an edge that takes its port names from the other end.

    Attributes:
        span: of the bare stage.
        ports: the names, with the port that each stands for (None for one that does not exist).
        partners: the ports at the other end, in the same order.
    """

    span: Span
    ports: tuple[tuple[str, Symbol | None], ...]
    partners: tuple[Symbol | None, ...]


@dataclass(kw_only=True, slots=True)
class Index:
    """Occurrences of one file, in order.

    Attributes:
        links: sizes of a stage type, each with the size of a record that one of its ports carries: the same name
            there is the same size.
    """

    unit: Unit
    file: str
    occurrences: list[Occurrence] = field(default_factory=list[Occurrence])
    bare_ends: list[BareEnd] = field(default_factory=list[BareEnd])
    starts: list[int] = field(default_factory=list[int])
    links: list[tuple[Symbol, Symbol]] = field(default_factory=list[tuple[Symbol, Symbol]])

    def at(self, offset: int) -> Occurrence | None:
        """The occurrence that the cursor is in or behind; the one that starts there comes first."""
        index = bisect_right(self.starts, offset) - 1
        if index < 0:
            return None
        found = self.occurrences[index]
        return found if found.span.start <= offset <= found.span.end else None

    def of(self, symbols: Container[Symbol]) -> Iterable[Occurrence]:
        """Every occurrence of some symbols."""
        return (occurrence for occurrence in self.occurrences if occurrence.symbol in symbols)


def same_thing(symbol: Symbol, indexes: Iterable[Index]) -> set[Symbol]:
    """A symbol with all that must have its name: records share sizes with the stage types that they go through."""
    links = [link for index in indexes for link in index.links] if symbol.kind == "variable" else []
    found, before = {symbol}, 0
    while len(found) > before:
        before = len(found)
        for link in links:
            if not found.isdisjoint(link):
                found.update(link)
    return found


def file_key(path: Path) -> str:
    """What identifies a file, however it is reached."""
    return os.path.realpath(path)


def resolve(unit: Unit, path: ast.Path) -> tuple[Unit, object] | None:
    """File and declaration that a path names, without a word about what is wrong with it."""
    return resolve_names(unit, [name.text for name in path.names])


def resolve_names(unit: Unit, names: Sequence[str]) -> tuple[Unit, object] | None:
    """As `resolve`, for the names of a path; None for no names."""
    meaning: object = unit.names.get(names[0]) if names else None
    for name in names[1:]:
        if not isinstance(meaning, Unit):
            return None
        unit, meaning = meaning, meaning.names.get(name)
    return None if meaning is None or isinstance(meaning, Broken) else (unit, meaning)


def stage_type(unit: Unit, stage: ast.StageInstance) -> tuple[Unit, ast.StageType] | None:
    """File and declaration of a stage's type."""
    found = resolve(unit, stage.type)
    return (found[0], found[1]) if found is not None and isinstance(found[1], ast.StageType) else None


def ports_of(kind: ast.StageType) -> list[ast.Port]:
    """The ports that a stage type declares."""
    return [statement for statement in kind.body if isinstance(statement, ast.Port)]


def is_size(name: str) -> bool:
    """Whether a bare name in a shape is a size that the edges decide."""
    return name[0].isupper()


def sizes_of(record: ast.Record) -> list[str]:
    """The sizes in the shapes of a record that the edges decide."""
    types = [item.type for item in record.fields]
    dims = [dim for node in types if isinstance(node, ast.NamedType) for dim in node.dims or ()]
    names = [dim.text for dim in dims if isinstance(dim, ast.Path) and len(dim.names) == 1]
    return [name for name in dict.fromkeys(names) if is_size(name)]


def enum_of(node: ast.TypeExpression | None) -> ast.EnumType | None:
    """The enum in a type, through `auto` and `list`."""
    while isinstance(node, ast.AutoType | ast.ListType):
        node = node.inner if isinstance(node, ast.AutoType) else node.item
    return node if isinstance(node, ast.EnumType) else None
