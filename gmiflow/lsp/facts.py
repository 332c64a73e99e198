"""What the passes worked out about a file, in the words that hover, hints and lenses share."""

from __future__ import annotations

from collections.abc import Iterable

from gmiflow.ir.workflow import RecordType, Value
from gmiflow.lsp.analysis import Analysis
from gmiflow.passes.stages import Elaborated
from gmiflow.passes.types import RecordOf, Shape, Unifier
from gmiflow.passes.values import Typed, ValueType, show
from gmiflow.pipeline import Compilation
from gmiflow.syntax import ast
from gmiflow.syntax.words import UNITS


def compilations(analysis: Analysis, workflow: str) -> list[Compilation]:
    """The compilations of a workflow, one per target."""
    return [c for c in analysis.deep.compilations if c.workflow is not None and c.workflow.name == workflow]


def summary(compilation: Compilation) -> str:
    """Mapping, GMIs, environments and execution in one line; "" when it was not sized."""
    sized = compilation.sized
    if sized is None:
        return ""
    count = len(sized.slices)
    gmis = f"{count} GMI{'s' if count > 1 else ''}"
    return f"{sized.mapped.template}, {gmis} of {per_gmi(compilation)} environments, {sized.execution}, {sized.backend}"


def short_summary(compilation: Compilation) -> str:
    """Mapping, GMIs times environments, and execution: what fits behind a line."""
    sized = compilation.sized
    if sized is None:
        return ""
    return f"{sized.mapped.template}, {len(sized.slices)} GMI x {per_gmi(compilation)}, {sized.execution}"


def per_gmi(compilation: Compilation) -> str:
    """Environments of one GMI: "128", or "144 or 128" where the shards are uneven; "" when it was not sized."""
    sized = compilation.sized
    sizes = sorted({part.num_env for part in sized.slices}, reverse=True) if sized is not None else []
    return " or ".join(map(str, sizes))


def target_name(compilation: Compilation) -> str:
    """The target in words."""
    name = compilation.workflow.target.name if compilation.workflow is not None else ""
    return "this machine" if name == "detected" else f"target {name}"


def decided(compilation: Compilation, setting: str) -> str | None:
    """What a setting became that the compiler may decide, None when it was not decided."""
    sized = compilation.sized
    if sized is None:
        return None
    values: dict[str, object] = {
        "num_env": sized.num_env,
        "execution": sized.execution,
        "mapping": sized.mapped.template,
        "backend": sized.backend,
        "gmi_per_gpu": sized.gmi_per_gpu,
        "joint": sized.joint,
    }
    return str(values[setting]) if setting in values else None


def reason(compilation: Compilation, setting: str) -> str:
    """How the compiler decided: "default: ...", "modelled: ...", "given"."""
    if compilation.sized is None:
        return ""
    return {"mapping": compilation.sized.mapped.origin, **dict(compilation.sized.origins)}.get(setting, "")


def show_value(value: Value, kind: ValueType | None) -> str:
    """A value as a reader writes it; a quantity in the largest unit that keeps it whole."""
    if kind is None or kind.kind != "quantity" or not isinstance(value, int | float) or isinstance(value, bool):
        return f'"{value}"' if kind is not None and kind.kind == "string" else show(value)
    units = sorted(((f, u) for u, (of, f) in UNITS.items() if of == kind.dimension), reverse=True)
    for factor, unit in units:
        number = value / factor
        if number >= 1 and round(number, 9) == round(number):
            return f"{round(number)} {unit}"
    factor, unit = next(((f, u) for f, u in units if value >= f), units[-1])
    return f"{value / factor:g} {unit}"


def show_typed(typed: Typed) -> str:
    """A value with its type in hand."""
    return show_value(typed.value, typed.type)


def shape_text(unifier: Unifier, stage: str, shape: Shape) -> str:
    """A type with its sizes where they are known, otherwise with the names of its variables."""
    resolved = unifier.resolve(stage, shape)
    if resolved is None or isinstance(resolved, RecordType):
        return unifier.text(stage, shape)
    return str(resolved)


def record_lines(unifier: Unifier, stage: str, shape: Shape) -> list[str]:
    """The fields of a record with their sizes, nothing for another type."""
    if not isinstance(shape, RecordOf):
        return []
    return [f"{name} : {shape_text(unifier, stage, tensor)}" for name, tensor in shape.fields]


def elaborated(analysis: Analysis, stage: str) -> Elaborated | None:
    """A stage's type with its arguments, None while something in it is wrong."""
    model = analysis.checked.model
    found = model.stages.get(stage) if model is not None else None
    return found.type if found is not None else None


def unifier_of(analysis: Analysis, stage: str, workflow: str | None = None) -> Unifier | None:
    """The sizes that edges give a stage: in one workflow, or in the first that uses it."""
    model = analysis.checked.model
    for name, checked in (model.workflows if model is not None else {}).items():
        if stage in checked.wiring.used and workflow in (None, name):
            return checked.wiring.unifier
    return None


def sizes(analysis: Analysis, stage: str, variables: Iterable[str]) -> list[tuple[str, int]]:
    """Shape variables of a stage that have a size."""
    unifier = unifier_of(analysis, stage)
    if unifier is None:
        return []
    return [(name, size) for name in variables if (size := unifier.size(stage, name)) is not None]


def one_line(node: ast.Expression | ast.TypeExpression | ast.Argument | ast.Param | ast.Field) -> str:
    """A part of a file as written, on one line."""
    return " ".join(node.span.text.split())
