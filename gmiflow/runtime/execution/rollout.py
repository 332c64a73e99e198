"""Routes and buffers of a rollout: which port feeds which, and where the trainer finds it.

Everything is derived from the typed edges of the plan and allocated once. Execution lowerings share
these pieces: `eager` owns one `Rollout`, an overlapped one owns two and swaps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gmiflow.api import Ports
from gmiflow.plan import EPISODE_PORTS, EdgePlan, TrainingPlan
from gmiflow.runtime.execution.types import TensorType, describe, fits
from gmiflow.runtime.failure import PORT_MISMATCH, error

STATISTICS = {port: f"{dtype}[env]" for port, dtype in EPISODE_PORTS.items()}
"""As `gmiflow.plan.EPISODE_PORTS`, to their types as the plan writes them."""


@dataclass(frozen=True, slots=True)
class Field:
    """One tensor of a port: the port itself, or one field of its record.

    Attributes:
        stage, port: where it comes from.
        field: name in the record, or None.
    """

    stage: str
    port: str
    field: str | None
    type: TensorType

    @property
    def label(self) -> str:
        """Name for messages: "sim.obs" or "actor.experience.value"."""
        return ".".join(part for part in (self.stage, self.port, self.field) if part is not None)

    def read(self, outputs: Ports) -> Tensor:
        """The tensor in what a stage returned; E0708 when it is not there."""
        try:
            value = outputs[self.port]
            if self.field is None:
                return cast("Tensor", value)
            if isinstance(value, Tensor):
                port = f"{self.stage}.{self.port}"
                raise error(PORT_MISMATCH, f"{port} is declared a record, but the stage returned one tensor")
            return value[self.field]
        except (KeyError, IndexError, TypeError):
            what = "did not return it" if isinstance(outputs, Mapping) else f"returned {_kind(outputs)}, not its ports"
            raise error(PORT_MISMATCH, f"{self.label} is declared, but the stage {what}") from None


def fields_of(edge: EdgePlan) -> tuple[Field, ...]:
    """The tensors that an edge carries; none for an edge of weights."""
    stage, _, port = edge.source.partition(".")
    if isinstance(edge.type, dict):
        return tuple(Field(stage, port, name, TensorType.parse(text)) for name, text in edge.type.items())
    return () if edge.type == "weights" else (Field(stage, port, None, TensorType.parse(edge.type)),)


def kind_name(field: Field, *, lift: bool) -> str:
    """What `ChannelPlan.groups` calls the buffer of a field: its label, and "@last" when it is taken once."""
    return field.label if lift else f"{field.label}@last"


class Routes:
    """The edges of one training, sorted by what the loop does with them.

    Attributes:
        simulator, agent: names of the two stages of the loop.
        to_agent, to_simulator: input port -> output port that feeds it.
        step_agent, step_simulator: fields that are read at every step.
    """

    def __init__(self, training: TrainingPlan) -> None:
        names = {stage.role: stage.name for stage in training.stages}
        self.simulator, self.agent = names["simulator"], names["agent"]
        self.trainer = names.get("trainer")
        self.edges = training.edges
        self.to_agent = self._inputs(self.agent, self.simulator)
        self.to_simulator = self._inputs(self.simulator, self.agent)
        inner = [field for edge in self.edges if not self._to_trainer(edge) for field in fields_of(edge)]
        self.step_agent = [field for field in inner if field.stage == self.agent]
        self.step_simulator = [field for field in inner if field.stage == self.simulator]

    def trainer_edges(self) -> tuple[EdgePlan, ...]:
        """The edges into the trainer."""
        return tuple(edge for edge in self.edges if self._to_trainer(edge))

    def _to_trainer(self, edge: EdgePlan) -> bool:
        return self.trainer is not None and edge.target.startswith(f"{self.trainer}.")

    def _inputs(self, target: str, source: str) -> dict[str, str]:
        pairs = ((edge.target.split("."), edge.source.split(".")) for edge in self.edges if fields_of(edge))
        return {there[1]: here[1] for there, here in pairs if there[0] == target and here[0] == source}


class Rollout:
    """Buffers of ``horizon`` steps of ``num_env`` environments.

    Attributes:
        batch: the trainer's in ports: [horizon, num_env, ...] for lifted edges, [num_env, ...] for
            values taken once after the last step. The same tensors at every iteration.
        reward, terminated, truncated: [horizon, num_env], of the simulator.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        horizon: int,
        num_env: int,
        device: torch.device,
        storage: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Allocate; what ``storage`` has by `kind_name` is used in place of new memory."""
        self._storage = storage or {}
        self._num_env = num_env
        self._device = device
        self._routes = routes
        self._steps: dict[str, list[tuple[Field, tuple[Tensor, ...]]]] = {routes.agent: [], routes.simulator: []}
        self._last: dict[str, list[tuple[Field, Tensor]]] = {routes.agent: [], routes.simulator: []}
        self.batch: dict[str, Tensor | Mapping[str, Tensor]] = {}
        stored: dict[str, Tensor] = {}
        for edge in routes.trainer_edges():
            tensors: dict[str | None, Tensor] = {}
            for field in fields_of(edge):
                shape = field.type.shape(num_env)
                buffer = self._allocate(field, (horizon, *shape) if edge.lift else shape, edge.lift)
                tensors[field.field] = stored[field.label] = buffer
            port = edge.target.partition(".")[2]
            self.batch[port] = tensors[None] if None in tensors else {str(k): v for k, v in tensors.items()}
        for port, text in STATISTICS.items():
            field = Field(routes.simulator, port, None, TensorType.parse(text))
            if field.label not in stored:
                stored[field.label] = self._allocate(field, (horizon, num_env), True)
        self.reward, self.terminated, self.truncated = (stored[f"{routes.simulator}.{p}"] for p in STATISTICS)
        inner = {routes.agent: routes.step_agent, routes.simulator: routes.step_simulator}
        self._declared = {
            stage: [(f, f.type.shape(num_env)) for f in dict.fromkeys((*inner[stage], *(f for f, _ in steps)))]
            for stage, steps in self._steps.items()
        }

    def _allocate(self, field: Field, shape: tuple[int, ...], lift: bool) -> Tensor:
        buffer = self._storage.get(kind_name(field, lift=lift))
        if buffer is None:
            buffer = torch.zeros(shape, dtype=field.type.dtype, device=self._device)
        if lift:
            self._steps[field.stage].append((field, buffer.unbind(0)))
        else:
            self._last[field.stage].append((field, buffer))
        return buffer

    def store(self, stage: str, step: int, outputs: Ports) -> None:
        """Copy what ``stage`` returned at ``step`` into the buffers."""
        steps = self._steps[stage]
        if steps:
            slots, values = [slots[step] for _, slots in steps], [field.read(outputs) for field, _ in steps]
            torch._foreach_copy_(slots, values)  # pyright: ignore[reportPrivateImportUsage] - documented, not exported

    def store_last(self, stage: str, outputs: Ports) -> None:
        """Copy what is taken once, after the last step."""
        for field, buffer in self._last[stage]:
            buffer.copy_(field.read(outputs))

    def check(self, stage: str, outputs: Ports) -> None:
        """Compare the ports that ``stage`` returned at a step with their declarations: at every one.

        A copy would stretch a smaller tensor over all environments, and convert another element type.

        Raises:
            GMIError: E0708 for a missing port, a wrong shape, element type or device.
        """
        for field, shape in self._declared[stage]:
            value = field.read(outputs)
            if not fits(value, field.type.dtype, shape, self._device.type):
                field.type.check(value, field.label, self._num_env, self._device)

    def check_start(self, outputs: Ports) -> None:
        """As `check`, for what a simulator returns before its first step: the ports that the agent reads."""
        self._check(self._routes.step_simulator, outputs)

    def check_last(self, stage: str, outputs: Ports) -> None:
        """As `check`, for what `store_last` takes."""
        self._check([field for field, _ in self._last[stage]], outputs)

    def _check(self, fields: list[Field], outputs: Ports) -> None:
        for field in fields:
            field.type.check(field.read(outputs), field.label, self._num_env, self._device)

    def recorded(self) -> Iterator[tuple[str, str, Tensor]]:
        """Stage, label and buffer of everything that was stored, step by step where it is one of a step."""
        for stage, fields in self._steps.items():
            for field, slots in fields:
                for slot in slots:
                    yield stage, field.label, slot
        for stage, lasts in self._last.items():
            for field, buffer in lasts:
                yield stage, field.label, buffer


def check_metrics(stage: str, metrics: object, device: torch.device) -> None:
    """Compare what a trainer returned from `update` with what `Trainer` says.

    Raises:
        GMIError: E0708 unless it is a mapping of names to 0-d tensors on ``device``.
    """
    declared = f"{stage} shall return its metrics by name, each as one number on {device.type}"
    if not isinstance(metrics, Mapping):
        raise error(PORT_MISMATCH, f"{declared}, but `update` returned {_kind(metrics)}")
    for name, value in cast("Mapping[object, object]", metrics).items():
        if not isinstance(name, str):
            raise error(PORT_MISMATCH, f"{declared}, but `update` returned one called {name!r}")
        if not isinstance(value, Tensor):
            raise error(PORT_MISMATCH, f"{declared}, but `{name}` is {_kind(value)}")
        if value.dim() or value.device.type != device.type:
            returned = f"{describe(value.dtype, tuple(value.shape))} on {value.device.type}"
            raise error(PORT_MISMATCH, f"{declared}, but `{name}` is {returned}")


def _kind(value: object) -> str:
    """Type of a value that is no tensor, for messages."""
    return "None" if value is None else type(value).__name__
