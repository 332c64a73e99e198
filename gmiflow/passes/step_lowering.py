"""Channels between GMIs that simulate alone and those with their agents: what a step gives there, and actions back.

Part of communication lowering. The ring has one slot: the agent gives it back with the actions in it. In serving only
what the agent reads crosses; in training the rewards and ends do too, for the agent's GMI records the rollout.
"""

from __future__ import annotations

from gmiflow.ir.comm import Channel
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Component, TensorType
from gmiflow.passes.crossing import memory_between, step_bytes, tensors_of, why_host
from gmiflow.plan import EPISODE_PORTS, Role

__all__ = ["lower_steps"]


def lower_steps(sized: SizedWorkflow, component: Component) -> list[Channel]:
    """One channel for each GMI of a component that simulates alone, in their order."""
    trains = sized.mapped.workflow.mode != "serve"
    parts = [(index, part) for index, part in enumerate(sized.slices) if part.component == component.name]
    agents = [(index, part) for index, part in parts if "agent" in part.group]
    there, back = _tensors(component, "simulator", "agent"), _tensors(component, "agent", "simulator")
    if trains:
        there |= _results(component)
    found: list[Channel] = []
    for index, part in ((i, part) for i, part in parts if "simulator" in part.group and "agent" not in part.group):
        consumer, agent = next((i, a) for i, a in agents if a.env_offset <= part.env_offset < a.env_offset + a.num_env)
        found.append(
            Channel(
                name=f"{component.name}.step.{index}",
                component=component.name,
                kind=memory_between(sized, [part, agent]),
                reason=why_host(sized, [part, agent]),
                producers=(index,),
                consumer=consumer,
                depth=1,
                on_full="block",
                env_offset=part.env_offset,
                num_env=part.num_env,
                groups=(tuple(there), tuple(back)),
                bytes=sum(step_bytes(kind, part.num_env) for kind in (*there.values(), *back.values())),
                top_mov=0.0,
                carries="step",
            )
        )
    return found


def _tensors(component: Component, source: Role, target: Role) -> dict[str, TensorType]:
    """What one stage gives to another in every step, by "stage.port" or "stage.port.field"."""
    names = {stage.role: stage.name for stage in component.stages}
    found: dict[str, TensorType] = {}
    for edge in component.edges:
        if (edge.source_stage, edge.target_stage) == (names.get(source), names.get(target)):
            found.update(tensors_of(edge))
    return found


def _results(component: Component) -> dict[str, TensorType]:
    """What the trainer gets of the simulator, and the signals that episodes are counted by, which every one has."""
    name = next(stage.name for stage in component.stages if stage.role == "simulator")
    counted = {f"{name}.{port}": TensorType(dtype=dtype, shape=("env",)) for port, dtype in EPISODE_PORTS.items()}
    return counted | _tensors(component, "simulator", "trainer")
