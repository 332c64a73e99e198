"""What one workload did on one machine: measured points, the key that says when they hold, and their JSON.

A profile is data. `measure` makes one, `store` keeps it, `model` and `search` read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

from gmiflow.ir.search import Point as Point
from gmiflow.profiles.json_values import decode, load_object

FORMAT = 1

_SMALLEST = 1e-9
"""Steps per second, and seconds of an iteration, that a point has at least which works."""

Status = Literal["ok", "out_of_memory", "failed", "timed_out"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One time that a point was measured.

    Attributes:
        at_s: seconds since 1970, UTC, when it ended.
        steps_per_s: as measured, at the speed that the machine had then; 0 when it failed.
        run: whether it is what a whole run measured of itself, and not beside other points.
    """

    at_s: float
    steps_per_s: float
    run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What running one point showed; with a status other than "ok" only the memory may mean something.

    Attributes:
        steps_per_s: environment steps per second of the whole training, over all devices, median of the windows;
            of several trainings side by side, the mean of one.
        steps_per_s_low, steps_per_s_high: lowest and highest window.
        iteration_s: one iteration, rollout and update; median.
        stage_s: seconds of one iteration by what they were spent on: "simulate", "infer", "update",
            "communicate"; of the busiest GMI, or where some collect and others train, of each of the two. "collect" in
            place of the first two where a CUDA graph hides them.
        device_memory_bytes: peak of the whole device over all GMIs, 0 on the CPU.
        host_memory_bytes: peak resident memory of all GMI processes, shared pages counted once where known.
        sm_occupancy: mean part of the SMs that were busy, 0 to 1; None on the CPU or without a counter.
        iterations: measured, after the warm-up.
        startup_s: from the start of the processes to the end of the warm-up.
        message: of a failure, one line.
        looks: each time that the point was measured; the numbers above are the means over them. Without any, it is
            not known when it was.
    """

    point: Point
    status: Status
    steps_per_s: float = 0.0
    steps_per_s_low: float = 0.0
    steps_per_s_high: float = 0.0
    iteration_s: float = 0.0
    stage_s: dict[str, float] = field(default_factory=dict[str, float])
    device_memory_bytes: int = 0
    host_memory_bytes: int = 0
    sm_occupancy: float | None = None
    iterations: int = 0
    startup_s: float = 0.0
    message: str = ""
    looks: tuple[Look, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileKey:
    """What the measurements depend on (DESIGN, section 9). Two profiles are comparable when their keys are equal.

    Attributes:
        device: "cpu" or "cuda".
        processor: model name of the GPU, or of the CPU.
        sm_count, memory_bytes: of one GPU; 0 on the CPU.
        cores: CPU cores that the target may use.
        driver, cuda, torch, simulator: versions, "" where there is none; ``simulator`` names the package, too.
        sources: stage entry to SHA-256 of its source file.
        workload: SHA-256 of what the training is apart from its size: stages, parameters, shapes, horizon,
            precision, mode.
        gmiflow: version.
    """

    device: Literal["cpu", "cuda"]
    processor: str
    sm_count: int
    memory_bytes: int
    cores: int
    driver: str
    cuda: str
    torch: str
    simulator: str
    sources: dict[str, str]
    workload: str
    gmiflow: str

    def differences(self, other: ProfileKey) -> tuple[str, ...]:
        """Names of the fields that differ, in declaration order."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name))


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadProfile:
    """Measurements of one workload under one key; at most one per point.

    Attributes:
        date: of the last measurement, ISO 8601 day.
        source: file and workflow, for messages.
    """

    key: ProfileKey
    source: str
    date: str
    measurements: tuple[Measurement, ...]

    def at(self, point: Point) -> Measurement | None:
        """The measurement of exactly this point, or None."""
        return next((m for m in self.measurements if m.point == point), None)

    def to_json(self) -> str:
        """Deterministic text, measurements in the order of their points: it can be committed."""
        data = asdict(self)
        data["measurements"] = [asdict(m) for m in sorted(self.measurements, key=lambda m: m.point)]
        return json.dumps({"format": FORMAT, **data}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> WorkloadProfile:
        """Read what `to_json` wrote.

        Raises:
            ValueError: for anything else.
        """
        try:
            data = load_object(text)
            if data.pop("format", None) != FORMAT:
                raise ValueError("another format")
            profile = decode(cls, data, "profile")
            _require_sensible(profile.measurements)
        except ValueError as problem:
            raise ValueError(f"not a profile of a workload: {problem}") from problem
        return profile


def _require_sensible(measurements: Sequence[Measurement]) -> None:
    """Raises ValueError for what no machine measures."""
    seen: set[Point] = set()
    for number, item in enumerate(measurements):
        place, point = f"profile.measurements[{number}]", item.point
        if min(point.gmis, point.num_env) < 1:
            raise ValueError(f"{place}: a point of {point}")
        if point in seen:
            raise ValueError(f"{place}: {point} is there twice")
        if item.status == "ok" and not (min(item.steps_per_s, item.iteration_s) >= _SMALLEST):
            raise ValueError(f"{place}: {point} worked, and took no time or made no steps")
        seen.add(point)
