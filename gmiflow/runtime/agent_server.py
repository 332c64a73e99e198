"""The runtime of a GMI that acts for simulators in other GMIs, in a serve workflow that is split."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator

from torch import nn

from gmiflow.runtime.answering import AnsweringRuntime
from gmiflow.runtime.at_work import at_work
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.steps import STEP_YIELDS, Seat
from gmiflow.runtime.execution.clock import RUNTIME
from gmiflow.runtime.execution.replay import Part, obstacle_of, stream_of
from gmiflow.runtime.messages import Ready
from gmiflow.runtime.stages import build_agents

__all__ = ["AgentServer"]


class AgentServer(AnsweringRuntime):
    """The agent; the simulators that it acts for are in other GMIs, and each is served when it asks.

    An iteration is over when every simulator has had the answers of one more rollout, or has left.
    """

    @at_work
    def setup(self) -> None:
        """Build an agent for each simulator, around one policy, and start together with the others.

        Raises:
            GMIError: E0706 to E0710.
        """
        start = time.perf_counter()
        context, training = self.context, self.context.training
        plans = [link.plan for link in context.links]
        agents, self._served = build_agents(context, self.clock, [(p.env_offset, p.num_env) for p in plans])
        if context.policy is not None:
            CheckpointReader(context.policy).restore_policy(self._served)
        name = next(stage.name for stage in training.stages if stage.role == "agent")
        self._index = self.clock.index(name)
        self._parts: list[Part[None]] = []
        self._open = [
            Seat(link, training, agent, context.device, functools.partial(self._lower, obstacle_of(agent, "act")))
            for link, agent in zip(context.links, agents, strict=True)
        ]
        self._wait_s = self._act_s = 0.0
        self._answers = 0
        self._agreed_checksum()
        setup_s = time.perf_counter() - start
        self.clock.take()
        lowering = {"infer": self._parts[0].lowering}
        self._reporter.send(Ready(gmi=context.id, iteration=0, setup_s=setup_s, lowering=lowering))

    def _lower(self, obstacle: str, compute: Callable[[], None]) -> Callable[[], None]:
        context = self.context
        planned = context.training.execution == "graph"
        part = Part(
            f"act {len(self._parts)}",
            compute,
            stream=stream_of(context.device),
            reason=obstacle if planned else "",
            planned=planned,
            timed=False,
        )
        self._parts.append(part)
        return part

    def iterations(self) -> Iterator[int]:
        """The numbers of the iterations, until all simulators have left."""
        self._reported_s = time.perf_counter()
        while self._open:
            before = self._answers
            yield self.iteration + 1
            if self._answers > before:
                self._finish_iteration()

    @at_work
    def collect(self) -> None:
        """Act for whoever asks, until the iteration is over."""
        wanted = (self.iteration + 1) * self.context.training.horizon
        while any(seat.answers < wanted for seat in self._open):
            with self.context.turn.yielded():
                self._wait_s += wait_for(self._something_to_do, self._look, yields=STEP_YIELDS)
            for seat in self._open:
                if seat.asked:
                    self._answer(seat)
            self._open = [seat for seat in self._open if not seat.left]

    def _something_to_do(self) -> bool:
        return any(seat.asked or seat.left for seat in self._open)

    def _look(self, waited_s: float) -> None:
        for seat in self._open:
            seat.look(waited_s)

    def _answer(self, seat: Seat) -> None:
        self.clock.enter(self._index)
        start = time.perf_counter()
        seat.answer()
        self._act_s += time.perf_counter() - start
        self._answers += 1
        self.clock.enter(RUNTIME)

    @at_work
    def _release(self) -> None:
        for part in getattr(self, "_parts", []):
            part.close()

    def _finish_iteration(self) -> None:
        channels = {"agent_wait_s": self._wait_s}
        self._finish_answers(worked_s=self._act_s, waited_s=self._wait_s, channels=channels)
        self._wait_s = self._act_s = 0.0

    def _diagnostics(self, now: bool) -> dict[str, float]:
        """The simulators are elsewhere."""
        return {}

    @property
    def _policy(self) -> nn.Module:
        return self._served
