"""Channels of a split serve workflow: each simulator GMI hands its observations to an agent GMI and gets actions back.

Part of communication lowering. The ring has one slot: the agent gives it back with the answer in it.
"""

from __future__ import annotations

from gmiflow.ir.comm import Channel
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Component, TensorType
from gmiflow.passes.crossing import memory_between, step_bytes, tensors_of

__all__ = ["lower_steps"]


def lower_steps(sized: SizedWorkflow, component: Component) -> list[Channel]:
    """One channel for each simulator GMI of a component, in their order."""
    parts = [(index, part) for index, part in enumerate(sized.slices) if part.component == component.name]
    agents = [(index, part) for index, part in parts if "agent" in part.group]
    there, back = (_tensors(component, "simulator"), _tensors(component, "agent"))
    found: list[Channel] = []
    for index, part in ((index, part) for index, part in parts if "simulator" in part.group):
        consumer, agent = next((i, a) for i, a in agents if a.env_offset <= part.env_offset < a.env_offset + a.num_env)
        found.append(
            Channel(
                name=f"{component.name}.step.{index}",
                component=component.name,
                kind=memory_between(sized, [part, agent]),
                producers=(index,),
                consumer=consumer,
                depth=1,
                on_full="block",
                env_offset=part.env_offset,
                num_env=part.num_env,
                groups=(tuple(there), tuple(back)),
                bytes=sum(step_bytes(kind, part.num_env) for kind in (*there.values(), *back.values())),
                top_mov=0.0,
            )
        )
    return found


def _tensors(component: Component, source: str) -> dict[str, TensorType]:
    """What one stage of the loop gives to the other in every step, by "stage.port" or "stage.port.field"."""
    names = {stage.name for stage in component.stages if stage.role == source}
    found: dict[str, TensorType] = {}
    for edge in (edge for edge in component.edges if edge.source_stage in names):
        found.update(tensors_of(edge))
    return found
