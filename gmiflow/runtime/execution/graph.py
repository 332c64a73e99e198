"""`graph`: the two functions of `eager`, each replayed as one CUDA graph.

The first iterations run eagerly and count; then collecting and learning are captured as they are.
A part that cannot be captured stays eager, and `lowering` says why.
"""

from __future__ import annotations

import functools

from gmiflow.api import SharedTrainer, Trainer
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.replay import Part, obstacle_of
from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.execution.single_steps import StepAgent
from gmiflow.runtime.joint import JointSlice
from gmiflow.runtime.stages import Stages


class GraphExecution(EagerExecution):
    """One graph for the rollout and one for the update, on the current stream of the GMI."""

    def __init__(
        self,
        training: TrainingPlan,
        stages: Stages,
        episodes: EpisodeStatistics,
        rollout: Rollout,
        clock: StageClock,
        communicator: Collective,
    ) -> None:
        super().__init__(training, stages, episodes, rollout, clock)
        self._collecting = self._collect_part("collect", rollout, stream=self._stream, reason=collect_obstacle(stages))
        self._learning = Part(
            "learn",
            functools.partial(self._learn_from, rollout),
            stream=self._stream,
            reason=learn_obstacle(stages.trainer, communicator),
            settle=communicator.settle,
        )


def collect_obstacle(stages: Stages) -> str:
    """Why a rollout cannot be captured, or ""."""
    if isinstance(stages.agent, StepAgent):
        return "the simulator is in another GMI"
    simulator = stages.simulator.whole if isinstance(stages.simulator, JointSlice) else stages.simulator
    return obstacle_of(simulator, "step") or obstacle_of(stages.agent, "act")


def learn_obstacle(trainer: Trainer | None, communicator: Collective, call: str = "update") -> str:
    """Why ``call`` of a trainer cannot be captured, or ""."""
    if trainer is None:
        return "there is no trainer"
    if obstacle := obstacle_of(trainer, call):
        return obstacle
    if isinstance(trainer, SharedTrainer) and call == "update":
        return f"{type(trainer).__name__} applies its gradient through the host"
    if communicator.size > 1 and not communicator.capturable:
        return f"{type(communicator).__name__} reduces through the host"
    return ""
