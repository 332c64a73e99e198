"""Simulators in GMIs of their own, in training: the GMI with the agent asks for every step.

The channel is that of `steps`: the simulator's GMI fills the slot in and publishes, the other one writes the actions
into it and gives it back. Here it comes back with a command, so that one loop does everything that a simulator is asked
for. State for checkpoints goes through a file in shared memory, which is there only meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from gmiflow.api import Ports, Simulator, StageContext
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.steps import STEP_YIELDS, Slot, ports_of, results_of, taken, wires_of
from gmiflow.runtime.comm.shared_memory import scarce
from gmiflow.runtime.execution.rollout import Field, Routes
from gmiflow.runtime.execution.types import fits
from gmiflow.runtime.restoring import restore
from gmiflow.runtime.turn import Turn

__all__ = ["RemoteSimulator", "SimulatorSeat"]


class _Command(enum.IntEnum):
    """What a simulator is asked for."""

    RESET = 1
    OBSERVE = 2
    STEP = 3
    SAVE = 4
    LOAD = 5
    END = 6


class RemoteSimulator(Simulator):
    """Stands in an agent's GMI for the simulator in another one."""

    def __init__(self, link: Link, training: TrainingPlan, device: torch.device, turn: Turn) -> None:
        """Ask through ``link``."""
        routes = Routes(training)
        first = [wire.field for wire in wires_of(training, routes.simulator)]
        self._link, self._turn = link, turn
        self._slot = Slot(link, device)
        self._wires = wires_of(training, routes.agent)
        self._outputs, self._first = (self._ports(fields) for fields in ([*first, *results_of(training)], first))
        self._state = link.ring.beside(".state")
        self._wait_s = 0.0

    def take_wait_s(self) -> float:
        """Seconds waited for steps since the last call, and start again from zero."""
        taken, self._wait_s = self._wait_s, 0.0
        return taken

    def _ports(self, fields: list[Field]) -> Ports:
        return ports_of((field.port, field.field, self._slot.there[field.label]) for field in fields)

    def setup(self, context: StageContext) -> None:
        """Wait until the simulator is set up.

        Raises:
            GMIError: E0704, E0705 when the other GMI is gone or late; so does all that is asked for.
        """
        self._wait()

    def reset(self) -> Ports:
        """Start all environments; every port is the same tensor at every call of any method."""
        self._ask(_Command.RESET)
        return self._first

    def observe(self) -> Ports:
        """As the simulator's."""
        self._ask(_Command.OBSERVE)
        return self._first

    def step(self, inputs: Ports) -> Ports:
        """Hand over the actions, and wait for what they lead to."""
        for wire in self._wires:
            self._slot.back[wire.field.label].copy_(taken(inputs, wire))
        self._wait_s += self._ask(_Command.STEP)
        return self._outputs

    def state_dict(self) -> dict[str, Tensor]:
        """What the simulator gives, in host memory."""
        self._ask(_Command.SAVE)
        return _read(self._state)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Hand it back to the simulator."""
        _write(self._state, state)
        self._ask(_Command.LOAD)

    def close(self) -> None:
        """Let the other GMI go, if it waits, and leave the channel."""
        if self._link.ring.asked:
            self._link.ring.ask(_Command.END)
        self._state.unlink(missing_ok=True)
        self._link.close()

    def _ask(self, command: _Command) -> float:
        """Give a command, and return the seconds that its answer took."""
        self._slot.put_back()  # also waits until nothing reads the slot any more
        self._link.ring.ask(command)
        waited_s = self._wait()
        self._slot.fetch_there()
        return waited_s

    def _wait(self) -> float:
        ring = self._link.ring
        with self._turn.yielded():
            return wait_for(lambda: ring.asked, ring.look, yields=STEP_YIELDS)


class SimulatorSeat:
    """In a simulator's GMI the place of the GMI that asks for its steps.

    Attributes:
        steps: made so far.
        ended: whether the other GMI needs no more.
        wait_s: seconds waited for commands so far.
    """

    def __init__(
        self, link: Link, training: TrainingPlan, simulator: Simulator, device: torch.device, turn: Turn
    ) -> None:
        """Answer through ``link``."""
        routes = Routes(training)
        self._link, self._simulator, self._turn, self._device = link, simulator, turn, device
        self._slot = Slot(link, device)
        actions = wires_of(training, routes.agent)
        self._inputs = ports_of((wire.port, wire.field.field, self._slot.back[wire.field.label]) for wire in actions)
        self._first = [wire.field for wire in wires_of(training, routes.simulator)]
        self._outputs = list({field.label: field for field in (*self._first, *results_of(training))}.values())
        self._state = link.ring.beside(".state")
        self._name = routes.simulator
        self.steps = 0
        self.ended = False
        self.wait_s = 0.0

    @property
    def payload_bytes(self) -> int:
        """Bytes that cross in a step, both ways."""
        return self._link.layout.payload_bytes

    def open(self) -> None:
        """Say that the simulator is set up."""
        self._link.ring.publish(0)

    def await_command(self) -> None:
        """Return when something is asked for.

        Raises:
            GMIError: E0704, E0705 when the other GMI is gone or late.
        """
        ring = self._link.ring

        def look(waited_s: float) -> None:
            ring.watch.look(waited_s, lambda presence: not ring.answered)  # its last command may have come just now

        with self._turn.yielded():
            self.wait_s += wait_for(lambda: ring.answered, look, yields=STEP_YIELDS)

    def answer(self) -> None:
        """Do what was asked for.

        Raises:
            GMIError: E0708 when what the simulator gives is not of the declared types.
        """
        ring, simulator = self._link.ring, self._simulator
        match ring.command:
            case _Command.END:
                self.ended = True
                return
            case _Command.SAVE:
                _write(self._state, simulator.state_dict())
            case _Command.LOAD:
                restore(simulator, _read(self._state), self._name, "the checkpoint")
            case _Command.RESET:
                self._show(self._first, simulator.reset())
            case _Command.OBSERVE:
                self._show(self._first, simulator.observe())
            case _:
                self._slot.fetch_back()
                self._show(self._outputs, simulator.step(self._inputs))
                self.steps += 1
        self._slot.put_there()
        ring.publish(0)

    def _show(self, fields: list[Field], outputs: Ports) -> None:
        values = [field.read(outputs) for field in fields]
        targets = [self._slot.there[field.label] for field in fields]
        for field, value, target in zip(fields, values, targets, strict=True):
            if not fits(value, target.dtype, target.shape, self._device.type):  # a copy would stretch and convert it
                field.type.check(value, field.label, self._link.plan.num_env, self._device)
        torch._foreach_copy_(targets, values)  # pyright: ignore[reportPrivateImportUsage] - documented, not exported


def _write(path: Path, state: Mapping[str, Tensor]) -> None:
    # Clones: safetensors refuses tensors that share memory, and views of larger buffers.
    data = save({name: value.detach().cpu().contiguous().clone() for name, value in state.items()})
    try:
        path.write_bytes(data)
    except OSError as problem:
        path.unlink(missing_ok=True)
        raise scarce(path, len(data), problem) from problem


def _read(path: Path) -> dict[str, Tensor]:
    """What `_write` wrote, which is gone then."""
    data = path.read_bytes()
    path.unlink()
    return load(data)
