"""`overlap`: update k runs while rollout k + 1 is collected, with two sets of buffers and two streams.

Rollout k + 1 acts with the weights that update k - 1 left, so experience is exactly one policy
version old; the learner's importance ratio is against that behaviour policy. With
``max_staleness = 0`` the same code waits in between and gives the weights of `eager`.

Order on the device (R: rollout, U: update, W: weights copied to the agent)::

    collect stream   R[k] ------> W ---> R[k+1] ------> W ...
                                  ^ |                   ^
    learn stream     U[k-1] ------' '--> U[k] ----------'

On the CPU the same order is kept one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.graph import collect_obstacle, learn_obstacle
from gmiflow.runtime.execution.joint import JointCollect
from gmiflow.runtime.execution.replay import Part
from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.joint import COLLECT_PRIORITY
from gmiflow.runtime.stages import Stages


class OverlapExecution(EagerExecution):
    """Two rollouts in flight; agent and trainer hold a policy each."""

    def __init__(
        self,
        training: TrainingPlan,
        stages: Stages,
        episodes: EpisodeStatistics,
        rollouts: tuple[Rollout, Rollout],
        clock: StageClock,
        communicator: Collective,
        make_stream: Callable[[int], torch.cuda.Stream] | None = None,
    ) -> None:
        super().__init__(training, stages, episodes, rollouts[0], clock)
        self._stale = training.max_staleness >= 1
        self._rollouts = rollouts
        self._turn = 0
        self._main = self._stream
        pools: tuple[tuple[int, int] | None, ...] = (None, None)
        if self._main is not None:
            make_stream = make_stream or (lambda priority: torch.cuda.Stream(episodes.totals.device, priority))
            self._collect_stream, self._learn_stream = make_stream(COLLECT_PRIORITY), make_stream(0)
            # Graphs that run at the same time must not share memory; those of one stream take turns.
            pools = tuple(torch.cuda.graph_pool_handle() for _ in range(2))
        collect_reason, learn_reason = collect_obstacle(stages), learn_obstacle(stages.trainer, communicator)
        self._collects = [
            self._collect_part(
                f"collect {name}", rollout, stream=self._collect_stream, pool=pools[0], reason=collect_reason
            )
            for name, rollout in zip("ab", rollouts, strict=True)
        ]
        self._learns = [
            Part(
                f"learn {name}",
                functools.partial(self._learn_from, rollout),
                stream=self._learn_stream,
                pool=pools[1],
                reason=learn_reason,
                settle=communicator.settle,
            )
            for name, rollout in zip("ab", rollouts, strict=True)
        ]
        self._collecting, self._learning = self._collects[0], self._learns[0]
        self._publish = Part("weights", self._copy_weights, stream=self._collect_stream, pool=pools[0])

    def parts(self) -> tuple[Part[Any] | JointCollect, ...]:
        """As in the base class: one of each per set of buffers."""
        return (*self._collects, *self._learns, self._publish)

    def start(self, *, resumed: bool) -> None:
        """Start the environments and give the agent the trainer's weights."""
        super().start(resumed=resumed)
        self._copy_weights()
        if self._main is not None:
            for stream in (self._collect_stream, self._learn_stream):
                assert stream is not None
                stream.wait_stream(self._main)

    def collect(self) -> None:
        """Enqueue a rollout into the buffers whose turn it is."""
        self.rollout = self._rollouts[self._turn]
        self._collecting = self._collects[self._turn]
        super().collect()

    def learn(self) -> Mapping[str, Tensor]:
        """Enqueue the update from the rollout just enqueued, and hand weights to the agent."""
        self._learning = self._learns[self._turn]
        self._turn = 1 - self._turn
        if self._stale:
            _wait(self._collect_stream, self._learn_stream)
            self._publish()
            _wait(self._learn_stream, self._collect_stream)
            return super().learn()
        _wait(self._learn_stream, self._collect_stream)
        metrics = super().learn()
        _wait(self._collect_stream, self._learn_stream)
        self._publish()
        return metrics

    def settle(self) -> None:
        """Make the GMI's own stream wait for everything enqueued, so that it may read the stages' state."""
        _wait(self._main, self._collect_stream)
        _wait(self._main, self._learn_stream)

    def _copy_weights(self) -> None:
        trainer = self._stages.trainer
        assert trainer is not None, "overlap needs a trainer"
        self._stages.agent.load_weights(trainer.weights())


def _wait(waiting: torch.cuda.Stream | None, other: torch.cuda.Stream | None) -> None:
    """What is enqueued on ``waiting`` from now on runs after what is enqueued on ``other``."""
    if waiting is not None and other is not None:
        waiting.wait_stream(other)
