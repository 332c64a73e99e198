"""The iteration of a training that only serves: a rollout whose steps are timed, and nothing after it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.graph import collect_obstacle
from gmiflow.runtime.execution.joint import JointCollect
from gmiflow.runtime.execution.replay import Part
from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.execution.step_timer import StepTimer
from gmiflow.runtime.stages import Stages


class ServeExecution(EagerExecution):
    """Agent and simulator in turn: `eager`, or `graph` with the rollout as one CUDA graph.

    A step is what a caller would wait for: from an observation to the next one. `Agent.finish` is not called, since
    nobody wants its value. On a GPU there are two rollouts, so that one can be timed while the other runs.

    Attributes:
        timed: timers of the rollouts whose numbers are on their way to the host, the oldest first.
    """

    def __init__(
        self,
        training: TrainingPlan,
        stages: Stages,
        episodes: EpisodeStatistics,
        make_rollout: Callable[[], Rollout],
        clock: StageClock,
        *,
        agent_here: bool = True,
    ) -> None:
        """Prepare; without ``agent_here`` the agent of ``stages`` stands for one in another GMI."""
        device = episodes.totals.device
        rollouts = [make_rollout() for _ in range(2 if device.type == "cuda" else 1)]
        super().__init__(training, stages, episodes, rollouts[0], clock)
        if not agent_here:
            self._collector.agent = RUNTIME
        planned = training.execution == "graph" and agent_here
        timers = [StepTimer(training.horizon, self._stream) for _ in rollouts]
        self._turns = [
            (
                rollout,
                timer,
                Part(
                    f"collect {index}",
                    functools.partial(self._serve_into, rollout, timer),
                    stream=self._stream,
                    reason=collect_obstacle(stages) if planned else "",
                    planned=planned,
                ),
            )
            for index, (rollout, timer) in enumerate(zip(rollouts, timers, strict=True))
        ]
        self._next = 0
        self._collecting = self._turns[0][2]
        self.timed: deque[StepTimer] = deque()

    def parts(self) -> tuple[Part[Any] | JointCollect, ...]:
        """As in the base class: one rollout per timer."""
        return tuple(part for _, _, part in self._turns)

    @property
    def lowering(self) -> dict[str, str]:
        """As `EagerExecution.lowering`, of the rollout alone."""
        return {"collect": self._collecting.lowering}

    def collect(self) -> None:
        """Enqueue one rollout."""
        self.rollout, timer, self._collecting = self._turns[self._next]
        self._next = (self._next + 1) % len(self._turns)
        self.timed.append(timer)
        super().collect()

    def learn(self) -> Mapping[str, Tensor]:
        """Nothing: there is no trainer."""
        self.skip()
        return {}

    def _serve_into(self, rollout: Rollout, timer: StepTimer) -> None:
        collector, simulator = self._collector, self._stages.simulator
        timer.mark(0)
        for step in range(collector.horizon):
            inputs = collector.act(rollout, step)
            collector.enter_simulator()
            collector.store(rollout, step, simulator.step(inputs))
            timer.mark(step + 1)
        collector.count(rollout)
