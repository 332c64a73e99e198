"""The half of a split mapping that trains."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.checkpoint import CheckpointMeta, CheckpointReader
from gmiflow.runtime.comm.channel.batcher import Batcher
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.weights import WeightsWriter
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.clock import RUNTIME
from gmiflow.runtime.execution.consume import ConsumerExecution
from gmiflow.runtime.execution.statistics import StatisticsQueue
from gmiflow.runtime.failure import DIVERGED, error
from gmiflow.runtime.messages import Done, Progress, Ready, Saved
from gmiflow.runtime.restoring import restore
from gmiflow.runtime.run_directory import POLICY, TRAINER
from gmiflow.runtime.stages import build_trainer

__all__ = ["TrainerRuntime"]


class TrainerRuntime(GMIRuntime):
    """The trainer; simulator and agent are in other GMIs."""

    @at_work
    def setup(self) -> None:
        """Build the trainer, take back a checkpoint, show the first weights.

        Raises:
            GMIError: E0706 to E0711.
        """
        start = time.perf_counter()
        context, training = self.context, self.context.training
        self._batcher = Batcher(
            Dispenser(training),
            context.links,
            env_offset=context.gmi.env_offset,
            num_env=context.gmi.num_env,
            device=context.device,
        )
        self._trainer, self._trained = build_trainer(context, self.clock)
        self._consumer = ConsumerExecution(
            training, self._trainer, self._batcher, self.clock, context.collective(), context.device
        )
        self._version = self._batch = 0
        self._wait_s = 0.0
        self._taken_bytes = 0
        if context.resume is not None:
            self._load()
        self._agreed_checksum()
        self._board = self._open_board()
        setup_s = time.perf_counter() - start
        self.clock.take()
        self._reporter.send(
            Ready(gmi=context.id, iteration=self.iteration, setup_s=setup_s, lowering=self._consumer.lowering)
        )

    def _open_board(self) -> WeightsWriter | None:
        """Show the first weights to the agents, on the first trainer."""
        context, training = self.context, self.context.training
        if context.id != context.consumers[0]:
            return None
        return WeightsWriter(
            training.name,
            context.weights_path,
            context.producers,
            self._trainer.weights(),
            start=self.iteration,
            replaceable=context.program.replaceable,
            timeout_s=context.timeout_s,
        )

    def iterations(self) -> Iterator[int]:
        """As `GMIRuntime.iterations`, from when the agents are ready."""
        self._await_agents()
        yield from super().iterations()

    def _await_agents(self) -> None:
        """What the agents take to set up, their simulators above all, is no time of the first iteration."""
        if self._board is not None:
            with self.context.turn.yielded():
                self._board.await_readers(self._batcher.look)
        self.context.control.barrier()

    @at_work
    def collect(self) -> None:
        """Wait for a batch."""
        self._batch = self._take()
        self._batcher.count_lags(self._version)

    def _take(self) -> int:
        """The next batch, by number, when it is there."""
        while True:
            with self.context.turn.yielded():
                self._wait_s += wait_for(self._batcher.ready, self._batcher.look)
            batch = self._batcher.take()
            if batch is not None:
                return batch

    @at_work
    def learn(self) -> Mapping[str, Tensor]:
        """One update from the batch."""
        self._learned = self.iteration + 1
        return self._consumer.learn(self._batch)

    def finish(self) -> None:
        """As `GMIRuntime.finish`; tells the agents that the end has come."""
        self._report(flush=True)
        self._checkpoint()
        checksum = self._agreed_checksum()
        if self._board is not None:
            self._board.end("stopped" if self._stopped else "finished")
            with self.context.turn.yielded():
                self._board.await_readers()  # what comes late would not find a board that is gone
        self.context.control.barrier()  # no trainer leaves its channels before the agents can know why
        self._reporter.send(
            Done(gmi=self.context.id, iteration=self.iteration, stopped=self._stopped, checksum=checksum)
        )

    def stop(self) -> None:
        """Release the graphs and leave the channels."""
        self._release_graphs()
        if hasattr(self, "_batcher"):
            self._batcher.close()
        board = getattr(self, "_board", None)
        if board is not None:
            board.close()

    @at_work
    def _release_graphs(self) -> None:
        if hasattr(self, "_consumer"):
            self._consumer.close()

    def _finish_iteration(self) -> None:
        """Checkpoint when due, agree with the other trainers on whether to go on, show the new weights, report.

        The checkpoint is before the weights: with no staleness the agents are then just where the update began. So is
        the end: the agents that it leaves there are in the last checkpoint as they would be in any other.
        """
        self.iteration += 1
        if self._learned < self.iteration:  # a user's loop may collect without learning
            self._skip()
        for collective in self.context.collectives.values():
            collective.check()
        every = self.context.training.checkpoint_every
        if every and self.iteration % every == 0:
            self._checkpoint()
        stop = torch.tensor([int(self._reporter.stop_requested)])
        self.context.control.all_reduce(stop, "max")
        self._stopped = bool(stop.item())
        if self._stopped and self._board is not None:
            self._board.admit_no_more()
        self._hand_over()
        self._report()

    def _skip(self) -> None:
        self._consumer.skip()

    @at_work
    def _hand_over(self) -> None:
        """Show the new weights; then give the batch's slot back, so that nobody has room before the weights."""
        self._version += 1
        if self._board is not None:
            self._board.publish(self._trainer.weights())
        if self.context.device.type == "cuda":
            torch.cuda.current_stream(self.context.device).synchronize()
        self._batcher.release()

    @at_work
    def _checkpoint(self) -> None:
        """Write a checkpoint together with the other trainers and the agents, unless this iteration's is there."""
        context = self.context
        if context.run_dir is None or self._saved_iteration == self.iteration:
            return
        checksum = self._agreed_checksum()
        self._require_finite(self.iteration)
        self._saved_iteration = self.iteration
        board, iteration = self._board, self.iteration
        if board is None:
            return
        writer = self._writer(context.run_dir, only_training=context.whole_plan)
        writer.begin(iteration)
        board.request_checkpoint(iteration)
        writer.write_shared(iteration, {POLICY: self._trained.state_dict(), TRAINER: self._trainer.state_dict()})
        with context.turn.yielded():
            wait_for(board.served, board.look)
        found = board.collected()
        episodes = sum(item.episodes for item in found)
        meta = CheckpointMeta(
            training=context.training.name,
            iteration=iteration,
            num_env=context.training.num_env,
            seed=context.training.seed,
            slices=tuple((item.env_offset, item.num_env) for item in found),
            checksum=checksum,
            episodes=episodes,
            mean_return=sum(item.return_sum for item in found) / episodes if episodes else None,
        )
        path = writer.commit(meta)
        self._reporter.send(Saved(gmi=context.id, iteration=iteration, path=str(path), checksum=checksum))

    def _load(self) -> bool:
        context = self.context
        assert context.resume is not None
        reader = CheckpointReader(context.resume)
        reader.require(context.training.name, context.training.num_env)
        reader.restore_policy(self._trained)
        trainer = next(plan.name for plan in context.training.stages if plan.role == "trainer")
        restore(self._trainer, reader.shared(TRAINER), trainer, str(reader.path))
        self.iteration = self._saved_iteration = self._reported = reader.meta.iteration
        return True

    @at_work
    def _require_finite(self, iteration: int) -> None:
        """E0716 when the batch or the policy has NaN or infinity."""
        broken = [name for name, value in self._batcher.tensors(self._batch).items() if not _finite(value)]
        weights = self._trained.state_dict().values()
        if not broken and all(map(_finite, weights)):
            return
        what, stage = (broken[0].removesuffix("@last"), broken[0].partition(".")[0]) if broken else ("the policy", "")
        trainer = next(plan.name for plan in self.context.training.stages if plan.role == "trainer")
        self.clock.enter(self.clock.index(stage or trainer))
        raise error(
            DIVERGED,
            f"{what} is not finite (NaN or infinity) in iteration {iteration}",
            "the last checkpoint is from before: `gmiflow run --resume RUN` goes on from it",
        )

    def _completed(self, progress: Progress) -> Progress:
        """Without environment steps and episodes, with what the channels did."""
        lags = {str(lag): count for lag, count in sorted(self._batcher.lags.items())}
        self._batcher.lags.clear()
        channels = {"trainer_wait_s": self._wait_s, "received_bytes": float(self._batcher.bytes - self._taken_bytes)}
        self._wait_s, self._taken_bytes = 0.0, self._batcher.bytes
        return dataclasses.replace(progress, env_steps=0, channels=channels, lags=lags)

    def _diagnostics(self, now: bool) -> dict[str, float]:
        """The simulators are elsewhere."""
        return {}

    @property
    def _queue(self) -> StatisticsQueue:
        return self._consumer.queue

    def _settle(self) -> None:
        self.clock.enter(RUNTIME)

    @property
    def _policy(self) -> nn.Module:
        return self._trained


def _finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(torch.isfinite(value).all())
