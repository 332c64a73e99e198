"""Steps that cross between two GMIs: one simulates, the other one has the agent.

Here in serving, where the one that simulates asks for actions; in training the one with the agent asks for steps
(`simulators`), through the same slot.

The channel is a ring of one slot. The simulator's GMI puts observations in and publishes; the agent's GMI writes the
actions into the same slot and gives it back. Where the slot is on the device of the GMI nothing else is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gmiflow.api import Agent, Ports, StageContext
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.channel.dispenser import Kind
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.execution.rollout import STATISTICS, Field, Routes, fields_of
from gmiflow.runtime.execution.types import TensorType
from gmiflow.runtime.turn import Turn

__all__ = ["STEP_YIELDS", "RemoteAgent", "Seat", "Slot", "ports_of", "results_of", "step_kinds", "taken", "wires_of"]

STEP_YIELDS = 1000
"""Times that a core is offered to others before a wait within a step sleeps: answers come within a step's time."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One tensor that crosses: where it comes from, and the in port that it belongs to."""

    field: Field
    port: str


def step_kinds(training: TrainingPlan) -> tuple[Kind, ...]:
    """What crosses between simulator and agent in a step, in the order of the edges; each kind is [1, num_env, ...]."""
    routes = Routes(training)
    there, back = ([wire.field for wire in wires_of(training, source)] for source in (routes.simulator, routes.agent))
    fields = [*there, *results_of(training), *back]
    return tuple(Kind(field, True) for field in {field.label: field for field in fields}.values())


def results_of(training: TrainingPlan) -> list[Field]:
    """What else a simulator gives in a step: for the trainer, and for the sums over episodes.

    Nothing in serving, where the GMI that simulates counts its episodes itself.
    """
    if training.mode == "serve":
        return []
    routes = Routes(training)
    results = [field for edge in routes.trainer_edges() for field in fields_of(edge) if field.stage == routes.simulator]
    counted = [Field(routes.simulator, port, None, TensorType.parse(text)) for port, text in STATISTICS.items()]
    return list({field.label: field for field in (*counted, *results)}.values())


def wires_of(training: TrainingPlan, source: str) -> tuple[Wire, ...]:
    """What the stage ``source`` gives to the other one of the loop in a step."""
    routes = Routes(training)
    other = routes.agent if source == routes.simulator else routes.simulator
    edges = [edge for edge in training.edges if edge.target.partition(".")[0] == other]
    return tuple(
        Wire(field, edge.target.partition(".")[2])
        for edge in edges
        for field in fields_of(edge)
        if field.stage == source
    )


