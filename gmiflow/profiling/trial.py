"""One point as a trial run: when it has been seen long enough, how it ended, and what was measured. No torch."""

from __future__ import annotations

import dataclasses
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gmiflow.plan import LaunchPlan
from gmiflow.profiles.workload import Measurement, Point, Status
from gmiflow.runtime.events import Event, Failure, Iteration, RunResult, Started
from gmiflow.runtime.failure import GMI_DIED, GMI_SILENT, GPU_MEMORY
from gmiflow.runtime.memory import device_bytes, host_bytes
from gmiflow.runtime.processes import gpu_uuids
from gmiflow.runtime.sm_activity import SMActivity
from gmiflow.runtime.speed import Rates, Speed, warm_up_of
from gmiflow.runtime.supervisor import Supervisor

_NO_MEMORY = re.compile(
    r"MemoryError|out ?of ?memory|can't allocate memory|cannot allocate memory|std::bad_alloc|failed to allocate",
    re.IGNORECASE,
)
_MEMORY_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How long a point is looked at.

    Attributes:
        window_s: seconds of iterations to measure after the warm-up.
        iterations: at least so many, unless they take more than twice ``window_s``.
        warm_up_s: a warm-up that takes longer is over early; infinite where a part of it may not be left out.
        start_s: until all stages are set up; kernels may have to be compiled.
        timeout_s: from then on, until the point counts as hanging when nothing was measured.
        end_s: how long GMIs may take to finish their last iteration; 0 ends them in the middle of it.
    """

    window_s: float
    iterations: int = 5
    warm_up_s: float = float("inf")
    start_s: float = 120.0
    timeout_s: float = 60.0
    end_s: float = 0.0


PACES = {
    "cpu": Pace(window_s=0.8, iterations=3, warm_up_s=0.3),
    "cuda": Pace(window_s=0.5, start_s=300.0, end_s=5.0),
}
"""By device. On the CPU points are looked at shortly, but several times, in turns (`profiles.drift`). On a GPU the
processes are left to end by themselves: killing one harms others that share its context."""


class Trial:
    """Watches one trial run of a plan.

    Attributes:
        stopped_by: number of the signal that ended it, or None.
        given_up: whether it was ended, for lack of time, before anything was measured.
    """

    def __init__(self, point: Point, plan: LaunchPlan, pace: Pace, deadline: float = float("inf")) -> None:
        """Watch a run that starts now.

        Args:
            point: what ``plan`` is a plan of.
            plan: with one or more trainings, which are alike.
            pace: how long to look.
            deadline: on `time.monotonic`; later the trial ends with what it has.
        """
        on_gpu = plan.target.device == "cuda"
        self.stopped_by: int | None = None
        self.given_up = False
        self._point = point
        self._pace = pace
        self._deadline = deadline
        self._speeds = {
            training.name: Speed(warm_up=warm_up_of(training, on_gpu=on_gpu), patience_s=pace.warm_up_s)
            for training in plan.trainings
        }
        self._uuids = gpu_uuids(plan.gmis)
        self._memory_before = device_bytes(self._uuids)
        self._device_peak = self._host_peak = 0
        self._activity = SMActivity(self._uuids) if self._uuids else None
        self._occupancy: float | None = None
        self._started = self._looked = time.monotonic()
        self._ready: float | None = None
        self._warm: float | None = None
        self._ending: float | None = None
        self._timed_out = ""

    def receive(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, Started):
            self._ready = time.monotonic()
        elif isinstance(event, Iteration) and self._ending is None:
            self._speeds[event.training].add(event)
            if self._warm is None and all(speed.warm for speed in self._speeds.values()):
                self._warm = time.monotonic()
                if self._activity is not None:
                    self._activity.start()

    def watch(self, supervisor: Supervisor) -> None:
        """Look at the time and the memory; end the run when it has been seen long enough."""
        now = time.monotonic()
        self.stopped_by = supervisor.stopped_by
        if self.stopped_by is not None:
            supervisor.end()
        elif self._ending is not None:
            if now - self._ending >= self._pace.end_s:
                supervisor.end()
        elif verdict := self._verdict(now):
            self._end(supervisor, now, verdict)
        elif now - self._looked >= _MEMORY_EVERY_S:
            self._looked = now
            self._look_at_device()

    def _verdict(self, now: float) -> Literal["", "seen", "late", "hanging"]:
        """Whether to end the run, and why."""
        seen = [speed.iterations for speed in self._speeds.values()]
        if all(self._enough(speed) for speed in self._speeds.values()):
            return "seen"
        if now >= self._deadline:
            return "seen" if min(seen) else "late"
        since = self._started if self._ready is None else self._ready
        if now - since < (self._pace.start_s if self._ready is None else self._pace.timeout_s):
            return ""
        return "seen" if min(seen) else "hanging"

    def _enough(self, speed: Speed) -> bool:
        window_s, count = self._pace.window_s, speed.iterations
        if count >= self._pace.iterations:
            return speed.measured_s >= window_s
        return count >= 1 and speed.measured_s >= 2 * window_s

    def _end(self, supervisor: Supervisor, now: float, verdict: str) -> None:
        self._look_at_device()
        self._host_peak = host_bytes(supervisor.processes)
        if self._activity is not None and self._warm is not None:
            self._occupancy = self._activity.part()
        self.given_up = verdict == "late"
        if verdict == "hanging":
            what = "its stages were not set up" if self._ready is None else "no iteration was measured"
            self._timed_out = f"{what} within {now - (self._ready or self._started):.0f} s"
        self._ending = now
        if verdict == "seen" and self._pace.end_s:
            supervisor.stop()
        else:
            supervisor.end()

    def _look_at_device(self) -> None:
        used = device_bytes(self._uuids)
        grown = [now - before for now, before in zip(used, self._memory_before, strict=False)]
        self._device_peak = max([self._device_peak, *grown])

    def close(self) -> None:
        """Let go of the counters."""
        if self._activity is not None:
            self._activity.close()

    def measurement(self, result: RunResult) -> Measurement:
        """What the run showed, once it has ended."""
        status, message = self._status(result.failures)
        rates = [rates for speed in self._speeds.values() if (rates := speed.rates()) is not None]
        if status == "ok" and not rates:
            status, message = "failed", "it ended before an iteration was measured"
        measured = Measurement(
            point=self._point,
            status=status,
            device_memory_bytes=self._device_peak,
            host_memory_bytes=self._host_peak,
            sm_occupancy=self._occupancy if status == "ok" else None,
            startup_s=round((self._warm or time.monotonic()) - self._started, 3),
            message=message,
        )
        return with_rates(measured, rates) if status == "ok" else measured

    def _status(self, failures: Sequence[Failure]) -> tuple[Status, str]:
        if self._timed_out:
            return "timed_out", self._timed_out
        if not failures:
            return "ok", ""
        cause = failures[0]
        message = " ".join(cause.failure.message.split())
        killed = cause.failure.code == GMI_DIED and "SIGKILL" in cause.reason
        if cause.failure.code == GPU_MEMORY or killed or _NO_MEMORY.search(message):
            return "out_of_memory", message
        return "timed_out" if cause.failure.code == GMI_SILENT else "failed", message


def with_rates(measurement: Measurement, rates: Sequence[Rates]) -> Measurement:
    """The measurement with one training's numbers: the mean over trainings side by side, which are alike."""
    terms = list(dict.fromkeys(term for item in rates for term in item.stage_s))
    return dataclasses.replace(
        measurement,
        steps_per_s=statistics.fmean(item.steps_per_s for item in rates),
        steps_per_s_low=statistics.fmean(item.steps_per_s_low for item in rates),
        steps_per_s_high=statistics.fmean(item.steps_per_s_high for item in rates),
        iteration_s=statistics.fmean(item.iteration_s for item in rates),
        stage_s={term: statistics.fmean(item.stage_s.get(term, 0.0) for item in rates) for term in terms},
        iterations=min(item.iterations for item in rates),
    )
