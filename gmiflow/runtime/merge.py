"""From the messages of single GMIs to one event per iteration of a training."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gmiflow.plan import GMIPlan, TrainingPlan
from gmiflow.runtime.events import Iteration
from gmiflow.runtime.messages import Progress
from gmiflow.runtime.speed import WARM_UP, Speed

WINDOW_EPISODES = 100
"""Mean returns are over at least so many of the latest episodes, when there are as many."""


class TrainingMerger:
    """Collects what the GMIs of one training report.

    Attributes:
        latest: the last complete iteration, or None.
        env_steps: environment steps of this run.
        seconds: wall-clock time of the iterations of this run.
        times: host seconds by GMI id, then by stage, and "communicate"; over this run.
        speed: of the iterations of this run after its warm-up.
    """

    def __init__(self, training: TrainingPlan, members: Sequence[GMIPlan]) -> None:
        self.training = training
        self.latest: Iteration | None = None
        self.env_steps = 0
        self.seconds = 0.0
        self.times: dict[int, dict[str, float]] = {gmi.id: {} for gmi in members}
        self._members = len(members)
        self._on_gpu = any(gmi.backend != "cpu" for gmi in members)
        self.speed = Speed(warm_up=WARM_UP["cuda" if self._on_gpu else "cpu"])
        self._first = min(gmi.id for gmi in members)
        self._waiting: dict[int, list[Progress]] = {}
        self._window: deque[tuple[int, float, float]] = deque()

    def add(self, progress: Progress) -> Iteration | None:
        """Take one GMI's report; the merged iteration when it was the last missing one."""
        times = self.times[progress.gmi]
        for name, seconds in (*progress.stage_s.items(), ("communicate", progress.communicate_s)):
            times[name] = times.get(name, 0.0) + seconds
        reports = self._waiting.setdefault(progress.iteration, [])
        reports.append(progress)
        if len(reports) < self._members:
            return None
        del self._waiting[progress.iteration]
        self.latest = self._merge(progress.iteration, reports)
        self.seconds += self.latest.seconds
        self.speed.add(self.latest)
        return self.latest

    def _merge(self, iteration: int, reports: list[Progress]) -> Iteration:
        env_steps = sum(report.env_steps for report in reports)
        self.env_steps += env_steps
        episodes = sum(report.episodes for report in reports)
        mean_return, episode_length = self._windowed(
            episodes, sum(report.return_sum for report in reports), sum(report.length_sum for report in reports)
        )
        diagnostics: dict[str, float] = {}
        for report in reports:
            for name, value in report.diagnostics.items():
                diagnostics[name] = diagnostics.get(name, 0.0) + value
        count = len(reports)
        return Iteration(
            training=self.training.name,
            iteration=iteration,
            env_steps=env_steps,
            total_env_steps=iteration * self.training.num_env * self.training.horizon,
            collect_s=sum(report.collect_s for report in reports) / count,
            learn_s=sum(report.learn_s for report in reports) / count,
            communicate_s=sum(report.communicate_s for report in reports) / count,
            seconds=max(report.iteration_s for report in reports),
            episodes=episodes,
            mean_return=mean_return,
            episode_length=episode_length,
            metrics=next(report.metrics for report in reports if report.gmi == self._first),
            diagnostics=diagnostics,
            stage_s=self._busiest(reports),
        )

    def _busiest(self, reports: Sequence[Progress]) -> dict[str, float]:
        """Seconds by term, of the GMI that waited least for its peers."""
        terms = [terms_of(self.training, report, on_gpu=self._on_gpu) for report in reports]
        return max(terms, key=lambda spent: sum(spent.values()) - spent["communicate"])

    def _windowed(self, episodes: int, return_sum: float, length_sum: float) -> tuple[float | None, float | None]:
        """Mean return and length over the latest iterations that hold `WINDOW_EPISODES` episodes."""
        if episodes:
            self._window.append((episodes, return_sum, length_sum))
        while sum(entry[0] for entry in self._window) - (self._window[0][0] if self._window else 0) >= WINDOW_EPISODES:
            self._window.popleft()
        count = sum(entry[0] for entry in self._window)
        if count == 0:
            return None, None
        return sum(entry[1] for entry in self._window) / count, sum(entry[2] for entry in self._window) / count


def terms_of(training: TrainingPlan, report: Progress, *, on_gpu: bool) -> dict[str, float]:
    """What one GMI spent an iteration on; see `Iteration.stage_s`.

    On a GPU the host's seconds say how the time of the rollout divides, and the device's how long it took.
    """
    host = {role: 0.0 for role in ("simulator", "agent", "trainer")}
    for stage in training.stages:
        host[stage.role] += report.stage_s.get(stage.name, 0.0)
    spent = {"update": report.learn_s, "communicate": report.communicate_s}
    if host["agent"] <= 0.0:  # replayed: the host does not see the stages
        return {"collect": report.collect_s, **spent}
    scale = report.collect_s / (host["simulator"] + host["agent"]) if on_gpu else 1.0
    return {"simulate": host["simulator"] * scale, "infer": host["agent"] * scale, **spent}
