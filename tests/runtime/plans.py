"""Launch plans and programs for the runtime's tests, written by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gmiflow.plan import (
    PLAN_VERSION,
    ChannelPlan,
    CollectivePlan,
    EdgePlan,
    GMIPlan,
    LaunchPlan,
    SourcePlan,
    StagePlan,
    TargetPlan,
    TrainingPlan,
)
from gmiflow.runtime.program import Program

EXPERIENCE = {"obs": "f32[env, 4]", "action": "f32[env, 2]"}
EDGES = (
    EdgePlan(source="sim.obs", target="actor.obs", type="f32[env, 4]", lift=False),
    EdgePlan(source="actor.action", target="sim.action", type="f32[env, 2]", lift=False),
    EdgePlan(source="actor.experience", target="learner.experience", type=EXPERIENCE, lift=True),
    EdgePlan(source="actor.bootstrap", target="learner.bootstrap", type="f32[env]", lift=False),
    EdgePlan(source="sim.reward", target="learner.reward", type="f32[env]", lift=True),
    EdgePlan(source="sim.terminated", target="learner.terminated", type="bool[env]", lift=True),
    EdgePlan(source="sim.truncated", target="learner.truncated", type="bool[env]", lift=True),
    EdgePlan(source="learner.weights", target="actor.weights", type="weights", lift=False),
)


def stage(name: str, role: Any, entry: str, line: int) -> StagePlan:
    params = {"lr": 0.01} if role == "trainer" else {}
    return StagePlan(
        name=name, role=role, entry=entry, params=params, shapes={"O": 4, "A": 2}, file="point_mass.gmi", line=line
    )


def training_plan(
    simulator: str = "PointMass", trainer: str = "Learner", name: str = "train", num_env: int = 64, **changes: Any
) -> TrainingPlan:
    plan = TrainingPlan(
        name=name,
        mode="sync",
        max_staleness=0,
        seed=7,
        num_env=num_env,
        horizon=8,
        stratum=16,
        iterations=6,
        checkpoint_every=0,
        precision="f32",
        execution="eager",
        mapping="dp_only",
        on_failure="stop",
        gmi=None,
        stages=(
            stage("sim", "simulator", simulator if ":" in simulator else f"point_mass:{simulator}", 3),
            stage("actor", "agent", "point_mass:Actor", 9),
            stage("learner", "trainer", trainer if ":" in trainer else f"point_mass:{trainer}", 14),
        ),
        edges=EDGES,
    )
    return dataclasses.replace(plan, **changes)


def launch_plan(*trainings: TrainingPlan, gmis: int = 2, collective: Any = "ip") -> LaunchPlan:
    """Each training on ``gmis`` GMIs with one core each, slices of equal size."""
    members: list[GMIPlan] = []
    collectives: list[CollectivePlan] = []
    for training in trainings:
        first = len(members)
        for rank in range(gmis):
            number = first + rank
            members.append(
                GMIPlan(
                    id=number,
                    training=training.name,
                    program=f"gmi_{number:02d}.py",
                    backend="cpu",
                    device=0,
                    share=1 / gmis,
                    cores=1,
                    threads=1,
                    stages=tuple(s.name for s in training.stages),
                    num_env=training.num_env // gmis,
                    env_offset=training.num_env // gmis * rank,
                )
            )
        if gmis > 1:
            group = tuple(range(first, first + gmis))
            collectives.append(
                CollectivePlan(name=f"{training.name}.gradient", training=training.name, kind=collective, members=group)
            )
    return LaunchPlan(
        version=PLAN_VERSION,
        generator="gmiflow tests",
        source=SourcePlan(file="point_mass.gmi", sha256="0" * 64, workflow="train"),
        target=TargetPlan(name="detected", device="cpu", devices=1, gmi_per_gpu=gmis, cores=2, memory_mib=0),
        trainings=trainings,
        gmis=tuple(members),
        collectives=tuple(collectives),
    )


GROUPS = (
    ("actor.experience.obs", "actor.experience.action", "sim.reward"),
    ("actor.bootstrap@last",),
    ("sim.terminated", "sim.truncated"),
)


def split_plan(
    training: TrainingPlan, *, agents: int = 1, trainers: int = 1, depth: int = 1, drop: bool = False
) -> LaunchPlan:
    """A training on GMIs that collect and GMIs that train, mapping `ea_t`; agents first."""
    edges = training.edges
    if drop:
        edges = tuple(dataclasses.replace(e, on_full="drop_oldest") if e.lift else e for e in edges)
    training = dataclasses.replace(training, mapping="ea_t", edges=edges)
    whole = launch_plan(training, gmis=1)
    gmis: list[GMIPlan] = []
    for count, stages in ((agents, ("sim", "actor")), (trainers, ("learner",))):
        size = training.num_env // count
        for rank in range(count):
            number = len(gmis)
            gmis.append(
                dataclasses.replace(
                    whole.gmis[0],
                    id=number,
                    program=f"gmi_{number:02d}.py",
                    share=1 / (agents + trainers),
                    stages=stages,
                    num_env=size,
                    env_offset=size * rank,
                )
            )
    channels: list[ChannelPlan] = []
    for consumer in gmis[agents:]:
        last = consumer.env_offset + consumer.num_env
        feeding = [g for g in gmis[:agents] if g.env_offset < last and g.env_offset + g.num_env > consumer.env_offset]
        for producers in [[g] for g in feeding] if drop else [feeding]:
            first = max(consumer.env_offset, producers[0].env_offset)
            end = min(last, producers[-1].env_offset + producers[-1].num_env)
            channels.append(
                ChannelPlan(
                    name=f"{training.name}.experience.{len(channels)}",
                    training=training.name,
                    kind="host",
                    producers=tuple(g.id for g in producers),
                    consumer=consumer.id,
                    depth=depth,
                    on_full="drop_oldest" if drop else "block",
                    env_offset=first,
                    num_env=end - first,
                    groups=GROUPS,
                )
            )
    members = tuple(range(agents, agents + trainers))
    group = CollectivePlan(name=f"{training.name}.gradient", training=training.name, kind="ip", members=members)
    collectives = (group,) if trainers > 1 and training.update == "reduce" else ()
    return dataclasses.replace(whole, gmis=tuple(gmis), channels=tuple(channels), collectives=collectives)


STEP_GROUPS = (("sim.obs",), ("actor.action",))


def serve_plan(mapping: Any = "dp_only", *, simulators: int = 1, agents: int = 1, **changes: Any) -> LaunchPlan:
    """Simulator and agent without a trainer; in a split mapping the simulators' GMIs come first."""
    training = training_plan(**{"name": "serve", "mode": "serve", "mapping": mapping, **changes})
    training = dataclasses.replace(training, stages=training.stages[:2], edges=EDGES[:2])
    whole = launch_plan(training, gmis=1)
    groups = (
        [(simulators, ("sim", "actor"))] if mapping == "dp_only" else [(simulators, ("sim",)), (agents, ("actor",))]
    )
    total = sum(count for count, _ in groups)
    gmis: list[GMIPlan] = []
    for count, stages in groups:
        size = training.num_env // count
        for rank in range(count):
            gmis.append(
                dataclasses.replace(
                    whole.gmis[0],
                    id=len(gmis),
                    program=f"gmi_{len(gmis):02d}.py",
                    share=1 / total,
                    stages=stages,
                    num_env=size,
                    env_offset=size * rank,
                )
            )
    channels = [
        ChannelPlan(
            name=f"serve.step.{gmi.id}",
            training="serve",
            kind="host",
            producers=(gmi.id,),
            consumer=next(a.id for a in gmis[simulators:] if a.env_offset <= gmi.env_offset < a.env_offset + a.num_env),
            depth=1,
            on_full="block",
            env_offset=gmi.env_offset,
            num_env=gmi.num_env,
            groups=STEP_GROUPS,
            carries="step",
        )
        for gmi in (gmis[:simulators] if mapping != "dp_only" else [])
    ]
    return dataclasses.replace(whole, gmis=tuple(gmis), channels=tuple(channels), collectives=())


