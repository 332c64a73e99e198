"""`eager`: one iteration as plain calls, in the order that `gmiflow.api` states."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.collector import Collector
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.joint import JointCollect, Share
from gmiflow.runtime.execution.replay import Part, Span, stream_of
from gmiflow.runtime.execution.rollout import Rollout, Routes, check_metrics
from gmiflow.runtime.execution.single_steps import StepAgent
from gmiflow.runtime.execution.statistics import StatisticsQueue
from gmiflow.runtime.joint import JointSlice
from gmiflow.runtime.stages import Stages


class EagerExecution:
    """Collects rollouts and learns from them, on preallocated buffers and without host synchronisation.

    Agent and trainer share one policy module, so no weights are copied. The other lowerings replay the
    same two functions, `_collect_into` and `_learn_from`.

    Attributes:
        episodes: sums over the episodes that ended.
        rollout: the buffers of the latest rollout.
        queue: statistics on their way to the host.
    """

    def __init__(
        self, training: TrainingPlan, stages: Stages, episodes: EpisodeStatistics, rollout: Rollout, clock: StageClock
    ) -> None:
        self.episodes = episodes
        self.rollout = rollout
        self.queue = StatisticsQueue(episodes.totals.device)
        self._stages = stages
        self._clock = clock
        routes = Routes(training)
        self._collector = Collector(training.horizon, stages, routes, episodes, clock)
        self._trainer = clock.index(routes.trainer) if routes.trainer is not None else RUNTIME
        self._metrics_checked = False
        device = episodes.totals.device
        self._stream = stream_of(device)
        self._collect_stream = self._learn_stream = self._stream
        self._collecting = self._collect_part("collect", rollout, stream=self._stream, planned=False)
        self._learning: Part[Mapping[str, Tensor]] = Part(
            "learn", functools.partial(self._learn_from, rollout), stream=self._stream, planned=False
        )

    def _collect_part(
        self,
        name: str,
        rollout: Rollout,
        *,
        stream: torch.cuda.Stream | None,
        pool: Any = None,  # noqa: ANN401 - torch's opaque handle
        reason: str = "",
        planned: bool = True,
    ) -> Part[None] | JointCollect:
        """What collects into ``rollout``, alone or with others; arguments as `Part` has them."""
        simulator = self._stages.simulator
        if isinstance(simulator, JointSlice):
            share = Share(
                gmi=simulator.seat.gmi,
                collector=self._collector,
                rollout=rollout,
                stream=stream,
                reason=reason,
                planned=planned,
            )
            return JointCollect(name, simulator.seat, share)
        function = functools.partial(self._collector.collect, rollout)
        return Part(name, function, stream=stream, pool=pool, reason=reason, planned=planned)

    def parts(self) -> tuple[Part[Any] | JointCollect, ...]:
        """All that may hold a CUDA graph."""
        return (self._collecting, self._learning)

    def close(self) -> None:
        """Release the graphs, before the stages and the groups whose work they hold."""
        for part in self.parts():
            part.close()
        if isinstance(self._stages.agent, StepAgent):
            self._stages.agent.close()

    def start(self, *, resumed: bool) -> None:
        """Start all environments, or only look at them when their state came from a checkpoint."""
        self._collector.start(self.rollout, resumed=resumed)

    def collect(self) -> None:
        """Enqueue one rollout."""
        self._collecting()

    def learn(self) -> Mapping[str, Tensor]:
        """Enqueue one update from the rollout; its metrics as 0-d tensors, empty without a trainer.

        The metrics are valid until the next call; `queue` gets a copy.
        """
        metrics = self._learning()
        self._push(metrics, self._learning.span)
        return metrics

    def skip(self) -> None:
        """Close an iteration without an update: its statistics have no metrics."""
        self._push({}, None)

    def _push(self, metrics: Mapping[str, Tensor], learn: Span | None) -> None:
        """Send the numbers of the iteration on their way to the host."""
        self.queue.push(
            self.episodes.totals,
            metrics,
            collect=self._collecting.span,
            learn=learn,
            collect_stream=self._collect_stream,
            learn_stream=self._learn_stream,
        )

    def settle(self) -> None:
        """Make the GMI's own stream wait for everything enqueued, so that it may read the stages' state."""

    @property
    def lowering(self) -> dict[str, str]:
        """How each part runs: "graph", "eager" as planned, or "eager: " and the reason."""
        return {**self._collect_lowering(), "learn": self._learning.lowering}

    def _collect_lowering(self) -> dict[str, str]:
        """Of a rollout, or of what a step of it does here where the simulator is in another GMI."""
        agent = self._stages.agent
        return {"infer": agent.lowering} if isinstance(agent, StepAgent) else {"collect": self._collecting.lowering}

    def _learn_from(self, rollout: Rollout) -> Mapping[str, Tensor]:
        """One update from a rollout."""
        if self._stages.trainer is None:
            return {}
        self._clock.enter(self._trainer)
        metrics = self._stages.trainer.update(rollout.batch)
        if not self._metrics_checked:
            check_metrics(self._clock.names[self._trainer], metrics, self.episodes.totals.device)
            self._metrics_checked = True
        self._clock.enter(RUNTIME)
        return metrics
