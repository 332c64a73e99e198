"""The runtimes of the two halves of `ea_t`: GMIs that collect, and GMIs that train.

Both run the loop of `GMI.run`. The agent's half waits, before each rollout, until its policy is new enough and there
is room; then it hands the rollout over. The trainer's half takes a batch, updates, and shows the new weights. What
concerns the training as a whole (its end, checkpoints) is decided by the trainers and read by the agents.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from gmiflow.runtime.checkpoint import CheckpointMeta, CheckpointReader
from gmiflow.runtime.comm.channel.batcher import Batcher
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.migrator import Migrator
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.weights import Collected, WeightsReader, WeightsWriter
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMIRuntime, Reporter, at_work
from gmiflow.runtime.execution.clock import RUNTIME, StageClock
from gmiflow.runtime.execution.consume import ConsumerExecution
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.produce import ProducerExecution
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.execution.statistics import StatisticsQueue
from gmiflow.runtime.failure import CHECKPOINT_UNUSABLE, DIVERGED, GMIError, error
from gmiflow.runtime.messages import Done, Progress, Ready, Saved
from gmiflow.runtime.run_directory import POLICY, TRAINER
from gmiflow.runtime.stages import build_trainer

__all__ = ["AgentRuntime", "TrainerRuntime", "make_runtime"]


def make_runtime(context: GMIContext, reporter: Reporter, clock: StageClock | None = None) -> GMIRuntime:
    """The runtime for what the GMI holds: all roles, or one half of a split."""
    if context.id in context.consumers:
        return TrainerRuntime(context, reporter, clock)
    kind = AgentRuntime if context.id in context.producers else GMIRuntime
    return kind(context, reporter, clock)


class AgentRuntime(GMIRuntime):
    """Simulator and agent; the trainer is in another GMI."""

    def setup(self) -> None:
        """As `GMIRuntime.setup`; waits for the first weights.

        Raises:
            GMIError: also E0704, E0705.
        """
        context = self.context
        self._migrator = Migrator(
            context.links,
            env_offset=context.gmi.env_offset,
            num_env=context.gmi.num_env,
            max_staleness=context.training.max_staleness,
            device=context.device,
        )
        self._version = -1
        self._wait_s = 0.0
        self._moved_bytes = self._dropped = 0
        self._drops = any(link.plan.on_full == "drop_oldest" for link in context.links)
        super().setup()
        self._board = WeightsReader(
            context.training.name,
            context.weights_path,
            context.producers,
            context.id,
            context.consumers[0],
            timeout_s=context.timeout_s,
        )
        # One that takes the place of a lost GMI goes on counting where that one was.
        self.iteration = self._reported = self._board.start + self._migrator.made

    def _lowered(self) -> EagerExecution:
        context, training = self.context, self.context.training
        rollouts = tuple(
            Rollout(
                Routes(training),
                horizon=training.horizon,
                num_env=context.gmi.num_env,
                device=context.device,
                storage=storage,
            )
            for storage in self._migrator.storages
        )
        return ProducerExecution(training, self.stages, self._episodes, rollouts, self.clock, self._migrator)

    def iterations(self) -> Iterator[int]:
        """As `GMIRuntime.iterations`, until the trainers end the training."""
        self._reported_s = time.perf_counter()
        while self._admit():
            yield self.iteration + 1
            self._finish_iteration()

    @at_work
    def collect(self) -> None:
        """One rollout, with the newest weights, handed over to the trainers."""
        self._load_newest()
        self._execution.collect()
        self._migrator.deliver(self._version)

    def finish(self) -> None:
        """Report what is on its way, take the last weights, say goodbye."""
        self._report(flush=True)
        self._load_newest()
        self._reporter.send(
            Done(
                gmi=self.context.id,
                iteration=self.iteration,
                stopped=self._board.ended == "stopped",
                checksum=self._agreed_checksum(),
            )
        )

    def stop(self) -> None:
        """As `GMIRuntime.stop`; leaves the channels."""
        super().stop()
        if hasattr(self, "_migrator"):
            self._migrator.close()
        if hasattr(self, "_board"):
            self._board.close()

    def _admit(self) -> bool:
        """Wait until a rollout may start; write slices of checkpoints meanwhile. False when the training has ended."""
        board = self._board
        start = time.perf_counter()
        while True:
            with self.context.turn.yielded():
                wait_for(self._something_to_do, self._look)
            if board.ended != "no":
                return False
            if (iteration := board.wanted_checkpoint) is None:
                self._wait_s += time.perf_counter() - start
                return True
            self._serve(iteration)

    def _something_to_do(self) -> bool:
        board = self._board
        return board.ended != "no" or board.wanted_checkpoint is not None or self._may_start()

    def _may_start(self) -> bool:
        """Whether a rollout may start now: it is wanted, there is room, and the weights are new enough.

        What is under way is counted before the version is read: the other way round the trainer could be one further.
        """
        if self.iteration >= self.context.training.iterations and not self._drops:
            return False
        needed = self._migrator.needed_version(self._board.version)
        return needed is not None and self._board.version >= needed

    def _look(self, waited_s: float) -> None:
        try:
            self._migrator.look(waited_s)
            self._board.look(waited_s)
        except GMIError:
            if self._board.ended == "no":  # else the trainers have left in order, just now
                raise

    @at_work
    def _load_newest(self) -> None:
        """Give the agent the newest whole version."""
        while self._version != self._board.version:
            version, weights = self._board.newest()
            self.stages.agent.load_weights(weights)
            if self.context.device.type == "cuda":
                torch.cuda.current_stream(self.context.device).synchronize()
            if self._board.whole(version):
                self._version = version

    @at_work
    def _serve(self, iteration: int) -> None:
        """Write this GMI's slice of a checkpoint."""
        gmi, run_dir = self.context.gmi, self.context.run_dir
        if run_dir is not None:
            self._write_slice(self._writer(run_dir, only_training=_only_training(self.context)), iteration)
        episodes, return_sum = self._since_checkpoint.tolist()
        self._since_checkpoint.zero_()
        self._board.serve_checkpoint(iteration, Collected(gmi.env_offset, gmi.num_env, round(episodes), return_sum))

    def _finish_iteration(self) -> None:
        self.iteration += 1
        self._report()

    def _completed(self, progress: Progress) -> Progress:
        """Without samples and metrics of a trainer, with what the channels did."""
        channels = {
            "agent_wait_s": self._wait_s,
            "sent_bytes": float(self._migrator.bytes - self._moved_bytes),
            "dropped": float(self._migrator.dropped - self._dropped),
        }
        self._wait_s = 0.0
        self._moved_bytes, self._dropped = self._migrator.bytes, self._migrator.dropped
        return dataclasses.replace(progress, samples=0, channels=channels)


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
        self._board: WeightsWriter | None = None
        if context.id == context.consumers[0]:
            self._board = WeightsWriter(
                training.name,
                context.weights_path,
                context.producers,
                self._trainer.weights(),
                start=self.iteration,
                replaceable=training.on_failure == "restart",
                timeout_s=context.timeout_s,
            )
        setup_s = time.perf_counter() - start
        self.clock.take()
        self._reporter.send(
            Ready(gmi=context.id, iteration=self.iteration, setup_s=setup_s, lowering=self._consumer.lowering)
        )

    @at_work
    def collect(self) -> None:
        """Wait for a batch."""
        while True:
            with self.context.turn.yielded():
                self._wait_s += wait_for(self._batcher.ready, self._batcher.look)
            batch = self._batcher.take(self._version)
            if batch is not None:
                self._batch = batch
                return

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
        self.context.control.barrier()  # no trainer leaves its channels before the agents can know why
        self._reporter.send(
            Done(gmi=self.context.id, iteration=self.iteration, stopped=self._stopped, checksum=checksum)
        )

    def stop(self) -> None:
        """Release the graphs and leave the channels."""
        if hasattr(self, "_consumer"):
            self._consumer.close()
        if hasattr(self, "_batcher"):
            self._batcher.close()
        board = getattr(self, "_board", None)
        if board is not None:
            board.close()

    def _finish_iteration(self) -> None:
        """Checkpoint when due, show the new weights, report, agree with the other trainers on whether to go on.

        The checkpoint is before the weights: with no staleness the agents are then just where the update began.
        """
        self.iteration += 1
        for collective in self.context.collectives.values():
            collective.check()
        every = self.context.training.checkpoint_every
        if every and self.iteration % every == 0:
            self._checkpoint()
        self._hand_over()
        self._report()
        stop = torch.tensor([int(self._reporter.stop_requested)])
        self.context.control.all_reduce(stop, "max")
        self._stopped = bool(stop.item())

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
        writer = self._writer(context.run_dir, only_training=_only_training(context))
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
        try:
            self._trained.load_state_dict(reader.shared(POLICY))
        except RuntimeError as problem:
            raise error(CHECKPOINT_UNUSABLE, f"the policy in {reader.path} is another one: {problem}") from problem
        self._trainer.load_state_dict(reader.shared(TRAINER))
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


def _only_training(context: GMIContext) -> bool:
    """Whether this training is the whole plan."""
    return len(context.producers) + len(context.consumers) == context.program.gmis
