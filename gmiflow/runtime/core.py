"""`GMIRuntime`: start, run loop, stop; and `GMI`, whose `run` users may override."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.comm.channel.simulators import RemoteSimulator
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.divergence import find_culprit
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.episodes import EpisodeStatistics
from gmiflow.runtime.execution.graph import GraphExecution
from gmiflow.runtime.execution.overlap import OverlapExecution
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.execution.statistics import StatisticsQueue
from gmiflow.runtime.failure import DIVERGED, error
from gmiflow.runtime.messages import Done, Progress, Ready
from gmiflow.runtime.reporter import Reporter
from gmiflow.runtime.saving import SavingRuntime
from gmiflow.runtime.stages import Stages, build_stages

logger = logging.getLogger(__name__)

DIAGNOSTICS_EVERY_S = 5.0
"""How often a simulator on a GPU is asked for its counters."""


class GMIRuntime(SavingRuntime):
    """Runs the stages of one GMI.

    Attributes:
        context: who this GMI is.
        iteration: iterations made, those before a resume included.
    """

    def __init__(self, context: GMIContext, reporter: Reporter, clock: StageClock | None = None) -> None:
        super().__init__(context, reporter)
        self.clock = clock or StageClock([stage.name for stage in context.training.stages])
        self._learned = 0
        self._reported_s = self._diagnosed_s = time.perf_counter()
        self._counters: dict[str, float] = {}
        self._stopped = False

    @at_work
    def setup(self) -> None:
        """Build the stages, take back a checkpoint, start the environments.

        Raises:
            GMIError: E0706 to E0710.
        """
        start = time.perf_counter()
        context = self.context
        self.stages = self._build_stages()
        self._episodes = EpisodeStatistics(context.gmi.num_env, context.device)
        self._execution = self._lowered()
        resumed = self._load() if context.resume is not None else False
        self._agreed_checksum()
        self._execution.start(resumed=resumed)
        setup_s = time.perf_counter() - start
        self.clock.take()
        self._reporter.send(
            Ready(
                gmi=context.id,
                iteration=self.iteration,
                setup_s=setup_s,
                lowering=self._execution.lowering,
                new_episodes=context.resume is not None and not resumed,
            )
        )

    def _build_stages(self) -> Stages:
        """The stages of this GMI, set up."""
        return build_stages(self.context, self.clock)

    def _lowered(self) -> EagerExecution:
        """The execution lowering that the plan names."""
        context, training, stages, episodes = self.context, self.context.training, self.stages, self._episodes

        def rollout() -> Rollout:
            return Rollout(
                Routes(training), horizon=training.horizon, num_env=context.gmi.num_env, device=context.device
            )

        if training.execution == "graph":
            return GraphExecution(training, stages, episodes, rollout(), self.clock, context.collective())
        if training.execution == "overlap":
            both = (rollout(), rollout())
            communicator = context.collective()
            return OverlapExecution(training, stages, episodes, both, self.clock, communicator, context.make_stream)
        return EagerExecution(training, stages, episodes, rollout(), self.clock)

    def iterations(self) -> Iterator[int]:
        """The numbers of the iterations to make, from 1; closes each one when the next is asked for.

        All GMIs of a training leave the loop at the same iteration.
        """
        self._restart_clock()
        while self.iteration < self.context.training.iterations and not self._stopped:
            yield self.iteration + 1
            self._finish_iteration()

    def _restart_clock(self) -> None:
        """The first iteration is timed from now on."""
        self._reported_s = time.perf_counter()

    @at_work
    def collect(self) -> None:
        """One rollout; see the execution lowering."""
        self._execution.collect()

    @at_work
    def learn(self) -> Mapping[str, Tensor]:
        """One update; returns the trainer's metrics as 0-d tensors."""
        self._learned = self.iteration + 1
        return self._execution.learn()

    def finish(self) -> None:
        """Report what is on its way, save the last checkpoint, compare the weights, say goodbye."""
        self._report(flush=True)
        self._checkpoint()
        self._reporter.send(
            Done(
                gmi=self.context.id,
                iteration=self.iteration,
                stopped=self._stopped,
                checksum=self._agreed_checksum(),
            )
        )

    @at_work
    def stop(self) -> None:
        """Release graphs and what the stages hold; safe to call at any time, also after a failed `setup`."""
        if hasattr(self, "_execution"):
            self._execution.close()
        if hasattr(self, "stages"):
            self.stages.close()

    def _finish_iteration(self) -> None:
        """Report, checkpoint when due, and agree with the peers on whether to go on."""
        self.iteration += 1
        if self._learned < self.iteration:  # a user's loop may collect without learning
            self._skip()
        for collective in self.context.collectives.values():
            collective.check()  # a replayed graph tells nobody else
        self._report()
        training = self.context.training
        every = training.checkpoint_every
        if every and self.iteration % every == 0:
            self._checkpoint()
        stop = torch.tensor([int(self._reporter.stop_requested)])
        self.context.control.all_reduce(stop, "max")
        self._stopped = bool(stop.item())

    def _report(self, *, flush: bool = False) -> None:
        """Send the iterations whose numbers have reached the host; on a GPU that is the one before."""
        context = self.context
        for statistics in self._queue.ready(flush=flush):
            self._reported += 1
            self._since_checkpoint += torch.tensor([statistics.episodes, statistics.return_sum], dtype=torch.float64)
            communicate_s = min(self._communicated_s(), statistics.learn_s)
            now = time.perf_counter()
            iteration_s, self._reported_s = now - self._reported_s, now
            if not all(map(math.isfinite, (statistics.return_sum, *statistics.metrics.values()))):
                self._require_finite(self._reported)
            steps = context.gmi.num_env * context.training.horizon
            progress = Progress(
                gmi=context.id,
                iteration=self._reported,
                env_steps=steps,
                iteration_s=iteration_s,
                collect_s=statistics.collect_s,
                learn_s=statistics.learn_s - communicate_s,
                communicate_s=communicate_s,
                episodes=statistics.episodes,
                return_sum=statistics.return_sum,
                length_sum=statistics.length_sum,
                stage_s=self.clock.take(),
                metrics=statistics.metrics,
                diagnostics=self._diagnostics(flush),
                samples=steps,
            )
            self._reporter.send(self._completed(progress))

    def _completed(self, progress: Progress) -> Progress:
        """The report as it is sent, with what was waited for a simulator in another GMI; split mappings say more."""
        simulator = self.stages.simulator
        if not isinstance(simulator, RemoteSimulator):
            return progress
        return dataclasses.replace(progress, channels={"step_wait_s": simulator.take_wait_s()})

    @at_work
    def _require_finite(self, iteration: int) -> None:
        """E0716 when a stage has given NaN or infinity, whatever the trainer makes of its metrics."""
        self._execution.settle()
        names = {stage.role: stage.name for stage in self.context.training.stages}
        culprit = find_culprit(self.stages, self._execution.rollout, names)
        if culprit is not None:
            self.clock.enter(self.clock.index(culprit.stage))  # the failure is at that stage
            raise error(
                DIVERGED,
                f"{culprit.what} is not finite (NaN or infinity) in iteration {iteration}",
                "the last checkpoint is from before: `gmiflow run --resume RUN` goes on from it",
            )

    def _diagnostics(self, now: bool) -> dict[str, float]:
        """The simulator's counters; on a GPU reading them waits for it, so only now and then."""
        due = time.perf_counter() - self._diagnosed_s > DIAGNOSTICS_EVERY_S
        if self.context.device.type == "cpu" or due or now:
            self._diagnosed_s = time.perf_counter()
            self._read_counters()
        return self._counters

    @at_work
    def _read_counters(self) -> None:
        self._counters = numbers(self.stages.simulator.diagnostics())

    @at_work
    def _skip(self) -> None:
        """Close an iteration in which nothing was learned."""
        self._execution.skip()

    @property
    def _queue(self) -> StatisticsQueue:
        """Statistics on their way to the host."""
        return self._execution.queue

    def _settle(self) -> None:
        """Make the GMI's own stream wait for everything enqueued."""
        self._execution.settle()

    @property
    def _policy(self) -> nn.Module:
        """The module that is trained."""
        return self.stages.policy

    def _communicated_s(self) -> float:
        """Host time in the collectives since the last call."""
        seconds = 0.0
        for collective in self.context.collectives.values():
            seconds += collective.seconds
            collective.seconds = 0.0
        return seconds


class GMI:
    """The work of one GMI. A subclass named by `gmi = py "module:Class"` overrides `run`.

    Attributes:
        runtime: the stages and their loop.
        context: who this GMI is.
    """

    def __init__(self, runtime: GMIRuntime) -> None:
        self.runtime = runtime
        self.context = runtime.context

    def run(self) -> None:
        """Collect and learn until the iterations are made. All GMIs must make the same calls."""
        for _ in self.runtime.iterations():
            self.runtime.collect()
            self.runtime.learn()


def run_gmi(gmi_class: type[GMI], runtime: GMIRuntime) -> None:
    """Set up, run, finish and stop one GMI, whatever kind of process or thread it lives in."""
    try:
        runtime.setup()
        gmi_class(runtime).run()
        runtime.finish()
    finally:
        runtime.stop()


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are numbers, as floats."""
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float | Tensor)}
