"""One GMI's part of a rollout: act, record, count. Who steps the simulator differs between executions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import Tensor

from gmiflow.api import Ports
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.stages import Stages


class Collector:
    """Drives the agent of one GMI over rollouts, without host synchronisation.

    Attributes:
        horizon: steps of a rollout.
        clock: names the stage at work.
        agent: what the clock names while the agent acts.
    """

    def __init__(
        self, horizon: int, stages: Stages, routes: Routes, episodes: EpisodeStatistics, clock: StageClock
    ) -> None:
        """Prepare; nothing runs yet."""
        self.horizon = horizon
        self.clock = clock
        self._stages = stages
        self._routes = routes
        self._episodes = episodes
        self.agent = clock.index(routes.agent)
        self._simulator = clock.index(routes.simulator)
        self._outputs: Ports = {}
        # What the agent reads at the first step of a rollout. A CUDA graph holds the addresses that it was captured
        # with, so this has a place of its own: a simulator may return new tensors at every step.
        self._first: dict[str, Tensor | dict[str, Tensor]] = {}

    def start(self, rollout: Rollout, *, resumed: bool) -> None:
        """Start all environments, or only look at them when their state came from a checkpoint."""
        self.clock.enter(self._simulator)
        simulator = self._stages.simulator
        outputs = simulator.observe() if resumed else simulator.reset()
        rollout.check_start(outputs)
        self.clock.enter(RUNTIME)
        self._first = {port: _copy_of(outputs[port]) for port in self._routes.to_agent.values()}
        self._outputs = self._first

    def collect(self, rollout: Rollout) -> None:
        """A whole rollout with the GMI's own simulator."""
        simulator = self._stages.simulator
        for step in range(self.horizon):
            inputs = self.act(rollout, step)
            self.enter_simulator()
            self.store(rollout, step, simulator.step(inputs))
        self.finish(rollout)

    def act(self, rollout: Rollout, step: int) -> Ports:
        """Act on the latest observation and record it; what the simulator gets."""
        clock, routes, outputs = self.clock, self._routes, self._outputs
        clock.enter(self.agent)
        acted = self._stages.agent.act({port: outputs[source] for port, source in routes.to_agent.items()})
        rollout.check(routes.agent, acted)
        clock.enter(RUNTIME)
        rollout.store(routes.agent, step, acted)
        return {port: acted[source] for port, source in routes.to_simulator.items()}

    def enter_simulator(self) -> None:
        """The simulator is at work from now on."""
        self.clock.enter(self._simulator)

    def store(self, rollout: Rollout, step: int, outputs: Ports) -> None:
        """Record what the simulator gave for ``step``."""
        rollout.check(self._routes.simulator, outputs)
        self.clock.enter(RUNTIME)
        rollout.store(self._routes.simulator, step, outputs)
        self._outputs = outputs

    def finish(self, rollout: Rollout) -> None:
        """Record what is taken once, after the last step, and count."""
        clock, routes, outputs = self.clock, self._routes, self._outputs
        clock.enter(self.agent)
        last = self._stages.agent.finish({port: outputs[source] for port, source in routes.to_agent.items()})
        rollout.check_last(routes.agent, last)
        clock.enter(RUNTIME)
        rollout.store_last(routes.agent, last)
        rollout.store_last(routes.simulator, outputs)
        self.count(rollout)

    def count(self, rollout: Rollout) -> None:
        """Count the episodes that ended, of a rollout that is complete, and keep what the next one begins with."""
        self._episodes.add(rollout.reward, rollout.terminated, rollout.truncated)
        for port, own in self._first.items():
            _copy_into(own, self._outputs[port])
        self._outputs = self._first


def _copy_of(value: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """The same numbers in memory of their own."""
    return value.clone() if isinstance(value, Tensor) else {name: field.clone() for name, field in value.items()}


def _copy_into(own: Tensor | dict[str, Tensor], value: Tensor | Mapping[str, Tensor]) -> None:
    """Overwrite what `_copy_of` made with another value of the same port."""
    if isinstance(own, Tensor):
        own.copy_(cast("Tensor", value))
        return
    for name, field in own.items():
        field.copy_(cast("Mapping[str, Tensor]", value)[name])
