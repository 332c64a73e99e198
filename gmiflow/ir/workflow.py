"""The checked workflow: names resolved, types unified, parameters evaluated. Output of `passes.check`.

Not in here: where anything runs (that is `mapped` and `sized`) and how data crosses (`comm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gmiflow.plan import CollectiveKind, Execution, ModeKind, Precision, Role, Template, Update
from gmiflow.source import Span

Auto: TypeAlias = Literal["auto"]
DType: TypeAlias = Literal["f32", "f16", "bf16", "i32", "i64", "u8", "bool"]
Dim: TypeAlias = "int | str"  # a size, or the axis name "env" or "time"
Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | None"
"""An evaluated parameter: enum members are str, quantities are in base units (bytes, s, Hz, fraction)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorType:
    """A tensor with all shape variables resolved, for example f32[time, env, 60]."""

    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordType:
    """A record with its fields in declaration order; ``time`` when every field has it in front."""

    name: str
    fields: tuple[tuple[str, TensorType], ...]


@dataclass(frozen=True, slots=True)
class WeightsType:
    """The opaque type of a policy's weights."""

    def __str__(self) -> str:
        return "weights"


PortType: TypeAlias = "TensorType | RecordType | WeightsType"


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    """A port of a stage: its direction, resolved type, and the range that its values are said to be in."""

    name: str
    direction: Literal["in", "out"]
    type: PortType
    range: tuple[float, float] | None = None
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stage instance.

    Attributes:
        type_name: the stage type it was made from, for messages ("ant.Ant").
        entry: "package.module:Class".
        params: in declaration order, defaults filled in.
        shapes: shape variable to size.
        needs: resources that the stage asks for (`needs`), in base units.
        place: device indices that `place` pins it to, or None; ``place_span`` is where it says so.
        python: interpreter of a foreign simulator, or None.
        update: of a trainer, how several of it improve one policy.
    """

    name: str
    role: Role
    type_name: str
    entry: str
    params: tuple[tuple[str, Value], ...]
    shapes: tuple[tuple[str, int], ...]
    ports: tuple[Port, ...]
    needs: tuple[tuple[str, Value], ...] = ()
    place: tuple[int, ...] | None = None
    python: str | None = None
    update: Update = "reduce"
    span: Span = field(compare=False)
    place_span: Span | None = field(default=None, compare=False, repr=False)

    def port(self, name: str) -> Port:
        """The port called ``name``."""
        return next(p for p in self.ports if p.name == name)


def devices_text(devices: Iterable[int]) -> str:
    """Device indices as messages name them: "device 0", "devices 0, 1"."""
    numbers = sorted(set(devices))
    return f"device{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """A typed connection. ``lift`` stacks a step port over the horizon (CONTRACT, "Time lifting").

    ``type`` is the type at the source, without `time`.
    """

    source_stage: str
    source_port: str
    target_stage: str
    target_port: str
    type: PortType
    lift: bool
    depth: int = 1
    on_full: Literal["block", "drop_oldest"] = "block"
    span: Span = field(compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """A connected component: one simulator, one agent, at most one trainer. An independent training."""

    name: str
    seed: int
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def stage(self, role: Role) -> Stage | None:
        """The stage that plays ``role``, or None."""
        return next((s for s in self.stages if s.role == role), None)

    @property
    def update(self) -> Update:
        """How several trainers improve one policy; "reduce" without a trainer."""
        trainer = self.stage("trainer")
        return trainer.update if trainer is not None else "reduce"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """The `sizing { ... }` setting."""

    objective: Literal["throughput", "time_to_reward"] = "throughput"
    batch: Literal["fixed", "free"] = "fixed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The resolved target: hardware and the wishes about it. `auto` is left for the later passes.

    Attributes:
        name: as in the file, or "detected".
        device: "cpu" or "cuda".
        devices: number of GPUs (1 for the CPU).
        gpu: model name for messages and profile keys, "" on the CPU.
        sm_count: streaming multiprocessors per GPU, 0 when unknown or on the CPU.
        memory_bytes: memory of one device, 0 when unknown.
        reserve_bytes: memory of one device that gmiflow leaves alone.
        cores: CPU cores of the machine that the target allows, 0 for all that the process may use.
        agents, trainers: GMIs of each group on one device, where the mapping splits agent and trainer.
        simulators: the same of those that simulate alone, where the mapping parts them from their agents.
        agent_share: part of a device that all agents there get together, between 0 and 1; the others get the rest.
        collective: what carries the gradients; ``rings`` as `plan.CollectivePlan.rings`, of a `hybrid`.
        span: where it is named: in the file, or by `--target`; None for a target that was not read.
        said: where the value of a setting is written, by its name; not of those that it leaves out.
    """

    name: str
    device: Literal["cpu", "cuda"]
    devices: int
    gpu: str = ""
    sm_count: int = 0
    memory_bytes: int = 0
    reserve_bytes: int = 0
    cores: int = 0
    backend: Literal["auto", "cpu", "timeshare", "mps", "mig", "green"] = "auto"
    gmi_per_gpu: int | Auto = "auto"
    agents: int | Auto = "auto"
    trainers: int | Auto = "auto"
    simulators: int | Auto = "auto"
    agent_share: float | Auto = "auto"
    mapping: Template | Auto = "auto"
    collective: CollectiveKind | Auto = "auto"
    rings: int | Auto = "auto"
    span: Span | None = field(default=None, compare=False, repr=False)
    said: Mapping[str, Span] = field(default_factory=dict[str, Span], compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow:
    """A checked workflow with its target. `auto` values stay until sizing decides them."""

    name: str
    file: str
    sha256: str
    mode: ModeKind
    max_staleness: int
    num_env: int | Auto
    horizon: int
    seed: int
    iterations: int
    checkpoint_every: int
    precision: Precision
    execution: Execution | Auto
    sizing: Sizing
    on_failure: Literal["stop", "restart"]
    gmi: str | None
    target: Target
    components: tuple[Component, ...]
    deterministic: bool = False
    """Whether a workflow that serves takes the likeliest action instead of drawing one."""
    parted: bool = False
    """Whether the target's mapping was `auto`, and is now the first that parts what `place` puts on other devices."""
    joint: int | Auto = "auto"
    """Trainings of a device that may share one simulator, 1 for none."""
    params: tuple[tuple[str, Value, str], ...] = ()
    """Parameters of the file: name, value, origin ("default", "--set", ...), for the run directory."""
    span: Span = field(compare=False)
    said: Mapping[str, Span] = field(default_factory=dict[str, Span], compare=False, repr=False)
    """Where the value of a setting is written, by its name; not of those that are left out."""

    @property
    def applies(self) -> Component | None:
        """The first training whose trainers apply their gradients without waiting for each other, or None."""
        return next((component for component in self.components if component.update == "apply"), None)

    @property
    def target_span(self) -> Span:
        """Where messages about the target point: at the target, or at the workflow when that has no place."""
        return self.target.span or self.span

    def at(self, setting: str) -> Span:
        """Where messages about a setting of the workflow point: at its value, or at the workflow."""
        return self.said.get(setting, self.span)

    def target_at(self, *settings: str) -> Span:
        """Where messages about settings of the target point: at the first of them that is written, or at the target."""
        return next((self.target.said[name] for name in settings if name in self.target.said), self.target_span)
