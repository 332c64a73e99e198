"""Planning: from a `CommWorkflow` to the `LaunchPlan`. Purely a change of vocabulary: nothing is decided here."""

from __future__ import annotations

import math

from gmiflow import __version__
from gmiflow.ir.comm import Channel, CommWorkflow
from gmiflow.ir.workflow import Component, Edge, PortType, RecordType, Stage, Value
from gmiflow.plan import (
    PLAN_VERSION,
    ChannelPlan,
    CollectivePlan,
    EdgePlan,
    GMIPlan,
    Json,
    LaunchPlan,
    SourcePlan,
    StagePlan,
    TargetPlan,
    TrainingPlan,
)


def plan(comm: CommWorkflow) -> LaunchPlan:
    """Write the plan."""
    sized = comm.sized
    workflow = sized.mapped.workflow
    width = max(2, len(str(len(sized.slices) - 1)))
    gmis = tuple(
        GMIPlan(
            id=index,
            training=part.component,
            program=f"gmi_{index:0{width}d}.py",
            backend=sized.backend,
            device=part.device,
            share=_digits(part.share),
            cores=part.cores,
            threads=part.threads,
            stages=_stage_names(comm, part.component, part.group),
            num_env=part.num_env,
            env_offset=part.env_offset,
            memory_mib=part.memory_mib,
            host=part.host,
            joint=part.joint,
        )
        for index, part in enumerate(sized.slices)
    )
    return LaunchPlan(
        version=PLAN_VERSION,
        generator=f"gmiflow {__version__}",
        source=SourcePlan(file=workflow.file, sha256=workflow.sha256, workflow=workflow.name),
        target=TargetPlan(
            name=workflow.target.name,
            device=workflow.target.device,
            devices=workflow.target.devices,
            gmi_per_gpu=sized.gmi_per_gpu,
            cores=sized.cores,
            memory_mib=workflow.target.memory_bytes >> 20,
        ),
        trainings=tuple(_training(comm, component) for component in workflow.components),
        gmis=gmis,
        collectives=tuple(
            CollectivePlan(name=c.name, training=c.component, kind=c.kind, members=c.members, rings=c.rings)
            for c in comm.collectives
        ),
        channels=tuple(_channel(channel) for channel in comm.channels),
    )


def _digits(share: float) -> float:
    """A share with six digits, rounded down: those of a device must not be more than it has."""
    return math.floor(round(share * 1e6, 3)) / 1e6


def _channel(channel: Channel) -> ChannelPlan:
    return ChannelPlan(
        name=channel.name,
        training=channel.component,
        kind=channel.kind,
        producers=channel.producers,
        consumer=channel.consumer,
        depth=channel.depth,
        on_full=channel.on_full,
        env_offset=channel.env_offset,
        num_env=channel.num_env,
        groups=channel.groups,
        carries=channel.carries,
    )


def _stage_names(comm: CommWorkflow, component: str, group: tuple[str, ...]) -> tuple[str, ...]:
    found = next(c for c in comm.sized.mapped.workflow.components if c.name == component)
    return tuple(stage.name for stage in found.stages if stage.role in group)


def _training(comm: CommWorkflow, component: Component) -> TrainingPlan:
    sized = comm.sized
    workflow = sized.mapped.workflow
    return TrainingPlan(
        name=component.name,
        mode=workflow.mode,
        max_staleness=workflow.max_staleness,
        seed=component.seed,
        num_env=sized.num_env,
        horizon=workflow.horizon,
        stratum=sized.stratum,
        iterations=workflow.iterations,
        checkpoint_every=workflow.checkpoint_every,
        precision=workflow.precision,
        execution=sized.execution,
        mapping=sized.mapped.template,
        on_failure=workflow.on_failure,
        gmi=workflow.gmi,
        stages=tuple(_stage(stage) for stage in component.stages),
        edges=tuple(_edge(edge) for edge in component.edges),
        update=component.update,
        deterministic=workflow.deterministic,
        prediction=sized.prediction,
    )


def _stage(stage: Stage) -> StagePlan:
    source = stage.span.source
    return StagePlan(
        name=stage.name,
        role=stage.role,
        entry=stage.entry,
        params={name: _json(value) for name, value in stage.params},
        shapes=dict(stage.shapes),
        file=source.name,
        line=source.text.count("\n", 0, stage.span.start) + 1,
        python=stage.python,
    )


def _json(value: Value) -> Json:
    return [_json(item) for item in value] if isinstance(value, tuple) else value


def _edge(edge: Edge) -> EdgePlan:
    return EdgePlan(
        source=f"{edge.source_stage}.{edge.source_port}",
        target=f"{edge.target_stage}.{edge.target_port}",
        type=type_text(edge.type),
        lift=edge.lift,
        depth=edge.depth,
        on_full=edge.on_full,
    )


def type_text(kind: PortType) -> str | dict[str, str]:
    """A port type as the plan writes it: "f32[env, 60]", field name to such text, or "weights"."""
    if isinstance(kind, RecordType):
        return {name: str(field) for name, field in kind.fields}
    return str(kind)