RESULT_GROUPS = (("sim.obs", "sim.reward", "sim.terminated", "sim.truncated"), ("actor.action",))


def apart_plan(training: TrainingPlan, mapping: Any, *, pairs: int = 1, trainers: int = 1) -> LaunchPlan:
    """A training whose simulators are in GMIs of their own, which come first: `e_at`, or `dp_mp`."""
    training = dataclasses.replace(training, mapping=mapping)
    if mapping == "e_at":
        whole = launch_plan(training, gmis=pairs)
        rest = [dataclasses.replace(gmi, stages=("actor", "learner")) for gmi in whole.gmis]
    else:
        whole = split_plan(training, agents=pairs, trainers=trainers)
        whole = dataclasses.replace(whole, trainings=(dataclasses.replace(whole.trainings[0], mapping=mapping),))
        rest = [dataclasses.replace(gmi, stages=("actor",)) for gmi in whole.gmis[:pairs]] + list(whole.gmis[pairs:])
    gmis = [dataclasses.replace(gmi, stages=("sim",)) for gmi in whole.gmis[:pairs]] + [
        dataclasses.replace(gmi, id=gmi.id + pairs, program=f"gmi_{gmi.id + pairs:02d}.py") for gmi in rest
    ]
    steps = [
        ChannelPlan(
            name=f"{training.name}.step.{gmi.id}",
            training=training.name,
            kind="host",
            producers=(gmi.id,),
            consumer=gmi.id + pairs,
            depth=1,
            on_full="block",
            env_offset=gmi.env_offset,
            num_env=gmi.num_env,
            groups=RESULT_GROUPS,
            carries="step",
        )
        for gmi in gmis[:pairs]
    ]
    rollouts = [
        dataclasses.replace(c, producers=tuple(g + pairs for g in c.producers), consumer=c.consumer + pairs)
        for c in whole.channels
    ]
    collectives = [dataclasses.replace(c, members=tuple(g + pairs for g in c.members)) for c in whole.collectives]
    return dataclasses.replace(whole, gmis=tuple(gmis), channels=(*steps, *rollouts), collectives=tuple(collectives))


