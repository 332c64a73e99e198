"""The runtimes of trainings that only serve: simulator and agent in one GMI, or in two that meet in every step.

Every GMI goes at its own pace: they start together and nobody waits for others after that, but a simulator for its
agent. Nothing is learned, so nothing is saved. What is reported is how many steps there were and how long each took.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from gmiflow.runtime.agent_server import AgentServer
from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.comm.channel.steps import RemoteAgent
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMIRuntime
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.execution.eager import EagerExecution
from gmiflow.runtime.execution.replay import stream_of
from gmiflow.runtime.execution.rollout import Rollout, Routes
from gmiflow.runtime.execution.serve import ServeExecution
from gmiflow.runtime.execution.single_steps import StepSimulator
from gmiflow.runtime.latency import buckets
from gmiflow.runtime.messages import Done, Progress
from gmiflow.runtime.reporter import Reporter
from gmiflow.runtime.stages import Stages, build_simulator, build_stages

__all__ = ["ServeRuntime", "SimulatorRuntime", "make_serving_runtime"]


def make_serving_runtime(context: GMIContext, reporter: Reporter, clock: StageClock | None = None) -> GMIRuntime:
    """The runtime for what the GMI of a serve workflow holds: both roles, or one of them."""
    if context.acting_links:
        return AgentServer(context, reporter, clock)
    kind = SimulatorRuntime if context.asking_links else ServeRuntime
    return kind(context, reporter, clock)


class ServeRuntime(GMIRuntime):
    """Simulator and agent in one GMI."""

    def _build_stages(self) -> Stages:
        """As in the base class, with the policy of a checkpoint if one is given; E0707 when it does not fit."""
        stages = build_stages(self.context, self.clock)
        if self.context.policy is not None:
            CheckpointReader(self.context.policy).restore_policy(stages.policy)
        return stages

    def _lowered(self) -> EagerExecution:
        self._serving = ServeExecution(
            self.context.training, self.stages, self._episodes, self._rollout, self.clock, agent_here=True
        )
        return self._serving

    def _rollout(self) -> Rollout:
        context = self.context
        return Rollout(
            Routes(context.training),
            horizon=context.training.horizon,
            num_env=context.gmi.num_env,
            device=context.device,
        )

    def finish(self) -> None:
        """Report what is on its way, say goodbye; peers may go on for long."""
        self._report(flush=True)
        self._reporter.send(
            Done(gmi=self.context.id, iteration=self.iteration, stopped=self._stopped, checksum=self._own_checksum())
        )

    def _finish_iteration(self) -> None:
        self.iteration += 1
        if self._learned < self.iteration:  # a user's loop may collect without learning
            self._skip()
        self._report()
        self._stopped = self._reporter.stop_requested

    def _completed(self, progress: Progress) -> Progress:
        """Without samples of a trainer, with the time of every step."""
        seconds = self._serving.timed.popleft().seconds(progress.collect_s)
        latencies = {str(bucket): count for bucket, count in sorted(buckets(seconds).items())}
        return dataclasses.replace(progress, samples=0, latencies=latencies)


class SimulatorRuntime(ServeRuntime):
    """The simulator; the agent is in another GMI."""

    def _build_stages(self) -> Stages:
        context = self.context
        simulator, plan = build_simulator(context, self.clock)
        self._remote = RemoteAgent(context.links[0], context.training, context.device, context.turn)
        self._told_wait_s, self._told_bytes = 0.0, 0
        self._steps: StepSimulator | None = None
        if context.training.execution == "graph":
            simulator = self._steps = StepSimulator(simulator, stream_of(context.device))
        return Stages(
            simulator=simulator,
            agent=self._remote,
            trainer=None,
            policy=nn.Module(),
            clock=self.clock,
            simulator_plan=plan,
        )

    def _lowered(self) -> EagerExecution:
        self._serving = _Asking(
            self.context.training, self.stages, self._episodes, self._rollout, self.clock, agent_here=False
        )
        self._serving.steps = self._steps
        return self._serving

    def stop(self) -> None:
        """As `GMIRuntime.stop`; leaves the channel."""
        super().stop()
        for link in self.context.links:
            link.close()

    def _completed(self, progress: Progress) -> Progress:
        """Waiting for actions counts as communicating."""
        waited, moved = self._remote.wait_s - self._told_wait_s, self._remote.bytes - self._told_bytes
        self._told_wait_s, self._told_bytes = self._remote.wait_s, self._remote.bytes
        channels = {"simulator_wait_s": waited, "moved_bytes": float(moved)}
        completed = super()._completed(progress)
        collect_s = max(0.0, progress.collect_s - waited)
        return dataclasses.replace(completed, collect_s=collect_s, communicate_s=waited, channels=channels)

    @at_work
    def _agreed_checksum(self) -> str:
        """Start together with the others; there are no weights here to compare."""
        neutral = torch.full((2,), torch.iinfo(torch.int64).min)
        self.context.control.all_reduce(neutral, "max")
        return ""

    def _own_checksum(self) -> str:
        """There are no weights here."""
        return ""


class _Asking(ServeExecution):
    """A rollout whose actions come from another GMI.

    Attributes:
        steps: the simulator when its steps are to be captured.
    """

    steps: StepSimulator | None = None

    @property
    def lowering(self) -> dict[str, str]:
        """How a step of the simulator runs."""
        return {"simulate": self.steps.lowering if self.steps is not None else "eager"}
