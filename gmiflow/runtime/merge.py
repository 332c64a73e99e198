"""From the messages of single GMIs to one event per iteration of a training."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from gmiflow.plan import GMIPlan, TrainingPlan
from gmiflow.runtime.events import Iteration
from gmiflow.runtime.messages import Progress
from gmiflow.runtime.serving_statistics import ServingStatistics
from gmiflow.runtime.speed import Speed, warm_up_of

WINDOW_EPISODES = 100
"""Mean returns are over at least so many of the latest episodes, when there are as many."""


class ReturnWindow:
    """Mean return and length over the latest iterations that hold `WINDOW_EPISODES` episodes."""

    def __init__(self) -> None:
        self._sums: deque[tuple[int, float, float]] = deque()

    def add(self, episodes: int, return_sum: float, length_sum: float) -> tuple[float | None, float | None]:
        """Count the episodes that ended in an iteration; mean return and length, None before one has ended."""
        sums = self._sums
        if episodes:
            sums.append((episodes, return_sum, length_sum))
        while sum(entry[0] for entry in sums) - (sums[0][0] if sums else 0) >= WINDOW_EPISODES:
            sums.popleft()
        count = sum(entry[0] for entry in sums)
        if count == 0:
            return None, None
        return sum(entry[1] for entry in sums) / count, sum(entry[2] for entry in sums) / count


class TrainingMerger:
    """Collects what the GMIs of one training report.

    An iteration is complete when all GMIs with the trainer (in serving: with the simulator) have reported it, and the
    others have reported as many rollouts. These may be ahead: then their further rollouts count for the iterations to
    come, or at once where rollouts may be dropped, since then the two do not count alike.

    Attributes:
        latest: the last complete iteration, or None.
        env_steps: environment steps of this run.
        samples: that were trained on.
        lags: how many parts of rollouts were trained on with which lag; see `Iteration`.
        channels: totals of the channels' numbers.
        seconds: wall-clock time of the iterations of this run.
        times: host seconds by GMI id, then by stage, and "communicate"; over this run.
        speed: of the iterations of this run after its warm-up.
        serving: of a training that only serves.
    """

    def __init__(self, training: TrainingPlan, members: Sequence[GMIPlan]) -> None:
        self.training = training
        self.latest: Iteration | None = None
        self.env_steps = self.samples = 0
        self.lags: Counter[str] = Counter()
        self.channels: dict[str, float] = {}
        self.seconds = 0.0
        self.times: dict[int, dict[str, float]] = {gmi.id: {} for gmi in members}
        self._on_gpu = any(gmi.backend != "cpu" for gmi in members)
        self.speed = Speed(warm_up=warm_up_of(training, on_gpu=self._on_gpu))
        role = "simulator" if training.mode == "serve" else "trainer"
        named = {stage.name for stage in training.stages if stage.role == role}
        self._closing = {gmi.id for gmi in members if not named or named.intersection(gmi.stages)}
        self.serving: ServingStatistics | None = None
        if training.mode == "serve":
            simulating = [gmi for gmi in members if gmi.id in self._closing]
            self.serving = ServingStatistics(simulating, self.speed.warm_up)
        acting = {stage.name for stage in training.stages if stage.role == "agent"}
        self._acting = {gmi.id for gmi in members if acting.intersection(gmi.stages)}
        self._reached = {gmi.id: 0 for gmi in members if gmi.id not in self._closing}
        self._in_step = all(edge.on_full == "block" for edge in training.edges)
        self._first = min(self._closing)
        self._waiting: dict[int, list[Progress]] = {}
        self._rollouts: list[Progress] = []
        self._window = ReturnWindow()

    def add(self, progress: Progress) -> Iteration | None:
        """Take one GMI's report; the merged iteration when it was the last missing one."""
        times = self.times[progress.gmi]
        for name, seconds in (*progress.stage_s.items(), ("communicate", progress.communicate_s)):
            times[name] = times.get(name, 0.0) + seconds
        if progress.gmi in self._reached:
            self._reached[progress.gmi] = progress.iteration
            self._rollouts.append(progress)
        else:
            self._waiting.setdefault(progress.iteration, []).append(progress)
            if self.serving is not None:
                self.serving.add(progress)
        iteration = min(self._waiting, default=None)
        if iteration is None or len(self._waiting[iteration]) < len(self._closing):
            return None
        if any(reached < iteration for reached in self._reached.values()):
            return None
        reports = [*self._waiting.pop(iteration), *self._rollouts_of(iteration)]
        self.latest = self._merge(iteration, reports)
        self.seconds += self.latest.seconds
        self.speed.add(self.latest)
        return self.latest

    def _rollouts_of(self, iteration: int) -> list[Progress]:
        """Reports of GMIs that only collect, which count for ``iteration``."""
        taken = [report for report in self._rollouts if not self._in_step or report.iteration <= iteration]
        self._rollouts = [report for report in self._rollouts if self._in_step and report.iteration > iteration]
        return taken

    def _merge(self, iteration: int, reports: list[Progress]) -> Iteration:
        closing = [report for report in reports if report.gmi in self._closing]
        elsewhere = [report for report in reports if report.gmi not in self._closing]
        collecting = closing if self.serving is not None else [r for r in reports if r.gmi in self._acting] or closing
        env_steps = sum(report.env_steps for report in reports)
        samples = sum(report.samples for report in reports)
        self.env_steps += env_steps
        self.samples += samples
        episodes = sum(report.episodes for report in reports)
        mean_return, episode_length = self._window.add(
            episodes, sum(report.return_sum for report in reports), sum(report.length_sum for report in reports)
        )
        channels = _added(report.channels for report in reports)
        self.channels = _added((self.channels, channels))
        lags: Counter[str] = Counter()
        for report in reports:
            lags.update(report.lags)
        self.lags.update(lags)
        return Iteration(
            training=self.training.name,
            iteration=iteration,
            env_steps=env_steps,
            total_env_steps=iteration * self.training.num_env * self.training.horizon,
            collect_s=_mean(collecting, lambda report: report.collect_s),
            learn_s=_mean(closing, lambda report: report.learn_s),
            communicate_s=_mean(closing, lambda report: report.communicate_s),
            seconds=max(report.iteration_s for report in closing),
            episodes=episodes,
            mean_return=mean_return,
            episode_length=episode_length,
            metrics=self._metrics(closing),
            diagnostics=_added(report.diagnostics for report in reports),
            samples=samples,
            channels=channels,
            lags=dict(sorted(lags.items(), key=lambda item: int(item[0]))),
            stage_s=self._terms(closing, elsewhere),
            serving=self.serving.of_iteration(closing) if self.serving is not None else {},
        )

    def _metrics(self, closing: Sequence[Progress]) -> dict[str, float]:
        """Those of any trainer where they reduce and so are equal; their means where each has its own."""
        if self.training.update == "reduce":
            return next(report.metrics for report in closing if report.gmi == self._first)
        tables = [report.metrics for report in closing if report.metrics]
        return {name: sum(table[name] for table in tables) / len(tables) for name in tables[0]} if tables else {}

    def _terms(self, closing: Sequence[Progress], elsewhere: Sequence[Progress]) -> dict[str, float]:
        """Seconds by term; see `Iteration.stage_s`."""
        if self.serving is not None:
            return self._serving_terms(closing, elsewhere)
        if self._acting <= self._closing:
            return self._busiest(closing)
        # Who trains waits for rollouts meanwhile: what these take is told by those that collect, if any has just now.
        acting = [report for report in elsewhere if report.gmi in self._acting]
        trainer = max(closing, key=lambda report: report.learn_s)
        rollout = self._busiest(acting) if acting else {}
        return rollout | {"update": trainer.learn_s, "communicate": trainer.communicate_s}

    def _busiest(self, reports: Sequence[Progress]) -> dict[str, float]:
        """Seconds by term, of the GMI that waited least for its peers."""
        terms = [terms_of(self.training, report, on_gpu=self._on_gpu) for report in reports]
        return max(terms, key=lambda spent: sum(spent.values()) - spent["communicate"])

    def _serving_terms(self, simulating: Sequence[Progress], acting: Sequence[Progress]) -> dict[str, float]:
        """Seconds by term, of the GMI that waited least; where agents are elsewhere, of theirs the busiest too."""
        if not acting:
            return self._busiest(simulating)
        least = min(simulating, key=lambda report: report.communicate_s)
        return {
            "simulate": least.collect_s,
            "infer": max(report.collect_s for report in acting),
            "update": 0.0,
            "communicate": least.communicate_s,
        }


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


def _mean(reports: Sequence[Progress], value: Callable[[Progress], float]) -> float:
    return sum(map(value, reports)) / len(reports)


def _added(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    total: dict[str, float] = {}
    for table in tables:
        for name, value in table.items():
            total[name] = total.get(name, 0.0) + value
    return total
