"""The launch plan: the only vocabulary that compiler and runtime share.

A plan is JSON, versioned and machine-independent where it can be: it counts CPU cores but does
not name them, and the launcher picks concrete ones. Equal inputs give equal bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

PLAN_VERSION = 1

Role: TypeAlias = Literal["simulator", "agent", "trainer"]
ModeKind: TypeAlias = Literal["serve", "sync", "async"]
Backend: TypeAlias = Literal["cpu", "timeshare", "mps", "mig", "green"]
Execution: TypeAlias = Literal["eager", "graph", "overlap"]
Template: TypeAlias = Literal["dp_only", "dp_mp", "e_at", "ea_t", "mp_dp"]
Update: TypeAlias = Literal["reduce", "apply"]
"""How the trainers of one training improve one policy; see `TrainingPlan.update`."""
Precision: TypeAlias = Literal["f32", "tf32", "bf16"]
CollectiveKind: TypeAlias = Literal["local", "ip", "rp", "ipc", "hybrid", "nccl_multirank"]
ChannelKind: TypeAlias = Literal["host", "ipc", "p2p"]
Cargo: TypeAlias = Literal["rollout", "step"]
"""What goes through a channel at once; see `ChannelPlan`."""
EPISODE_PORTS: Final[Mapping[str, Literal["f32", "bool"]]] = {
    "reward": "f32",
    "terminated": "bool",
    "truncated": "bool",
}
"""Ports of every simulator that sums over episodes are made of, to the type of their one value per environment."""
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class PlanError(ValueError):
    """A plan file that cannot be read: not JSON, of another version, or with wrong fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePlan:
    """Where the plan came from: file as the user named it, its SHA-256, and the workflow."""

    file: str
    sha256: str
    workflow: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetPlan:
    """The hardware that the plan is for.

    Attributes:
        name: target in the `.gmi` file, or "detected".
        device: "cpu" or "cuda".
        devices: number of GPUs; on the CPU the machine counts as one device.
        gmi_per_gpu: GMIs of one training on one device.
        cores: CPU cores that the whole plan uses.
        memory_mib: memory of one device, 0 when unknown.
    """

    name: str
    device: Literal["cpu", "cuda"]
    devices: int
    gmi_per_gpu: int
    cores: int
    memory_mib: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePlan:
    """One stage of a training.

    Attributes:
        entry: "package.module:Class".
        params: parameters with defaults filled in; quantities in base units (bytes, seconds, hertz).
        shapes: sizes of the shape variables that the stage's ports use.
        line: 1-based line of the declaration in ``file``.
        python: interpreter that hosts a simulator in its own environment, or None.
    """

    name: str
    role: Role
    entry: str
    params: dict[str, Json]
    shapes: dict[str, int]
    file: str
    line: int
    python: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgePlan:
    """One dataflow edge.

    Attributes:
        source, target: "stage.port".
        type: "f32[env, 60]" for a tensor, field name to such text for a record, "weights".
        lift: the step port is stacked over the horizon into a port typed with `time`.
        depth, on_full: attributes of a channel edge.
    """

    source: str
    target: str
    type: str | dict[str, str]
    lift: bool
    depth: int = 1
    on_full: Literal["block", "drop_oldest"] = "block"


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictionPlan:
    """What the compiler expects of a training; `report.json` holds it against what was measured.

    Attributes:
        steps_per_s: environment steps per second; ``steps_per_s_low`` and ``steps_per_s_high`` are its error bars.
        iteration_s: seconds of one iteration, rollout and update.
        stage_s: seconds of one iteration by what they are spent on, as in `profiles.workload.Measurement`.
        device_memory_bytes: peak of one device, 0 on the CPU.
        host_memory_bytes: peak resident memory of all GMI processes.
        origin: "measured" on this machine, or "modelled".
    """

    steps_per_s: float
    steps_per_s_low: float
    steps_per_s_high: float
    iteration_s: float
    stage_s: dict[str, float]
    device_memory_bytes: int
    host_memory_bytes: int
    origin: Literal["measured", "modelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """One connected component of the workflow (one replica of it): an independent training.

    Attributes:
        num_env: environments over all GMIs of this training.
        stratum: consecutive environments that are permuted together; slices are whole strata.
        iterations: how many iterations `run` makes unless told otherwise.
        checkpoint_every: iterations between checkpoints, 0 for only the last.
        max_staleness: policy versions that experience may be behind (0 in sync).
        gmi: Python class "module:Class" that overrides the run loop, or None.
        update: "reduce" when trainers reduce their gradients and make the same update; "apply" when each applies
            its own to parameters in shared memory, without waiting for the others (`gmiflow.api.SharedTrainer`).
        deterministic: in serving, the agent takes the likeliest action instead of drawing one.
        prediction: of the whole training, when a profile gave one; the generated programs do not hold it.
    """

    name: str
    mode: ModeKind
    max_staleness: int
    seed: int
    num_env: int
    horizon: int
    stratum: int
    iterations: int
    checkpoint_every: int
    precision: Precision
    execution: Execution
    mapping: Template
    on_failure: Literal["stop", "restart"]
    gmi: str | None
    stages: tuple[StagePlan, ...]
    edges: tuple[EdgePlan, ...]
    update: Update = "reduce"
    deterministic: bool = False
    prediction: PredictionPlan | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GMIPlan:
    """One GPU multiplexing instance: a slice of a device that runs one generated program.

    Attributes:
        id: index over the whole plan.
        training: name of the training that it works for.
        program: file name of its generated program.
        device: index of the device, 0 on the CPU.
        share: part of the device that it may use, 0 < share <= 1.
        cores: CPU cores pinned to it.
        threads: torch threads; simulators may use as many.
        stages: names of the stages it runs.
        num_env, env_offset: its environments, as a range of the training's global ids.
        memory_mib: memory cap on the device, 0 for none.
        host: id of the first GMI of the process that it shares with others of its device, as a thread
            with a CUDA stream of its own; None for a process of its own.
        joint: id of the first GMI of those of this process whose environments one simulator steps; None for a
            simulator of its own.
    """

    id: int
    training: str
    program: str
    backend: Backend
    device: int
    share: float
    cores: int
    threads: int
    stages: tuple[str, ...]
    num_env: int
    env_offset: int
    memory_mib: int = 0
    host: int | None = None
    joint: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectivePlan:
    """A group of GMIs that reduce tensors together.

    Attributes:
        name: unique in the plan, for example "train.gradient".
        kind: primitive or composition that carries it.
        members: GMI ids in rank order.
        rings: of a `hybrid`, how many GMIs of each GPU reduce by rings across the GPUs first (the k of the paper's
            section "Communicator"); 0 for one that reduces inside of each GPU first.
    """

    name: str
    training: str
    kind: CollectiveKind
    members: tuple[int, ...]
    rings: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelPlan:
    """A ring of slots through which GMIs with the agent hand rollouts to one GMI with the trainer.

    One that carries steps has one slot, between a GMI with the simulator alone and one with the agent: what the
    simulator puts in is the first of the groups, and the slot comes back with the second one, the actions, filled in.

    Attributes:
        name: unique in the plan, for example "train.experience.2" or "serve.step.0".
        kind: where the slots lie: "host" is shared memory of the host, "ipc" memory of the GPU that all members use,
            "p2p" memory of the consumer's GPU, which producers on other GPUs of the machine reach.
        producers: ids of the GMIs that collect, in order of their environments; of steps the one that simulates.
        consumer: id of the GMI that trains; of steps the one that acts.
        depth: rollouts that may be under way besides the one that is being trained on.
        on_full: whether a producer waits, or the oldest rollout that nobody has read is dropped.
        env_offset, num_env: range of global environment ids that a slot holds.
        groups: what is packed together, as "stage.port" or "stage.port.field", with "@last" for what is taken
            once after the last step; one transfer each.
        carries: rollouts, or single steps.
    """

    name: str
    training: str
    kind: ChannelKind
    producers: tuple[int, ...]
    consumer: int
    depth: int
    on_full: Literal["block", "drop_oldest"]
    env_offset: int
    num_env: int
    groups: tuple[tuple[str, ...], ...]
    carries: Cargo = "rollout"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """Everything that `gmiflow run` starts."""

    version: int
    generator: str
    source: SourcePlan
    target: TargetPlan
    trainings: tuple[TrainingPlan, ...]
    gmis: tuple[GMIPlan, ...]
    collectives: tuple[CollectivePlan, ...]
    channels: tuple[ChannelPlan, ...] = ()

    def training(self, name: str) -> TrainingPlan:
        """The training called ``name``."""
        return next(t for t in self.trainings if t.name == name)

    def members(self, training: str) -> tuple[GMIPlan, ...]:
        """The GMIs of a training, in order of id."""
        return tuple(g for g in self.gmis if g.training == training)

    def processes(self) -> dict[int, tuple[GMIPlan, ...]]:
        """The GMIs of each process, in order of id; the key is the id of the first."""
        found: dict[int, tuple[GMIPlan, ...]] = {}
        for gmi in self.gmis:
            first = gmi.id if gmi.host is None else gmi.host
            found[first] = (*found.get(first, ()), gmi)
        return found

    def to_json(self) -> str:
        """Deterministic text: fields in declaration order, two-space indent, newline at the end."""
        return _encode(self, "\n") + "\n"

    @classmethod
    def from_json(cls, text: str) -> LaunchPlan:
        """Read what `to_json` wrote; `plan_check.read_plan` looks it through too.

        Raises:
            PlanError: with the JSON path of the first field that is wrong.
        """
        try:
            data = json.loads(text, parse_constant=_not_finite, parse_float=_finite)
        except RecursionError as error:
            raise PlanError("not a plan: it is nested too deeply") from error
        except ValueError as error:  # not JSON, or a number of more digits than Python reads
            raise PlanError(f"not a plan: {error}") from error
        if not isinstance(data, dict):
            raise PlanError("not a plan: the top level is not an object")
        version = typing.cast("dict[str, Any]", data).get("version")
        if version != PLAN_VERSION:
            raise PlanError(f"plan version {version!r} is not supported (this gmiflow reads {PLAN_VERSION})")
        return _decode(cls, data, "plan")


def _not_finite(word: str) -> float:
    raise ValueError(f"{word} is not a number that a plan may have")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _not_finite(digits)


_encode_leaf = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _encode(value: object, line: str) -> str:
    """As `json.dumps` with an indent of two, in half the time: the plan of 333 trainings has 60,000 values.

    Args:
        value: a plan dataclass, or what JSON has.
        line: a newline with the indentation of ``value``.
    """
    if value is None or isinstance(value, str | int | float):
        return _encode_leaf(value)
    inner = line + "  "
    if isinstance(value, list | tuple):
        items = [_encode(item, inner) for item in cast("Sequence[object]", value)]
        return f"[{inner}{f',{inner}'.join(items)}{line}]" if items else "[]"
    fields = cast("Mapping[str, object]", value if isinstance(value, dict) else _fields_of(value))
    items = [f"{_encode_leaf(name)}: {_encode(item, inner)}" for name, item in fields.items()]
    return f"{{{inner}{f',{inner}'.join(items)}{line}}}" if items else "{}"


def _fields_of(plan: object) -> dict[str, object]:
    return {name: getattr(plan, name) for name in type(plan).__dataclass_fields__}  # type: ignore[attr-defined]


T = TypeVar("T")


def _decode(kind: type[T], data: Any, path: str) -> T:  # noqa: ANN401 - JSON
    """Build a dataclass from JSON data, checking every field by its annotation."""
    if not isinstance(data, dict):
        raise PlanError(f"{path}: expected an object, got {type(data).__name__}")
    given = typing.cast("dict[str, Any]", data)
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(given.keys() - fields.keys()):
        raise PlanError(f"{path}.{unknown[0]}: unknown field")
    values: dict[str, Any] = {}
    for name, spec in fields.items():
        if name in given:
            values[name] = _value(hints[name], given[name], f"{path}.{name}")
        elif spec.default is dataclasses.MISSING:
            raise PlanError(f"{path}.{name}: missing")
    return kind(**values)


def _value(hint: Any, data: Any, path: str) -> Any:  # noqa: ANN401, C901 - one case per kind of annotation
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if isinstance(hint, str):  # the recursive part of Json
        return data
    if dataclasses.is_dataclass(hint):
        return _decode(typing.cast("type[Any]", hint), data, path)
    if origin is Literal:
        if data not in arguments:
            raise PlanError(f"{path}: {data!r} is not one of {', '.join(map(str, arguments))}")
        return data
    if origin in (types.UnionType, typing.Union):
        for option in arguments:
            try:
                return _value(option, data, path)
            except PlanError:
                continue
        raise PlanError(f"{path}: unexpected {type(data).__name__}")
    if origin is tuple:
        if not isinstance(data, list):
            raise PlanError(f"{path}: expected a list")
        items = typing.cast("list[Any]", data)
        return tuple(_value(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(items))
    if origin is dict:
        if not isinstance(data, dict):
            raise PlanError(f"{path}: expected an object")
        pairs = typing.cast("dict[str, Any]", data)
        return {key: _value(arguments[1], item, f"{path}.{key}") for key, item in pairs.items()}
    if origin is list:
        return data
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if hint is type(None):
        if data is not None:
            raise PlanError(f"{path}: expected null")
        return None
    if not isinstance(data, hint) or (hint is int and isinstance(data, bool)):
        raise PlanError(f"{path}: expected {hint.__name__}, got {type(data).__name__}")
    return data
