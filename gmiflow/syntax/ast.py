"""The syntax tree of one file, as `parser.parse` builds it.

Nodes are what was written: nothing is resolved or evaluated. Every node has a ``span``, which takes no
part in equality, so that two trees are equal when they say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gmiflow.plan import Role
from gmiflow.source import Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """A name where it is declared or used."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Doc:
    """Documentation comment: its lines without `///` and the space after it."""

    lines: tuple[str, ...]
    span: Span = field(compare=False)


# Expressions


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """`name` or `module.name`."""

    names: tuple[Name, ...]
    span: Span = field(compare=False)

    @property
    def text(self) -> str:
        """The names joined by dots."""
        return ".".join(name.text for name in self.names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A literal.

    Attributes:
        value: the number, truth value or string; "auto" for the keyword.
        unit: unit of a quantity as written, else None.
        text: as written, so that a formatter keeps `3e-4`.
    """

    kind: Literal["int", "float", "quantity", "string", "bool", "auto"]
    value: int | float | str | bool
    unit: str | None = None
    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unary:
    """`-x` or `!x`."""

    operator: str
    operand: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Binary:
    """Arithmetic, comparison, `&&`, `||`."""

    operator: str
    left: Expression
    right: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """An expression in parentheses."""

    inner: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """`name = value`, or `value` with ``name`` None."""

    name: Name | None
    value: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A function (`min`), a target with arguments, or `devices` in `place`."""

    callee: Path
    arguments: tuple[Argument, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Expression, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonEntry:
    """`py "package.module:Class"`; ``text`` is the string's content."""

    text: str
    span: Span = field(compare=False)


Expression: TypeAlias = "Path | Constant | Unary | Binary | Group | Call | ListOf | PythonEntry"


# Types


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedType:
    """`float`, `f32[env, O]`, `weights`, `ppo.Experience[time]`; ``dims`` is None without brackets."""

    path: Path
    dims: tuple[Expression, ...] | None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class EnumType:
    """`enum(a, b)`."""

    members: tuple[Name, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListType:
    """`list(T)`."""

    item: TypeExpression
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoType:
    """`auto T`."""

    inner: TypeExpression
    span: Span = field(compare=False)


TypeExpression: TypeAlias = "NamedType | EnumType | ListType | AutoType"


# Statements of bodies


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """`name = value`, with a block of further settings after a mode."""

    name: Name
    value: Expression
    block: tuple[Setting, ...] | None = None
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """`name { settings }`: `sizing`, `place`, `needs`."""

    name: Name
    settings: tuple[Setting, ...]
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    """A port of a stage type."""

    direction: Literal["in", "out"]
    name: Name
    type: TypeExpression
    range: tuple[Expression, Expression] | None = None
    optional: bool = False
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`stage`, `stage.port` or `stage.{port, port}`; ``ports`` is None for a bare stage."""

    stage: Name
    ports: tuple[Name, ...] | None
    braces: bool = False
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """`source -> target { attributes }`."""

    source: Endpoint
    target: Endpoint
    attributes: tuple[Setting, ...] | None = None
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Require:
    """`require condition else "message"`."""

    condition: Expression
    message: str
    doc: Doc | None = None
    span: Span = field(compare=False)


Statement: TypeAlias = "Setting | Section | Port | Edge | Require"


# Declarations


@dataclass(frozen=True, kw_only=True, slots=True)
class Edition:
    """`edition 1`."""

    number: int
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """`import std.tasks.ant` or `import "./file.gmi" as name`.

    Attributes:
        module: dotted path, or None for a file import.
        file: path as written, or None for a module import.
    """

    module: Path | None
    file: str | None
    alias: Name | None
    doc: Doc | None = None
    span: Span = field(compare=False)
    target_span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Param:
    """A parameter of a file, a stage type or a target."""

    name: Name
    type: TypeExpression
    default: Expression | None = None
    where: Expression | None = None
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A field of a record."""

    name: Name
    type: TypeExpression
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """`record Name { field : type }`."""

    name: Name
    fields: tuple[Field, ...]
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageType:
    """`simulator Name(params) { ... }`; ``params`` is None without parentheses."""

    role: Role
    name: Name
    params: tuple[Param, ...] | None
    body: tuple[Statement, ...]
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInstance:
    """`simulator name = module.Type(arguments) { settings }`."""

    role: Role
    name: Name
    type: Path
    arguments: tuple[Argument, ...] | None
    settings: tuple[Setting, ...] | None
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow:
    """`workflow name { ... }`."""

    name: Name
    body: tuple[Statement, ...]
    doc: Doc | None = None
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """`target name(params) { ... }`."""

    name: Name
    params: tuple[Param, ...] | None
    body: tuple[Statement, ...]
    doc: Doc | None = None
    span: Span = field(compare=False)


Declaration: TypeAlias = "Edition | Import | Param | Record | StageType | StageInstance | Workflow | Target | Require"


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """A file.

    Attributes:
        broken: names whose declaration could not be read whole; the checker reports nothing about them.
    """

    items: tuple[Declaration, ...]
    broken: frozenset[str] = field(default=frozenset(), compare=False)
    span: Span = field(compare=False)