def _serving(plan: LaunchPlan, training: str) -> tuple[int, ...]:
    """What a generated program says of the members of a training that only serves."""
    members = tuple(gmi.id for gmi in plan.members(training))
    return members if plan.training(training).mode == "serve" and len(members) > 1 else ()


def program_of(plan: LaunchPlan, gmi: int) -> Program:
    own = plan.gmis[gmi]
    return Program(
        gmis=len(plan.gmis),
        gmi=own,
        training=plan.training(own.training),
        collectives=tuple(c for c in plan.collectives if gmi in c.members),
        channels=tuple(c for c in plan.channels if c.training == own.training),
        members=_serving(plan, own.training),
    )


PROGRAM = """from gmiflow.plan import LaunchPlan
from gmiflow.runtime import Program, main

plan = LaunchPlan.from_json({text!r})
own = plan.gmis[{gmi}]
PROGRAM = Program(
    gmis=len(plan.gmis),
    gmi=own,
    training=plan.training(own.training),
    collectives=tuple(c for c in plan.collectives if own.id in c.members),
    channels=tuple(c for c in plan.channels if c.training == own.training),
    members={members!r},
)

if __name__ == "__main__":
    main(PROGRAM)
"""


def write_programs(plan: LaunchPlan, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for gmi in plan.gmis:
        members = _serving(plan, gmi.training)
        (directory / gmi.program).write_text(PROGRAM.format(text=plan.to_json(), gmi=gmi.id, members=members))
    return directory
