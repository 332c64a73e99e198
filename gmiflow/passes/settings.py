"""Settings of workflows, targets, edges and `needs`: what exists, its type and its bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gmiflow.passes.evaluate import Scope, evaluate
from gmiflow.passes.params import Given
from gmiflow.passes.report import Report
from gmiflow.passes.values import (
    BOOL,
    BYTES,
    DEVICES,
    FRACTION,
    INT,
    PYTHON,
    STRING,
    Typed,
    ValueType,
    automatic,
    enum,
    show,
)
from gmiflow.source import Span
from gmiflow.syntax import ast


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One setting: its type and the least and the largest number that it may be."""

    type: ValueType
    minimum: float | None = None
    maximum: float | None = None


# Far above what any machine runs, and low enough that the compiler answers at once (docs/language.md, "Limits").
MAX_NUM_ENV = 2**31
MAX_HORIZON = 2**20
MAX_ITERATIONS = 2**62
MAX_REPLICAS = 1024
MAX_STALENESS = 1024
MAX_DEPTH = 1024
MAX_DEVICES = 1024
MAX_GMIS_PER_DEVICE = 256
MAX_GMIS = 4096
MAX_CORES = 2**16
MAX_SM_COUNT = 2**16


MODES = ("sync", "async", "serve")
WORKFLOW: dict[str, Spec] = {
    "mode": Spec(type=enum(*MODES)),
    "num_env": Spec(type=automatic(INT), minimum=1, maximum=MAX_NUM_ENV),
    "horizon": Spec(type=INT, minimum=1, maximum=MAX_HORIZON),
    "iterations": Spec(type=INT, minimum=1, maximum=MAX_ITERATIONS),
    "checkpoint_every": Spec(type=INT, minimum=0, maximum=MAX_ITERATIONS),
    "seed": Spec(type=INT, minimum=0),
    "replicas": Spec(type=INT, minimum=1, maximum=MAX_REPLICAS),
    "joint": Spec(type=automatic(INT), minimum=1, maximum=MAX_REPLICAS),
    "precision": Spec(type=enum("f32", "tf32", "bf16")),
    "execution": Spec(type=enum("auto", "eager", "graph", "overlap")),
    "on_failure": Spec(type=enum("stop", "restart")),
    "gmi": Spec(type=PYTHON),
}
MODE_BLOCK: dict[str, Spec] = {
    "max_staleness": Spec(type=INT, minimum=0, maximum=MAX_STALENESS),
    "deterministic": Spec(type=BOOL),
}
"""What stands in braces behind a mode: `async { max_staleness = 2 }`, `serve { deterministic = true }`."""
SIZING: dict[str, Spec] = {
    "objective": Spec(type=enum("throughput", "time_to_reward")),
    "batch": Spec(type=enum("fixed", "free")),
}
EDGE: dict[str, Spec] = {
    "depth": Spec(type=INT, minimum=1, maximum=MAX_DEPTH),
    "on_full": Spec(type=enum("block", "drop_oldest")),
}
STAGE: dict[str, Spec] = {"python": Spec(type=STRING)}
STAGE_TYPE: dict[str, Spec] = {"entry": Spec(type=PYTHON), "update": Spec(type=enum("reduce", "apply"))}
NEEDS: dict[str, Spec] = {
    "memory": Spec(type=BYTES, minimum=0),
    "memory_per_env": Spec(type=BYTES, minimum=0),
    "cores": Spec(type=INT, minimum=1, maximum=MAX_CORES),
    "sm_count": Spec(type=INT, minimum=1, maximum=MAX_SM_COUNT),
    "gpu": Spec(type=BOOL),
}
PLACE = Spec(type=DEVICES)
TARGET: dict[str, Spec] = {
    "device": Spec(type=enum("cpu", "cuda")),
    "devices": Spec(type=INT, minimum=1, maximum=MAX_DEVICES),
    "gpu": Spec(type=STRING),
    "sm_count": Spec(type=INT, minimum=0, maximum=MAX_SM_COUNT),
    "memory": Spec(type=BYTES, minimum=1),
    "reserve": Spec(type=BYTES, minimum=0),
    "cores": Spec(type=INT, minimum=0, maximum=MAX_CORES),
    "backend": Spec(type=enum("auto", "cpu", "timeshare", "mps", "mig", "green")),
    "gmi_per_gpu": Spec(type=automatic(INT), minimum=1, maximum=MAX_GMIS_PER_DEVICE),
    "agents": Spec(type=automatic(INT), minimum=1, maximum=MAX_GMIS_PER_DEVICE),
    "trainers": Spec(type=automatic(INT), minimum=1, maximum=MAX_GMIS_PER_DEVICE),
    "simulators": Spec(type=automatic(INT), minimum=1, maximum=MAX_GMIS_PER_DEVICE),
    "agent_share": Spec(type=automatic(FRACTION), minimum=0.01, maximum=0.99),
    "mapping": Spec(type=enum("auto", "dp_only", "dp_mp", "e_at", "ea_t", "mp_dp")),
    "collective": Spec(type=enum("auto", "local", "ip", "rp", "ipc", "hybrid", "nccl_multirank")),
    "rings": Spec(type=automatic(INT), minimum=0, maximum=MAX_GMIS_PER_DEVICE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A setting's value, None where it is wrong, and the places of name and value."""

    value: Typed | None
    name_span: Span
    value_span: Span


def read_settings(
    settings: Sequence[ast.Setting],
    specs: Mapping[str, Spec],
    scope: Scope,
    report: Report,
    *,
    owner: str,
    overrides: Mapping[str, Given] | None = None,
    skip: Sequence[str] = (),
) -> dict[str, Found]:
    """Evaluate settings against their specs; unknown and repeated ones are reported.

    Args:
        settings: as written.
        specs: what there is, by name.
        scope: what names mean in the values.
        report: where problems go.
        owner: what has the settings, for messages ("a workflow").
        overrides: values from `--set`, used in place of what is written.
        skip: names that the caller reads itself.
    """
    found: dict[str, Found] = {}
    seen: dict[str, Span] = {}
    for setting in settings:
        name = setting.name.text
        if name in seen:
            first = [(seen[name], "first set here")]
            report.add("E0202", f"`{name}` is set twice", setting.name.span, secondary=first)
            continue
        seen[name] = setting.name.span
        if name in skip:
            continue
        if name not in specs:
            known = [*specs, *skip]
            report.unknown(
                "E0209", f"{owner} has no setting `{name}`", setting.name.span, name, known,
                what="settings are", note=_home(name),
            )  # fmt: skip
            continue
        if setting.block is not None and name != "mode":
            report.add("E0209", f"`{name}` takes no block", setting.block[0].span if setting.block else setting.span)
        if overrides is None or name not in overrides:
            found[name] = _read(name, setting.value, specs[name], scope, report, setting.name.span)
    for name, given in (overrides or {}).items():
        if name in specs:
            place = given.expression.span
            found[name] = _read(name, given.expression, specs[name], given.scope, report, place)
    return found


def _read(name: str, value: ast.Expression, spec: Spec, scope: Scope, report: Report, name_span: Span) -> Found:
    typed = evaluate(value, scope, report, spec.type)
    number = None if typed is None or typed.is_auto else typed.value
    if isinstance(number, int | float):
        bound = ""
        if spec.minimum is not None and number < spec.minimum:
            bound = f"at least {spec.minimum:,}"
        elif spec.maximum is not None and number > spec.maximum:
            bound = f"at most {spec.maximum:,}"
        if bound:
            percent = spec.type.dimension == "fraction" and 1 < number <= 100
            notes = [f"a part of 1; as a percentage it is written `{show(number)} %`"] if percent else []
            report.add("E0408", f"`{name}` is {bound}, not {show(number)}", value.span, notes=notes)
            typed = None
    return Found(value=typed, name_span=name_span, value_span=value.span)


def split_body(
    body: Sequence[ast.Statement],
    allowed: tuple[type[ast.Statement], ...],
    sections: Sequence[str],
    owner: str,
    report: Report,
) -> dict[type[ast.Statement], list[ast.Statement]]:
    """Sort a body's statements by kind and report those that do not belong there.

    Args:
        body: as written.
        allowed: kinds of statements that belong there, besides sections.
        report: where problems go.
        sections: names of the sections that are allowed.
        owner: what has the body, for messages.
    """
    found: dict[type[ast.Statement], list[ast.Statement]] = {kind: [] for kind in _STATEMENTS}
    seen: dict[str, Span] = {}
    for statement in body:
        if isinstance(statement, ast.Section):
            name = statement.name.text
            if name not in sections:
                message = f"{owner} has no section `{name}`"
                report.unknown(
                    "E0209",
                    message,
                    statement.name.span,
                    name,
                    sections,
                    what="sections are",
                    note=_home(name, sign=True),
                )
                continue
            if name in seen:
                first = [(seen[name], "first written here")]
                report.add("E0202", f"`{name}` is written twice", statement.name.span, secondary=first)
                continue
            seen[name] = statement.name.span
        elif not isinstance(statement, allowed):
            kind = _STATEMENTS[type(statement)]
            notes = [f"{kind} belongs in {_HOMES[type(statement)]}"] if type(statement) in _HOMES else []
            report.add("E0116", f"{kind} does not belong in {owner}", statement.span, notes=notes)
            continue
        found[type(statement)].append(statement)
    return found


def _home(name: str, *, sign: bool = False) -> str:
    """Where something of that name belongs, for one who wrote it elsewhere; "" where there is no such thing.

    Args:
        name: of a setting or a section.
        sign: say how a setting is written.
    """
    homes = [home for names, home in _PLACES if name in names]
    if sign:
        homes = [f"{home}, written with `=`" if home.startswith("a setting") else home for home in homes]
    return f"`{name}` is {', or '.join(homes)}" if homes else ""


_PLACES: tuple[tuple[Collection[str], str], ...] = (
    (WORKFLOW, "a setting of a workflow"),
    (("sizing", "place"), "a section of a workflow, written with braces"),
    (("max_staleness",), "written behind a mode: `mode = async { max_staleness = 2 }`"),
    (("deterministic",), "written behind a mode: `mode = serve { deterministic = true }`"),
    (SIZING, "written in the section `sizing { ... }` of a workflow"),
    (EDGE, "written in braces behind an edge of an `async` workflow"),
    ((*TARGET, "base"), "a setting of a target"),
    (STAGE, "written in braces behind a stage"),
    (STAGE_TYPE, "a setting of a stage type"),
    (("needs",), "a section of a stage type, written with braces"),
    (NEEDS, "written in the section `needs { ... }` of a stage type"),
)
"""What there is, and where: for `_home`."""

_STATEMENTS: dict[type[ast.Statement], str] = {
    ast.Setting: "a setting",
    ast.Section: "a section",
    ast.Port: "a port",
    ast.Edge: "an edge",
    ast.Require: "`require`",
}
_HOMES: dict[type[ast.Statement], str] = {ast.Port: "a stage type", ast.Edge: "a workflow"}
