"""The trainer's half of a split iteration: updates from the batches of a batcher."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from gmiflow.api import Ports, SharedTrainer, Trainer
from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.channel.batcher import Batcher
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.graph import learn_obstacle
from gmiflow.runtime.execution.replay import Part, stream_of
from gmiflow.runtime.execution.rollout import check_metrics
from gmiflow.runtime.execution.statistics import StatisticsQueue


class ConsumerExecution:
    """Learns from one batch after the other; captured per batch buffer where the plan says `graph`.

    Attributes:
        queue: statistics on their way to the host.
    """

    def __init__(
        self,
        training: TrainingPlan,
        trainer: Trainer,
        batcher: Batcher,
        clock: StageClock,
        communicator: Collective,
        device: torch.device,
    ) -> None:
        self.queue = StatisticsQueue(device)
        self._totals = torch.zeros(3, dtype=torch.float64, device=device)
        self._stream = stream_of(device)
        self._learn = trainer.update
        if training.update == "apply" and isinstance(trainer, SharedTrainer):
            self._learn = trainer.gradient  # the caller applies it
        self._clock, self._device = clock, device
        name = next(stage.name for stage in training.stages if stage.role == "trainer")
        self._index = clock.index(name)
        self._checked = False
        reason = learn_obstacle(trainer, communicator, self._learn.__name__)
        planned = training.execution == "graph"
        # Updates take turns on one stream, so their graphs may share memory.
        pool = torch.cuda.graph_pool_handle() if self._stream is not None else None
        self._parts = [
            Part(
                f"learn {index}",
                functools.partial(self._update, batch),
                stream=self._stream,
                pool=pool,
                reason=reason if planned else "",
                planned=planned,
                settle=communicator.settle,
            )
            for index, batch in enumerate(batcher.batches)
        ]

    def close(self) -> None:
        """Release the graphs, before the group whose work they hold."""
        for part in self._parts:
            part.close()

    @property
    def lowering(self) -> dict[str, str]:
        """How the update runs; see `Part.lowering`."""
        return {"learn": self._parts[0].lowering}

    def learn(self, batch: int) -> Mapping[str, Tensor]:
        """Update from batch number ``batch``; metrics as 0-d tensors, valid until the next call."""
        part = self._parts[batch]
        metrics = part()
        self.queue.push(
            self._totals,
            metrics,
            collect=None,
            learn=part.span,
            collect_stream=self._stream,
            learn_stream=self._stream,
        )
        return metrics

    def skip(self) -> None:
        """Close an iteration without an update: its statistics have no metrics."""
        self.queue.push(self._totals, {}, collect=None, learn=None)

    def _update(self, batch: Ports) -> Mapping[str, Tensor]:
        self._clock.enter(self._index)
        metrics = self._learn(batch)
        if not self._checked:
            check_metrics(self._clock.names[self._index], metrics, self._device)
            self._checked = True
        self._clock.enter(RUNTIME)
        return metrics
