"""Profiling a workflow: points are measured in rounds until the choice is clear or the budget is spent. No torch.

What was measured is written after every point, so that whatever ends a session, the next one goes on from there.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gmiflow.hardware import Hardware
from gmiflow.ir.search import Algorithm
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Options
from gmiflow.profiles import store
from gmiflow.profiles.compare import combined
from gmiflow.profiles.search import next_round
from gmiflow.profiles.space import space_of
from gmiflow.profiles.workload import Look, Measurement, Point, WorkloadProfile
from gmiflow.profiles.workload_key import key_of
from gmiflow.profiling.campaign import Proposer, conduct
from gmiflow.profiling.runner import Runner
from gmiflow.profiling.signals import Interrupted, signals_raise
from gmiflow.profiling.trial import PACES, Pace

BUDGET_S = 120.0
"""How long `gmiflow profile` measures unless told otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """News of a session.

    Attributes:
        point: that is being measured now, or was.
        measurement: of it; None while it runs.
        measured: points of the profile so far.
        elapsed_s: since the session began.
    """

    point: Point
    measurement: Measurement | None
    measured: int
    elapsed_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a session ended.

    Attributes:
        profile: everything that is known now, earlier sessions included.
        path: where it is kept.
        new: points that this session measured.
        ended: "complete" when nothing was left to measure, "budget", or "interrupted".
        signal: that interrupted it, or 0.
    """

    profile: WorkloadProfile
    path: Path
    new: int
    ended: Literal["complete", "budget", "interrupted"]
    signal: int = 0
    elapsed_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to profile.

    Attributes:
        workflow: as compiled with ``options``.
        options: target and settings.
        budget_s: no point is started that would not end within it.
        algorithm: that proposes the points.
        fresh: whether to forget what was measured before.
        output: where to keep the profile besides the cache.
        pace: how long to look at each point; by the device when None.
    """

    workflow: Workflow
    options: Options
    hardware: Hardware
    budget_s: float = BUDGET_S
    algorithm: Algorithm = "improved"
    fresh: bool = False
    output: Path | None = None
    pace: Pace | None = None


def profile_workflow(
    request: Request, on_step: Callable[[Step], None] = lambda step: None, proposer: Proposer | None = None
) -> Outcome:
    """Measure points until the choice is clear, the budget is spent, or a signal comes.

    Args:
        request: what and how.
        on_step: called when a point starts and when it has ended.
        proposer: says which points are next, `profiles.search.next_round` unless given.

    Raises:
        OSError: when the profile cannot be kept.
    """
    space = space_of(request.workflow, request.hardware)
    pace = request.pace or PACES[request.workflow.target.device]

    def propose(measurements: Sequence[Measurement], late: bool) -> tuple[Point, ...]:
        return next_round(space, measurements, request.algorithm, late=late)

    runner = Runner(request.workflow, request.options, request.hardware, pace)
    session = _Session(request, runner, on_step)
    try:
        with signals_raise(), runner:
            return session.outcome(conduct(session, proposer or propose, request.budget_s))
    except Interrupted as stop:
        return session.outcome("interrupted", stop.signal)


class _Session:
    """The state of one session, a `campaign.Bench`; ``profile`` is always what is on disk.

    Another session may measure the same workload meanwhile: what it adds is taken over, and kept.
    """

    def __init__(self, request: Request, runner: Runner, on_step: Callable[[Step], None]) -> None:
        self._request = request
        self._runner = runner
        self._on_step = on_step
        self._start = time.monotonic()
        self._new = 0
        self._empty = WorkloadProfile(
            key=key_of(request.workflow, request.hardware),
            source=store.source_of(request.workflow),
            date=today(),
            measurements=(),
        )
        self._path = store.workload_path(self._empty.source, self._empty.key)
        for file in (self._path, *([request.output] if request.output is not None else [])):
            store.require_writable(file)
        self._forgets = request.fresh
        self.profile = self._empty if request.fresh else _known(request, self._empty)
        if self.profile.measurements:
            self._keep(lambda profile: profile)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """What is known so far, from earlier sessions, too."""
        return self.profile.measurements

    def measure(self, point: Point) -> bool:
        """Measure a point and keep it; False when the budget ended before it showed anything."""
        self._tell(point, None)
        # Without any measurement there is nothing to plan by: the first point may take as long as it takes.
        usable = any(item.status == "ok" for item in self.profile.measurements)
        deadline = self._start + self._request.budget_s if usable else float("inf")
        measurement = self._runner.measure(point, deadline)
        if measurement is None:
            return False
        look = Look(at_s=round(time.time(), 1), steps_per_s=measurement.steps_per_s)
        measurement = dataclasses.replace(measurement, looks=(look,))
        self._new += self.profile.at(point) is None
        self._keep(lambda profile: _with_look(profile, measurement))
        self._tell(point, measurement)
        return True

    def outcome(self, ended: Literal["complete", "budget", "interrupted"], signal: int = 0) -> Outcome:
        """How it ended."""
        return Outcome(
            profile=self.profile,
            path=self._request.output or self._path,
            new=self._new,
            ended=ended,
            signal=signal,
            elapsed_s=self.elapsed(),
        )

    def elapsed(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self._start

    def _keep(self, change: Callable[[WorkloadProfile], WorkloadProfile]) -> None:
        """Change the profile, here and on the disk."""

        def changed(kept: WorkloadProfile) -> WorkloadProfile:
            return change(self.profile if self._forgets else united(self.profile, kept))

        self.profile, _ = store.change_workload(self._empty, changed)
        self._forgets = False
        if self._request.output is not None:
            store.save_workload(self.profile, self._request.output)

    def _tell(self, point: Point, measurement: Measurement | None) -> None:
        count = len(self.profile.measurements)
        self._on_step(Step(point=point, measurement=measurement, measured=count, elapsed_s=self.elapsed()))


def _known(request: Request, empty: WorkloadProfile) -> WorkloadProfile:
    """What earlier sessions measured under the same key."""
    found = store.look_up(request.workflow, request.hardware).valid
    return found.profile if found is not None else empty


def _with_look(profile: WorkloadProfile, measurement: Measurement) -> WorkloadProfile:
    """The profile with a new measurement, together with earlier ones of the point."""
    before = profile.at(measurement.point)
    return with_measurement(profile, measurement if before is None else combined(before, measurement))


def united(first: WorkloadProfile, second: WorkloadProfile) -> WorkloadProfile:
    """All that two profiles under one key know; of a point that both have, the measurement with more looks."""
    points = {item.point: item for item in first.measurements}
    for item in second.measurements:
        if item.point not in points or len(item.looks) > len(points[item.point].looks):
            points[item.point] = item
    return dataclasses.replace(first, date=max(first.date, second.date), measurements=tuple(points.values()))


def with_measurement(profile: WorkloadProfile, measurement: Measurement) -> WorkloadProfile:
    """The profile with a measurement added, in place of one of the same point."""
    others = [item for item in profile.measurements if item.point != measurement.point]
    return dataclasses.replace(profile, date=today(), measurements=(*others, measurement))


def today() -> str:
    """The day, ISO 8601."""
    return datetime.date.today().isoformat()