class Slot:
    """The slot of a channel as tensors of one step, by the label of their field.

    Attributes:
        there, back: on this GMI's device: the slot's own memory when it is ``direct``, else copies.
        direct: whether the slot is on this GMI's device.
    """

    def __init__(self, link: Link, device: torch.device) -> None:
        shared = {name: value[0] for name, value in link.slots[0].items()}
        self._there, self._back = ({name: shared[name] for name in group} for group in link.plan.groups)
        self.direct = link.is_on(device)
        self.there, self.back = self._there, self._back
        if not self.direct:
            self.there, self.back = (
                {name: torch.empty_like(value, device=device) for name, value in part.items()}
                for part in (self._there, self._back)
            )
        self._link, self._device = link, device

    def settle(self) -> None:
        """Wait until what was enqueued is done: who reads the slot is another process."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def fetch_there(self) -> None:
        """Take over the observations."""
        if not self.direct:
            self._link.copy_all(self._there, self.there)

    def fetch_back(self) -> None:
        """Take over the actions."""
        if not self.direct:
            self._link.copy_all(self._back, self.back)

    def put_there(self) -> None:
        """Bring the observations into the slot."""
        if not self.direct:
            self._link.copy_all(self.there, self._there)
        self.settle()

    def put_back(self) -> None:
        """Bring the actions into the slot."""
        if not self.direct:
            self._link.copy_all(self.back, self._back)
        self.settle()


class RemoteAgent(Agent):
    """Stands in a simulator's GMI for the agent in another one.

    Attributes:
        wait_s: seconds waited for actions so far.
        bytes: that crossed so far, both ways.
    """

    def __init__(self, link: Link, training: TrainingPlan, device: torch.device, turn: Turn) -> None:
        """Ask through ``link``."""
        routes = Routes(training)
        self._link, self._turn = link, turn
        self._slot = Slot(link, device)
        self._wires = wires_of(training, routes.simulator)
        fields = (wire.field for wire in wires_of(training, routes.agent))
        self._actions = ports_of((field.port, field.field, self._slot.back[field.label]) for field in fields)
        self.wait_s = 0.0
        self.bytes = 0

    @staticmethod
    def make_policy(context: StageContext) -> nn.Module:
        """Nothing to train or to load."""
        return nn.Module()

    def setup(self, context: StageContext) -> None:
        """Nothing: the channel is open."""

    def act(self, inputs: Ports) -> Ports:
        """Hand over observations and wait for the actions, which are the same tensors at every call.

        Raises:
            GMIError: E0704, E0705 when the other GMI is gone or late.
        """
        for wire in self._wires:
            self._slot.there[wire.field.label].copy_(taken(inputs, wire))
        self._slot.put_there()
        ring = self._link.ring
        ring.publish(0)
        with self._turn.yielded():
            self.wait_s += wait_for(lambda: ring.answered, ring.watch.look, yields=STEP_YIELDS)
        self._slot.fetch_back()
        self.bytes += self._link.layout.payload_bytes
        return self._actions

    def finish(self, inputs: Ports) -> Ports:
        """Nothing: nobody wants the value."""
        return {}


class Seat:
    """In an agent's GMI the place of one simulator GMI: its agent, and the channel to it.

    Attributes:
        gmi: id of the simulator's GMI.
        answers: steps that were acted for.
    """

    def __init__(
        self,
        link: Link,
        training: TrainingPlan,
        agent: Agent,
        device: torch.device,
        lower: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """Answer through ``link``; ``lower`` makes of the work of a step what is called for it."""
        routes = Routes(training)
        self.gmi = link.plan.producers[0]
        self.answers = 0
        self._link, self._agent, self._device = link, agent, device
        self._slot = Slot(link, device)
        asked = wires_of(training, routes.simulator)
        self._inputs = ports_of((wire.port, wire.field.field, self._slot.there[wire.field.label]) for wire in asked)
        self._outputs = tuple(wire.field for wire in wires_of(training, routes.agent))
        self._act = lower(self._compute)

    @property
    def asked(self) -> bool:
        """Whether observations wait for actions."""
        return self._link.ring.asked

    @property
    def left(self) -> bool:
        """Whether the simulator's GMI has said goodbye; it does not while it waits."""
        return self._link.ring.producers[0].left

    @property
    def payload_bytes(self) -> int:
        """Bytes that cross in a step, both ways."""
        return self._link.layout.payload_bytes

    def look(self, waited_s: float) -> None:
        """Raise when the simulator's GMI is gone without a goodbye, or late; see `Watch.look`."""
        self._link.ring.watch.look(waited_s, lambda presence: not presence.left)

    def answer(self) -> None:
        """Act for the observations in the slot and give it back.

        Raises:
            GMIError: E0708 when the agent's actions are not of the declared type.
        """
        self._slot.fetch_there()
        self._act()
        self._slot.put_back()
        self._link.ring.release()
        self.answers += 1

    def _compute(self) -> None:
        acted = self._agent.act(self._inputs)
        for field in self._outputs:
            value = field.read(acted)
            field.type.check(value, field.label, self._link.plan.num_env, self._device)
            self._slot.back[field.label].copy_(value)


def ports_of(values: Iterable[tuple[str, str | None, Tensor]]) -> dict[str, Tensor | Mapping[str, Tensor]]:
    """Ports from (port, field of its record or None, tensor)."""
    found: dict[str, Tensor | Mapping[str, Tensor]] = {}
    for port, name, value in values:
        if name is None:
            found[port] = value
        else:
            found[port] = {**cast("Mapping[str, Tensor]", found.get(port, {})), name: value}
    return found


def taken(inputs: Ports, wire: Wire) -> Tensor:
    """The tensor of a wire in what an agent is given."""
    value = inputs[wire.port]
    return value[wire.field.field] if wire.field.field is not None else cast("Tensor", value)  # type: ignore[index]
