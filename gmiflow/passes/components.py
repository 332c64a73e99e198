"""From a checked workflow to the IR: stages with resolved types, edges, components, replicas and seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from gmiflow.ir.workflow import Component, Edge, Port, Stage, Target, Workflow
from gmiflow.passes.matching import Wire
from gmiflow.passes.params import UnitScope
from gmiflow.passes.placement import part
from gmiflow.passes.settings import Found
from gmiflow.passes.stages import StageOf, StagePort
from gmiflow.passes.types import Weights, variables, without_time
from gmiflow.passes.wiring import Wiring
from gmiflow.passes.workflows import CheckedWorkflow
from gmiflow.syntax import ast


def build(checked: CheckedWorkflow, target: Target, scope: UnitScope) -> Workflow:
    """The IR of a workflow that is whole. Replica r of a component has the workflow's seed + r.

    A mapping that is `auto` becomes one that parts what `place` puts on different devices.
    """
    settings = checked.settings
    source = scope.unit.source
    workflow = Workflow(
        name=checked.declaration.name.text,
        file=source.name,
        sha256=hashlib.sha256(source.text.encode("utf-8", "replace")).hexdigest(),
        mode=settings["mode"],
        max_staleness=settings["max_staleness"],
        deterministic=settings["deterministic"],
        num_env=settings["num_env"],
        horizon=settings["horizon"],
        seed=settings["seed"],
        iterations=settings["iterations"],
        checkpoint_every=settings["checkpoint_every"],
        precision=settings["precision"],
        execution=settings["execution"],
        sizing=checked.sizing,
        on_failure=settings["on_failure"],
        gmi=settings["gmi"],
        joint=settings["joint"],
        target=target,
        components=tuple(_components(checked)),
        params=_params(scope),
        span=checked.declaration.name.span,
        said={name: found.value_span for name, found in checked.found.items()},
    )
    return part(workflow)


def _components(checked: CheckedWorkflow) -> list[Component]:
    wiring, settings = checked.wiring, checked.settings
    group_of = {stage.name: index for index, group in enumerate(checked.components) for stage in group}
    edges: list[list[Edge]] = [[] for _ in checked.components]
    for wire in wiring.wires:
        edges[group_of[wire.source.name]].append(_edge(wire, wiring))
    found: list[Component] = []
    for index, group in enumerate(checked.components):
        stages = tuple(_stage(stage, wiring, checked.place, settings["mode"]) for stage in group)
        for replica in range(settings["replicas"]):
            label = _label(checked, group, replica)
            seed = settings["seed"] + replica
            found.append(Component(name=label, seed=seed, stages=stages, edges=tuple(edges[index])))
    return found


def _params(scope: UnitScope) -> tuple[tuple[str, Any, str], ...]:
    """Parameters of the file: name, value, origin."""
    found: list[tuple[str, Any, str]] = []
    for param in cast("list[ast.Param]", scope.unit.declared(ast.Param)):
        value, given = scope.param(param), scope.given.get(param.name.text)
        if value is not None:
            found.append((param.name.text, value.value, given.origin if given is not None else "default"))
    return tuple(found)


def _label(checked: CheckedWorkflow, group: tuple[StageOf, ...], replica: int) -> str:
    """`train`; `train.sim` with several components; a number at the end with several replicas."""
    simulator = next(stage.name for stage in group if stage.role == "simulator")
    parts = [checked.declaration.name.text]
    parts += [simulator] if len(checked.components) > 1 else []
    parts += [str(replica)] if checked.settings["replicas"] > 1 else []
    return ".".join(parts)


def _stage(stage: StageOf, wiring: Wiring, place: Mapping[str, Found], mode: str) -> Stage:
    made = stage.type
    assert made is not None
    names = sorted({name for port in made.ports.values() if port.shape is not None for name in variables(port.shape)})
    placed = place.get(stage.name)
    shapes = tuple((name, size) for name in names if (size := wiring.unifier.size(stage.name, name)) is not None)
    return Stage(
        name=stage.name,
        role=stage.role,
        type_name=stage.type_name,
        entry=made.entry,
        params=made.params,
        shapes=shapes,
        ports=tuple(_port(stage.name, port, wiring, mode) for port in made.ports.values()),
        needs=made.needs,
        place=cast("tuple[int, ...]", placed.value.value) if placed is not None and placed.value is not None else None,
        place_span=placed.value_span if placed is not None else None,
        python=stage.python,
        update=made.update,
        span=stage.declaration.name.span,
    )


def _port(stage: str, port: StagePort, wiring: Wiring, mode: str) -> Port:
    assert port.shape is not None
    kind = wiring.unifier.resolve(stage, port.shape)
    assert kind is not None
    optional = port.optional or (mode == "serve" and isinstance(port.shape, Weights))
    return Port(name=port.name, direction=port.direction, type=kind, range=port.range, optional=optional)


def _edge(wire: Wire, wiring: Wiring) -> Edge:
    assert wire.source_port.shape is not None
    kind = wiring.unifier.resolve(wire.source.name, without_time(wire.source_port.shape))
    assert kind is not None
    return Edge(
        source_stage=wire.source.name,
        source_port=wire.source_port.name,
        target_stage=wire.target.name,
        target_port=wire.target_port.name,
        type=kind,
        lift=wire.lift,
        depth=wire.depth,
        on_full=cast("Any", wire.on_full),
        span=wire.span,
    )
