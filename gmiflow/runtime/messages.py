"""What GMIs tell the supervisor: one JSON object per line over the rendezvous socket."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from gmiflow.runtime.failure import RuntimeFailure

RUNTIME_NAME = "runtime"
"""What a heartbeat says in place of a stage when none is at work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """First message: which GMI this connection belongs to, and the proof of its slice."""

    gmi: int
    slice: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """Sign of life, from a thread; ``stage`` is at work for ``stage_s`` seconds, or waits for other GMIs."""

    gmi: int
    stage: str
    stage_s: float
    waiting: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """Stages are set up.

    Attributes:
        iteration: iterations made before, by an earlier run.
        setup_s: how long it took.
        lowering: how each part of an iteration runs: "graph", "eager" as planned, or "eager: " and the reason.
        new_episodes: it went on from a checkpoint that holds no state of the simulator.
    """

    gmi: int
    iteration: int
    setup_s: float
    lowering: dict[str, str] = field(default_factory=dict[str, str])
    new_episodes: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One iteration of one GMI.

    Attributes:
        iteration: 1 for the first.
        env_steps: environment steps of this slice.
        iteration_s: wall-clock seconds since the report before.
        collect_s, learn_s, communicate_s: seconds of the parts, on a GPU its own time. Rollout and
            update may overlap; communicating is not part of learning.
        episodes, return_sum, length_sum: over the episodes of this slice that ended.
        stage_s: host seconds by stage; waiting in collectives counts for the stage that waits.
        metrics: of the trainer; equal on all GMIs.
        diagnostics: of the simulator, numbers only.
        samples: that the trainer of this GMI has trained on; equal to ``env_steps`` unless the mapping splits them.
        channels: numbers of this GMI's channels, by name.
        lags: how many parts of rollouts had which lag in policy versions (JSON makes the keys text).
        latencies: how many steps took how long, in the buckets of `runtime.latency`; of trainings that only serve.
    """

    gmi: int
    iteration: int
    env_steps: int
    iteration_s: float
    collect_s: float
    learn_s: float
    communicate_s: float
    episodes: int
    return_sum: float
    length_sum: float
    stage_s: dict[str, float]
    metrics: dict[str, float]
    diagnostics: dict[str, float]
    samples: int = 0
    channels: dict[str, float] = field(default_factory=dict[str, float])
    lags: dict[str, int] = field(default_factory=dict[str, int])
    latencies: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A checkpoint is complete; sent by rank 0."""

    gmi: int
    iteration: int
    path: str
    checksum: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """The GMI gives up."""

    gmi: int
    failure: RuntimeFailure


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The GMI has made its iterations, or agreed to stop; the weights were compared with the peers'."""

    gmi: int
    iteration: int
    stopped: bool
    checksum: str


Message: TypeAlias = Hello | Heartbeat | Ready | Progress | Saved | Failed | Done
_KINDS = {kind.__name__: kind for kind in (Hello, Heartbeat, Ready, Progress, Saved, Failed, Done)}


def encode(message: Message) -> bytes:
    """One line of JSON, with its newline."""
    data = {"kind": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(data).encode() + b"\n"


def decode(line: bytes) -> Message:
    """What `encode` wrote."""
    data = cast("dict[str, Any]", json.loads(line))
    kind = _KINDS[data.pop("kind")]
    if kind is Failed:
        failure = data["failure"]
        data["failure"] = RuntimeFailure(**{**failure, "notes": tuple(failure["notes"])})
    return kind(**data)
