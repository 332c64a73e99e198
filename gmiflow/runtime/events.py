"""What a run tells its caller while it goes on, and what it returns. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from gmiflow.runtime.failure import RuntimeFailure

Status: TypeAlias = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """All GMIs have set up their stages.

    Attributes:
        start_s: from the call of `run_plan` to this moment, torch's import included.
        setup_s: the longest setup of stages.
        cpus: CPUs that each GMI is pinned to, by id.
        iteration: iterations made before, per training; not zero after a resume.
        lowering: per training, how each part of an iteration runs: "graph", "eager" as planned, or "eager: "
            and the reason.
        new_episodes: trainings that go on from a checkpoint without a state of the simulator.
    """

    start_s: float
    setup_s: float
    cpus: dict[int, tuple[int, ...]]
    iteration: dict[str, int]
    lowering: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    new_episodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Iteration:
    """One iteration of one training, merged over its GMIs.

    Attributes:
        iteration: 1 for the first; goes on counting after a resume.
        env_steps: environment steps of this iteration, over all GMIs.
        total_env_steps: of the training so far, those before a resume included.
        collect_s, learn_s, communicate_s: mean seconds over the GMIs, on a GPU its own time. Communicating
            is not part of learning; rollout and update may overlap, then the sum exceeds ``seconds``.
        seconds: wall-clock time of the iteration on the slowest GMI, checkpoints included.
        episodes: episodes that ended in this iteration.
        mean_return, episode_length: means over the latest 100 or more episodes; None before one ended.
        metrics: of the trainer.
        diagnostics: of the simulators, summed over the GMIs.
        stage_s: seconds of the busiest GMI by what they were spent on: "simulate", "infer", "update" and
            "communicate"; "collect" in place of the first two where a CUDA graph hides them. Where some GMIs collect
            and others train, of the busiest of each.
        samples: that the trainers trained on in this iteration.
        channels: numbers of the channels, by name; empty without.
        lags: how many parts of rollouts the trainers took with which lag, in policy versions; empty without channels.
        serving: of a training that only serves: "latency_p50_ms", "latency_p95_ms" and "latency_p99_ms" of a step,
            "predictions_per_s", and "fairness" of the run so far (see `ServingSummary`); of each of several GMIs
            "gmi_0/latency_p50_ms" and so on, and "gmi_0/steps_per_s".
    """

    training: str
    iteration: int
    env_steps: int
    total_env_steps: int
    collect_s: float
    learn_s: float
    communicate_s: float
    seconds: float
    episodes: int
    mean_return: float | None
    episode_length: float | None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    diagnostics: dict[str, float] = field(default_factory=dict[str, float])
    stage_s: dict[str, float] = field(default_factory=dict[str, float])
    samples: int = 0
    channels: dict[str, float] = field(default_factory=dict[str, float])
    lags: dict[str, int] = field(default_factory=dict[str, int])
    serving: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint is complete on disk; ``checksum`` was compared over the GMIs."""

    training: str
    iteration: int
    path: Path
    checksum: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A GMI failed, and the others are being stopped.

    Attributes:
        gmi: its id; None when no GMI is to blame, for example the fork server.
        training: the training it worked for.
        failure: code, message, and the stage with its place in the `.gmi` file.
        reason: how it ended, for example "killed by SIGKILL", "raised", "silent for 10 s".
        log: its log file.
        log_tail: the last lines of it.
    """

    gmi: int | None
    training: str | None
    failure: RuntimeFailure
    reason: str
    log: Path | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Slow:
    """A stage of a GMI has been at work on one call for ``stage_s`` seconds; said once per call."""

    gmi: int
    stage: str
    stage_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopping:
    """Ctrl-C, SIGTERM or SIGHUP was heard: the run ends at the next iteration boundary, with a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarting:
    """All GMIs have ended after a failure and are started again, from the last checkpoints.

    Attributes:
        restart: 1 for the first.
        limit: how often a run is restarted.
    """

    restart: int
    limit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacing:
    """A GMI that only collects was lost and is started again, while the others go on.

    Attributes:
        reason: how it ended, for example "killed by SIGKILL", or that it was hanging.
        replacement: 1 for the first of this GMI.
        limit: how often it is replaced.
    """

    gmi: int
    training: str
    reason: str
    replacement: int
    limit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """Everything has ended, and nothing is left running. The last event."""

    result: RunResult


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaSummary:
    """What replicas of one training reached together.

    Attributes:
        name: of the training, without the replica's number.
        trainings: names of the replicas.
        mean_return: mean over those that have one; None when none has.
        half_width: half the width of its 95 % confidence interval (Student's t); None for fewer than two values.
    """

    name: str
    trainings: tuple[str, ...]
    mean_return: float | None
    half_width: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GMIServing:
    """What one GMI of a training that only serves did; see `ServingSummary`.

    Attributes:
        timed_steps: steps, each of all its environments, that the latencies are of.
    """

    steps_per_s: float
    latency_ms: dict[str, float]
    timed_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingSummary:
    """What a training that only serves reached, its warm-up left out.

    Attributes:
        steps_per_s: environment steps per second of all GMIs, while all of them ran. Each takes one prediction.
        latency_ms: "p50", "p95" and "p99" of the time from an observation to the next one, over all GMIs.
        fairness: Jain's index of the steps per second of one environment, over the GMIs that simulate.
        slowest_steps_per_s, fastest_steps_per_s: of one GMI.
        gmis: by GMI id.
    """

    steps_per_s: float
    latency_ms: dict[str, float]
    fairness: float
    slowest_steps_per_s: float
    fastest_steps_per_s: float
    gmis: dict[int, GMIServing]


Event: TypeAlias = Started | Iteration | Checkpoint | Failure | Slow | Stopping | Restarting | Replacing | Finished


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        exit_code: 0 finished, 1 failed, 130 stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP.
        failures: what failed; the first is the cause.
        wall_s: wall-clock seconds of the run, from its start to its end.
        training_s: wall-clock seconds of the iterations alone, without start-up and end, per training.
        iterations: iterations made, per training.
        env_steps: environment steps of this run (not those before a resume), per training.
        mean_return: of the last iteration's window, per training; None when no episode ended.
        checksums: of the final weights, equal on all GMIs; only of trainings that ended in order.
        report: the summary on disk.
        restarts: how often the GMIs were started again.
        replicas: a summary per training with replicas.
        serving: of trainings that only serve.
        lags: how many parts of rollouts were trained on with which lag in policy versions, per training whose agents
            are apart from its trainers.
    """

    status: Status
    exit_code: int
    failures: tuple[Failure, ...]
    wall_s: float
    iterations: dict[str, int]
    env_steps: dict[str, int]
    mean_return: dict[str, float | None]
    checksums: dict[str, str]
    report: Path
    training_s: dict[str, float] = field(default_factory=dict[str, float])
    restarts: int = 0
    replicas: tuple[ReplicaSummary, ...] = ()
    serving: dict[str, ServingSummary] = field(default_factory=dict[str, ServingSummary])
    lags: dict[str, dict[int, int]] = field(default_factory=dict[str, dict[int, int]])
