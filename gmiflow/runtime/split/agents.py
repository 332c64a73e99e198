"""The half of a split mapping that collects: simulator and agent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.comm.channel.ledger import Ledger
from gmiflow.runtime.comm.channel.migrator import Migrator
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.weights import Collected, WeightsReader
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.produce import ProducerExecution
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.messages import Done, Progress
from gmiflow.runtime.split.applying import open_ledger

__all__ = ["AgentRuntime"]


class AgentRuntime(GMIRuntime):
    """Simulator and agent; the trainer is in another GMI."""

    def setup(self) -> None:
        """As `GMIRuntime.setup`; waits for the first weights.

        Raises:
            GMIError: also E0704, E0705.
        """
        context = self.context
        links = context.rollout_links
        self._migrator = Migrator(
            links,
            env_offset=context.gmi.env_offset,
            num_env=context.gmi.num_env,
            max_staleness=context.training.max_staleness,
            device=context.device,
        )
        self._version = -1
        self._wait_s = 0.0
        self._moved_bytes = self._dropped = 0
        self._fed_trainer = links[0].plan.consumer
        self._feeds_writer = any(link.plan.consumer == context.consumers[0] for link in links)
        self._drops = any(link.plan.on_full == "drop_oldest" for link in links)
        super().setup()
        self._board = WeightsReader(
            context.training.name,
            context.weights_path,
            context.producers,
            context.id,
            context.consumers[0],
            device=context.device,
            timeout_s=context.timeout_s,
        )
        self._ledger: Ledger | None = None
        if context.training.update == "apply":
            self._ledger = open_ledger(context)
            self._ledger.follow()
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
        self._restart_clock()
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
        ledger = getattr(self, "_ledger", None)
        if ledger is not None:
            ledger.close()

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
        if self._ledger is not None:
            migrator = self._migrator
            return migrator.has_room(self._board.version) and self._ledger.begin(self._fed_trainer, migrator.made)
        if self.iteration >= self.context.training.iterations and not self._drops:
            return False
        needed = self._migrator.needed_version(self._board.version)
        return needed is not None and self._board.version >= needed and self._board.admits

    def _look(self, waited_s: float) -> None:
        try:
            self._migrator.look(waited_s)
            if not self._feeds_writer:  # else the channel to it tells the same, and which is first would be chance
                self._board.look(waited_s)
            if self._ledger is not None:
                self._ledger.look(waited_s)
        except GMIError:
            if self._board.ended == "no":  # else the trainers have left in order, just now
                raise

    @at_work
    def _load_newest(self) -> None:
        """Give the agent the newest whole version."""
        if self._version != self._board.version:
            self._version, weights = self._board.read()
            self.stages.agent.load_weights(weights)

    @at_work
    def _serve(self, iteration: int) -> None:
        """Write this GMI's slice of a checkpoint."""
        gmi, run_dir = self.context.gmi, self.context.run_dir
        if run_dir is not None:
            self._write_slice(self._writer(run_dir, only_training=self.context.whole_plan), iteration)
        episodes, return_sum = self._since_checkpoint.tolist()
        self._since_checkpoint.zero_()
        self._board.serve_checkpoint(iteration, Collected(gmi.env_offset, gmi.num_env, round(episodes), return_sum))

    def _finish_iteration(self) -> None:
        self.iteration += 1
        if self._learned < self.iteration:  # a user's loop may collect without learning
            self._skip()
        self._report()

    def _completed(self, progress: Progress) -> Progress:
        """Without samples and metrics of a trainer, with what the channels did."""
        channels = {
            **super()._completed(progress).channels,
            "agent_wait_s": self._wait_s,
            "sent_bytes": float(self._migrator.bytes - self._moved_bytes),
            "dropped": float(self._migrator.dropped - self._dropped),
        }
        self._wait_s = 0.0
        self._moved_bytes, self._dropped = self._migrator.bytes, self._migrator.dropped
        return dataclasses.replace(progress, samples=0, channels=channels)
