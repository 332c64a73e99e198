"""Trainers that apply their gradients to shared parameters as soon as they have them, without reducing: A3C.

A trainer's iteration: take a rollout of its own agents, copy the shared policy, compute a gradient, wait until its turn
has come as far as the bound on staleness makes that necessary (`comm.channel.ledger`), apply it, show the new weights.
The trainers meet only at checkpoints and at the end. Between two checkpoints each takes the same number of rollouts, so
that a checkpoint holds the environments of all agents at the same iteration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import Tensor

from gmiflow.api import SharedTrainer
from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.comm.channel.ledger import Ledger
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.shared_state import SharedState
from gmiflow.runtime.comm.channel.weights import WeightsBoard, WeightsPublisher, WeightsWriter
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.reporter import Reporter
from gmiflow.runtime.split.trainers import TrainerRuntime

__all__ = ["ApplyingTrainerRuntime", "open_ledger"]


def open_ledger(context: GMIContext) -> Ledger:
    """The ledger of a training; whoever comes first makes it, and the first trainer opens it."""
    training = context.training
    return Ledger(
        training.name,
        f"{context.weights_path}.ledger",
        context.consumers,
        slots=context.rollout_links[0].ring.shape.slots,
        max_staleness=training.max_staleness,
        timeout_s=context.timeout_s,
    )


class ApplyingTrainerRuntime(TrainerRuntime):
    """See the module."""

    def __init__(self, context: GMIContext, reporter: Reporter, clock: StageClock | None = None) -> None:
        super().__init__(context, reporter, clock)
        self._leaving = contextlib.ExitStack()

    def iterations(self) -> Iterator[int]:
        """As `GMIRuntime.iterations`; the trainers leave the loop at the same iteration, each when it has made it."""
        self._await_agents()
        self._restart_clock()
        while self._await_batch():
            yield self.iteration + 1
            self._finish_iteration()

    @at_work
    def collect(self) -> None:
        """Take the batch that is there."""
        self._batch = self._take()

    @at_work
    def learn(self) -> Mapping[str, Tensor]:
        """The gradient of the batch for the newest shared policy; `_finish_iteration` applies it."""
        with self._ledger.locked():
            self._shared_trainer.pull()
        return super().learn()

    def finish(self) -> None:
        """As `TrainerRuntime.finish`."""
        self._stopped = self._ledger.stopped
        super().finish()

    def stop(self) -> None:
        """As `TrainerRuntime.stop`; lets go of what is shared."""
        super().stop()
        self._leaving.close()

    def _open_board(self) -> WeightsWriter | None:
        """Share the parameters, open the ledger, and show the first weights."""
        context = self.context
        self._start = self.iteration
        first = context.id == context.consumers[0]
        if not first:
            context.control.barrier()  # the first has given the shared memory its values
        state = SharedState(f"{context.weights_path}.shared", self._shared_trainer.share(), first=first)
        self._leaving.callback(state.close)
        self._ledger = open_ledger(context)
        self._leaving.callback(self._ledger.close)
        if first:
            self._ledger.open(context.training.iterations - self._start, self._next_gate())
            context.control.barrier()
        self._ledger.join(context.id)
        self._shared_trainer.attach(state.tensors)
        context.control.barrier()
        board = super()._open_board()
        self._publisher: WeightsBoard = board or WeightsPublisher(
            context.training.name,
            context.weights_path,
            context.producers,
            context.consumers[0],
            timeout_s=context.timeout_s,
        )
        if board is None:
            self._leaving.callback(self._publisher.close)
        return board

    @property
    def _shared_trainer(self) -> SharedTrainer:
        return cast("SharedTrainer", self._trainer)  # `build_trainer` has looked

    def _next_gate(self) -> int:
        """Rollouts of each trainer, of this run, that may begin before the next checkpoint."""
        training = self.context.training
        every = training.checkpoint_every if self.context.run_dir is not None else 0
        gate = (self.iteration // every + 1) * every if every else training.iterations
        return gate - self._start

    def _await_batch(self) -> bool:
        """Wait for the next batch; False when this trainer has taken all that it shall."""
        with self.context.turn.yielded():
            self._wait_s += wait_for(lambda: self._batcher.ready() or self._complete(), self._batcher.look)
        return not self._complete()

    def _complete(self) -> bool:
        return self.iteration - self._start >= self._ledger.limit

    def _finish_iteration(self) -> None:
        """Apply the gradient, checkpoint when due, report; a stop that was asked for ends the loop of all trainers."""
        self._apply()
        self.iteration += 1
        every = self.context.training.checkpoint_every
        if every and self.iteration % every == 0:
            self._checkpoint()
            if self._board is not None:
                self._ledger.open_gate(self._next_gate())
        self._report()
        if self._reporter.stop_requested and not self._ledger.stopped:
            self._ledger.stop()

    @at_work
    def _apply(self) -> None:
        """Change what is shared when its turn has come; then give the batch's slot back."""
        ledger = self._ledger
        learned = self._learned > self.iteration  # a user's loop may collect without learning
        self._await_gradient()
        while True:
            with self.context.turn.yielded():
                self._wait_s += wait_for(ledger.may_apply, ledger.look)
            with ledger.applying() as version:
                if version is not None:  # else another trainer was faster, and has to be waited for
                    if learned:
                        self._shared_trainer.apply()
                    self._publisher.publish(self._trainer.weights())
                    self._batcher.count_lags(version)
                    break
        self._batcher.release()
        if not learned:
            self._skip()

    def _await_gradient(self) -> None:
        """Wait for the device before the lock is asked for: who waited with it would hold up all other trainers."""
        if self.context.device.type == "cuda":
            done = torch.cuda.Event(blocking=True)
            done.record()
            with self.context.turn.yielded():
                done.synchronize()

    @at_work
    def _agreed_checksum(self) -> str:
        """As `GMIRuntime._agreed_checksum`, once all trainers have applied what they have."""
        if hasattr(self, "_ledger"):
            self.context.control.barrier()
            with self._ledger.locked():
                self._shared_trainer.pull()
        return super()._agreed_checksum()
