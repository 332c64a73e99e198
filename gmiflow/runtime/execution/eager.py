"""`eager`: one iteration as plain calls, in the order that `gmiflow.api` states."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gmiflow.api import Ports
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.stages import Stages


class EagerExecution:
    """Collects rollouts and learns from them, on preallocated buffers and without host synchronisation.

    Agent and trainer share one policy module, so no weights are copied. Other lowerings replay the
    same two functions.

    Attributes:
        episodes: sums over the episodes that ended.
        rollout: the buffers of the current rollout.
    """

    def __init__(
        self, training: TrainingPlan, stages: Stages, episodes: EpisodeStatistics, rollout: Rollout, clock: StageClock
    ) -> None:
        self.episodes = episodes
        self.rollout = rollout
        self._horizon = training.horizon
        self._stages = stages
        self._clock = clock
        self._routes = Routes(training)
        self._agent = clock.index(self._routes.agent)
        self._simulator = clock.index(self._routes.simulator)
        self._trainer = clock.index(self._routes.trainer) if self._routes.trainer is not None else RUNTIME
        self._outputs: Ports = {}
        self._checked = False

    def start(self, *, resumed: bool) -> None:
        """Start all environments, or only look at them when their state came from a checkpoint."""
        self._clock.enter(self._simulator)
        simulator = self._stages.simulator
        self._outputs = simulator.observe() if resumed else simulator.reset()
        self._clock.enter(RUNTIME)

    def collect(self) -> None:
        """One rollout of ``horizon`` steps into the buffers."""
        agent, simulator, rollout, routes, clock = (
            self._stages.agent, self._stages.simulator, self.rollout, self._routes, self._clock,
        )  # fmt: skip
        outputs = self._outputs
        for step in range(self._horizon):
            clock.enter(self._agent)
            acted = agent.act({port: outputs[source] for port, source in routes.to_agent.items()})
            self._check(routes.agent, acted)
            clock.enter(RUNTIME)
            rollout.store(routes.agent, step, acted)
            clock.enter(self._simulator)
            outputs = simulator.step({port: acted[source] for port, source in routes.to_simulator.items()})
            self._check(routes.simulator, outputs)
            clock.enter(RUNTIME)
            rollout.store(routes.simulator, step, outputs)
        self._outputs = outputs
        clock.enter(self._agent)
        last = agent.finish({port: outputs[source] for port, source in routes.to_agent.items()})
        self._check_last(last)
        clock.enter(RUNTIME)
        rollout.store_last(routes.agent, last)
        rollout.store_last(routes.simulator, outputs)
        self.episodes.add(rollout.reward, rollout.terminated, rollout.truncated)

    def learn(self) -> Mapping[str, Tensor]:
        """One update from the rollout; its metrics as 0-d tensors, empty without a trainer."""
        if self._stages.trainer is None:
            return {}
        self._clock.enter(self._trainer)
        metrics = self._stages.trainer.update(self.rollout.batch)
        self._clock.enter(RUNTIME)
        return metrics

    def _check(self, stage: str, outputs: Ports) -> None:
        """Types are declared once, so they are checked over the first rollout only."""
        if not self._checked:
            self.rollout.check(stage, outputs)

    def _check_last(self, outputs: Ports) -> None:
        if not self._checked:
            self.rollout.check_last(self._routes.agent, outputs)
            self._checked = True
