"""`graph`: the two functions of `eager`, each replayed as one CUDA graph.

The first iterations run eagerly and count; then collecting and learning are captured as they are.
A part that cannot be captured stays eager, and `lowering` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from gmiflow.api import Communicator
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.replay import Part
from gmiflow.runtime.execution.rollout import Rollout
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
        communicator: Communicator,
    ) -> None:
        super().__init__(training, stages, episodes, rollout, clock)
        stream = current_stream(episodes.totals.device)
        self._collecting = Part(
            "collect",
            functools.partial(EagerExecution.collect, self),
            stream=stream,
            pool=None,
            reason=collect_obstacle(stages),
        )
        self._learning = Part(
            "learn",
            functools.partial(EagerExecution.learn, self),
            stream=stream,
            pool=None,
            reason=learn_obstacle(stages, communicator),
        )

    def collect(self) -> None:
        """One rollout, as `EagerExecution.collect`."""
        self._collecting()

    def learn(self) -> Mapping[str, Tensor]:
        """One update, as `EagerExecution.learn`; the metrics are overwritten by the next."""
        return self._learning()

    @property
    def lowering(self) -> dict[str, str]:
        """How each part runs: "graph", or "eager" with the reason."""
        return {part.name: describe(part.reason) for part in (self._collecting, self._learning)}


def current_stream(device: torch.device) -> torch.cuda.Stream | None:
    """The stream that the GMI works on; None on the CPU."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def collect_obstacle(stages: Stages) -> str:
    """Why a rollout cannot be captured, or ""."""
    if not stages.simulator.capturable:
        return f"{type(stages.simulator).__name__}.step may wait for the device (capturable is False)"
    if not stages.agent.capturable:
        return f"{type(stages.agent).__name__}.act may wait for the device (capturable is False)"
    return ""


def learn_obstacle(stages: Stages, communicator: Communicator) -> str:
    """Why an update cannot be captured, or ""."""
    if stages.trainer is None:
        return "there is no trainer"
    if not stages.trainer.capturable:
        return f"{type(stages.trainer).__name__}.update may wait for the device (capturable is False)"
    if communicator.size > 1 and not getattr(communicator, "capturable", False):
        return f"{type(communicator).__name__} reduces through the host"
    return ""


def describe(reason: str) -> str:
    """The lowering of a part as reported to the user."""
    return f"eager: {reason}" if reason else "graph"
