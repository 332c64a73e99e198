"""The agent's half of a split iteration: `eager` or `graph`, collecting into the buffers of a migrator in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.channel.migrator import Migrator
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.graph import collect_obstacle
from gmiflow.runtime.execution.joint import JointCollect
from gmiflow.runtime.execution.replay import Part
from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.stages import Stages


class ProducerExecution(EagerExecution):
    """Collects; whoever calls has seen to it that there is room (`Migrator.needed_version`)."""

    def __init__(
        self,
        training: TrainingPlan,
        stages: Stages,
        episodes: EpisodeStatistics,
        rollouts: tuple[Rollout, ...],
        clock: StageClock,
        migrator: Migrator,
    ) -> None:
        """Prepare; ``rollouts`` are on the storages of ``migrator``, in order."""
        super().__init__(training, stages, episodes, rollouts[0], clock)
        self._migrator = migrator
        self._rollouts = rollouts
        planned = training.execution == "graph"
        # Rollouts take turns on one stream, so their graphs may share memory.
        pool = torch.cuda.graph_pool_handle() if self._stream is not None else None
        self._collects = [
            self._collect_part(
                f"collect {index}",
                rollout,
                stream=self._stream,
                pool=pool,
                reason=collect_obstacle(stages) if planned else "",
                planned=planned,
            )
            for index, rollout in enumerate(rollouts)
        ]
        self._collecting = self._collects[0]

    def parts(self) -> tuple[Part[Any] | JointCollect, ...]:
        """As in the base class: one rollout per storage."""
        return tuple(self._collects)

    @property
    def lowering(self) -> dict[str, str]:
        """As `EagerExecution.lowering`, of the rollout alone."""
        return self._collect_lowering()

    def collect(self) -> None:
        """Collect into the storage whose turn it is."""
        turn = self._migrator.storage
        self.rollout, self._collecting = self._rollouts[turn], self._collects[turn]
        super().collect()

    def learn(self) -> Mapping[str, Tensor]:
        """Nothing: the trainers do."""
        self.skip()
        return {}
