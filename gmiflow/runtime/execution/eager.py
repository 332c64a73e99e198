"""`eager`: one iteration as plain calls, in the order that `gmiflow.api` states."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmiflow.api import Ports
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.replay import Part, Span
from gmiflow.runtime.execution.rollout import Rollout, Routes, check_metrics
from gmiflow.runtime.execution.statistics import StatisticsQueue
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
        self._horizon = training.horizon
        self._stages = stages
        self._clock = clock
        self._routes = Routes(training)
        self._agent = clock.index(self._routes.agent)
        self._simulator = clock.index(self._routes.simulator)
        self._trainer = clock.index(self._routes.trainer) if self._routes.trainer is not None else RUNTIME
        self._outputs: Ports = {}
        self._checked = self._metrics_checked = False
        device = episodes.totals.device
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._collect_stream = self._learn_stream = self._stream
        self._collecting: Part[None] = Part(
            "collect", functools.partial(self._collect_into, rollout), stream=self._stream, planned=False
        )
        self._learning: Part[Mapping[str, Tensor]] = Part(
            "learn", functools.partial(self._learn_from, rollout), stream=self._stream, planned=False
        )

    def parts(self) -> tuple[Part[Any], ...]:
        """All that may hold a CUDA graph."""
        return (self._collecting, self._learning)

    def close(self) -> None:
        """Release the graphs, before the stages and the groups whose work they hold."""
        for part in self.parts():
            part.close()

    def start(self, *, resumed: bool) -> None:
        """Start all environments, or only look at them when their state came from a checkpoint."""
        self._clock.enter(self._simulator)
        simulator = self._stages.simulator
        self._outputs = simulator.observe() if resumed else simulator.reset()
        self.rollout.check_start(self._outputs)
        self._clock.enter(RUNTIME)

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
        return {"collect": self._collecting.lowering, "learn": self._learning.lowering}

    def _collect_into(self, rollout: Rollout) -> None:
        """One rollout of ``horizon`` steps into the buffers."""
        agent, simulator, routes, clock = self._stages.agent, self._stages.simulator, self._routes, self._clock
        outputs = self._outputs
        for step in range(self._horizon):
            clock.enter(self._agent)
            acted = agent.act({port: outputs[source] for port, source in routes.to_agent.items()})
            self._check(rollout, routes.agent, acted)
            clock.enter(RUNTIME)
            rollout.store(routes.agent, step, acted)
            clock.enter(self._simulator)
            outputs = simulator.step({port: acted[source] for port, source in routes.to_simulator.items()})
            self._check(rollout, routes.simulator, outputs)
            clock.enter(RUNTIME)
            rollout.store(routes.simulator, step, outputs)
        self._outputs = outputs
        clock.enter(self._agent)
        last = agent.finish({port: outputs[source] for port, source in routes.to_agent.items()})
        self._check_last(rollout, last)
        clock.enter(RUNTIME)
        rollout.store_last(routes.agent, last)
        rollout.store_last(routes.simulator, outputs)
        self.episodes.add(rollout.reward, rollout.terminated, rollout.truncated)

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

    def _check(self, rollout: Rollout, stage: str, outputs: Ports) -> None:
        """Types are declared once, so they are checked over the first rollout only."""
        if not self._checked:
            rollout.check(stage, outputs)

    def _check_last(self, rollout: Rollout, outputs: Ports) -> None:
        if not self._checked:
            rollout.check_last(self._routes.agent, outputs)
            self._checked = True
