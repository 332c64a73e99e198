"""The part of a split mapping that simulates alone, in training: it does what the GMI with its agent asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from torch import nn

from gmiflow.api import Simulator
from gmiflow.runtime.answering import AnsweringRuntime
from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.comm.channel.simulators import SimulatorSeat
from gmiflow.runtime.core import numbers
from gmiflow.runtime.execution.clock import RUNTIME
from gmiflow.runtime.execution.replay import stream_of
from gmiflow.runtime.execution.single_steps import StepSimulator
from gmiflow.runtime.messages import Ready
from gmiflow.runtime.stages import build_simulator, close_simulator

__all__ = ["SteppedRuntime"]


class SteppedRuntime(AnsweringRuntime):
    """The simulator alone. An iteration is over with its last step; the other GMI decides about everything else."""

    @at_work
    def setup(self) -> None:
        """Build the simulator, and say so.

        Raises:
            GMIError: E0707 to E0710.
        """
        start = time.perf_counter()
        context, training = self.context, self.context.training
        simulator, self._plan = build_simulator(context, self.clock)
        lowering = "eager"
        if training.execution == "graph":
            simulator = steps = StepSimulator(simulator, stream_of(context.device))
            lowering = steps.lowering
        self._simulator: Simulator = simulator
        self._seat = SimulatorSeat(context.asking_links[0], training, simulator, context.device, context.turn)
        self._told_wait_s, self._step_s = 0.0, 0.0
        if context.resume is not None:
            self.iteration = CheckpointReader(context.resume).meta.iteration
        self._seat.open()
        setup_s = time.perf_counter() - start
        self.clock.take()
        ready = Ready(gmi=context.id, iteration=self.iteration, setup_s=setup_s, lowering={"simulate": lowering})
        self._reporter.send(ready)

    def iterations(self) -> Iterator[int]:
        """The numbers of the iterations, until the other GMI needs no more."""
        self._restart_clock()
        while not self._seat.ended:
            before = self._seat.steps
            yield self.iteration + 1
            if self._seat.steps > before:
                self._finish_iteration()

    @at_work
    def collect(self) -> None:
        """Do what is asked for, until as many steps as a rollout has are made."""
        wanted = self._seat.steps + self.context.training.horizon
        while self._seat.steps < wanted and not self._seat.ended:
            self._seat.await_command()
            self.clock.enter(self.clock.index(self._plan.name))
            start = time.perf_counter()
            self._seat.answer()
            self._step_s += time.perf_counter() - start
            self.clock.enter(RUNTIME)

    @at_work
    def _release(self) -> None:
        if hasattr(self, "_simulator"):
            close_simulator(self._simulator, self._plan, self.clock)

    def _finish_iteration(self) -> None:
        waited_s, self._told_wait_s = self._seat.wait_s - self._told_wait_s, self._seat.wait_s
        moved = float(self._seat.payload_bytes * self.context.training.horizon)
        channels = {"simulator_wait_s": waited_s, "moved_bytes": moved}
        self._finish_answers(worked_s=self._step_s, waited_s=waited_s, channels=channels)
        self._step_s = 0.0

    @at_work
    def _read_counters(self) -> None:
        self._counters = numbers(self._simulator.diagnostics())

    def _own_checksum(self) -> str:
        """There are no weights here."""
        return ""

    @property
    def _policy(self) -> nn.Module:
        """Nothing to train here."""
        return nn.Module()
