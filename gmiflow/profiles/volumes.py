"""How many bytes a training moves: what the mapping model and the communication model multiply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from gmiflow.ir.workflow import Component, Edge, TensorType
from gmiflow.plan import Role

F32_BYTES = 4
STATISTICS = 16
"""Numbers besides the gradients in the buffer of a minibatch: KL, loss statistics."""
ASSUMED_BYTES = 1 << 20
"""When the stages do not tell the size of their networks."""

DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "bool": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Volumes:
    """The paper's S, A, W and M_p (section 4.2).

    Attributes:
        state, action, reward: bytes of one environment and step: simulator to agent, agent to simulator, and
            simulator to trainer.
        policy: bytes of the weights, which are also those of one gradient.
    """

    state: int
    action: int
    reward: int
    policy: int

    @property
    def step(self) -> int:
        """S + A + W: what the simulator exchanges with the others."""
        return self.state + self.action + self.reward


def volumes_of(component: Component) -> Volumes:
    """Read the volumes off the edges of a training."""

    def between(source: Role, target: Role) -> int:
        names = {role: stage.name for role in (source, target) if (stage := component.stage(role)) is not None}
        return sum(
            _edge_bytes(edge)
            for edge in component.edges
            if edge.source_stage == names.get(source) and edge.target_stage == names.get(target)
        )

    return Volumes(
        state=between("simulator", "agent"),
        action=between("agent", "simulator"),
        reward=between("simulator", "trainer"),
        policy=gradient_bytes(component)[0],
    )


def gradient_bytes(component: Component) -> tuple[int, str]:
    """Size of the buffer that every minibatch reduces, and where the number comes from.

    Two networks O - hidden - A and O - hidden - 1, A standard deviations, and a few statistics, when the agent
    has the parameter `hidden` and the shape variables O and A, as `std.algo.ppo` does; else a usual size.
    """
    agent = component.stage("agent")
    if agent is not None:
        hidden, shapes = dict(agent.params).get("hidden"), dict(agent.shapes)
        if isinstance(hidden, tuple) and "O" in shapes and "A" in shapes:
            inner = [width for width in hidden if isinstance(width, int)]
            widths = [shapes["O"], *inner]
            body = sum((before + 1) * after for before, after in zip(widths, inner, strict=False))
            heads = (widths[-1] + 1) * (shapes["A"] + 1)
            return F32_BYTES * (2 * body + heads + shapes["A"] + STATISTICS), f"networks of {agent.name}"
    return ASSUMED_BYTES, "assumed"


def reductions(component: Component) -> int:
    """All-reduces of one iteration: one per minibatch and epoch, and one for the moments; 0 without a trainer."""
    trainer = component.stage("trainer")
    if trainer is None:
        return 0
    params = dict(trainer.params)
    epochs, minibatches = params.get("epochs", 1), params.get("minibatches", 1)
    return 1 + (cast("int", epochs) * cast("int", minibatches) if _whole(epochs) and _whole(minibatches) else 1)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _edge_bytes(edge: Edge) -> int:
    if not isinstance(edge.type, TensorType):
        return 0
    return DTYPE_BYTES[edge.type.dtype] * math.prod(dim for dim in edge.type.shape if isinstance(dim, int))


def bytes_text(count: float) -> str:
    """A number of bytes with three digits, in decimal units: "7.56 MB"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit * 0.9995:  # what would be rounded to 1000 of the next smaller unit
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"
