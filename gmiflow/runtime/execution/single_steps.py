"""Stages whose single steps are CUDA graphs: where simulator and agent are in different GMIs a rollout cannot be one.

In every step something is waited for that another process does, which no graph does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gmiflow.api import Agent, Ports, Simulator, StageContext
from gmiflow.runtime.execution.replay import NO_DEVICE, Part, lowering_of, obstacle_of

__all__ = ["StepAgent", "StepSimulator"]


class StepSimulator(Simulator):
    """A simulator whose every step is one CUDA graph: where actions come from another GMI, a rollout cannot be one.

    Everything but `step` goes to the simulator that it wraps. The actions must be the same tensors in every step.
    """

    def __init__(self, simulator: Simulator, stream: torch.cuda.Stream | None) -> None:
        """Wrap ``simulator``, which works on ``stream``; None without a GPU."""
        self._simulator = simulator
        self._inputs: Ports | None = None
        self._part: Part[Ports] = Part(
            "simulate", self._step, stream=stream, reason=obstacle_of(simulator, "step"), timed=False
        )

    @property
    def lowering(self) -> str:
        """How a step runs; see `Part.lowering`."""
        return self._part.lowering

    def setup(self, context: StageContext) -> None:
        """Nothing: it is set up."""

    def reset(self) -> Ports:
        """As the simulator's."""
        return self._simulator.reset()

    def step(self, inputs: Ports) -> Ports:
        """One step; ``inputs`` count at the first call only."""
        if self._inputs is None:
            self._inputs = inputs
        return self._part()

    def _step(self) -> Ports:
        assert self._inputs is not None
        return self._simulator.step(self._inputs)

    def state_dict(self) -> dict[str, Tensor]:
        """As the simulator's."""
        return self._simulator.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As the simulator's."""
        self._simulator.load_state_dict(state)

    def observe(self) -> Ports:
        """As the simulator's."""
        return self._simulator.observe()

    def diagnostics(self) -> dict[str, Any]:
        """As the simulator's."""
        return self._simulator.diagnostics()

    def close(self) -> None:
        """Release the graph, then the simulator."""
        self._part.close()
        self._simulator.close()


class StepAgent(Agent):
    """An agent whose `act` is a CUDA graph for each set of tensors that it is given, where the plan wants graphs.

    Everything but `act` goes to the agent that it wraps. Few sets come: a rollout begins with the runtime's own copy of
    the last observation, and goes on with the simulator's.
    """

    def __init__(self, agent: Agent, stream: torch.cuda.Stream | None, *, planned: bool) -> None:
        """Wrap ``agent``, which works on ``stream``; None without a GPU."""
        self._agent = agent
        self._stream = stream
        self._planned = planned
        self._reason = obstacle_of(agent, "act") or ("" if stream is not None else NO_DEVICE)
        self._parts: dict[tuple[int, ...], Part[Ports]] = {}

    @property
    def lowering(self) -> str:
        """How a step runs; see `Part.lowering`."""
        return lowering_of(self._reason, planned=self._planned)

    @staticmethod
    def make_policy(context: StageContext) -> nn.Module:
        """Nothing: the agent has one."""
        raise NotImplementedError("the agent that is wrapped has made its policy")

    def setup(self, context: StageContext) -> None:
        """Nothing: it is set up."""

    def act(self, inputs: Ports) -> Ports:
        """One step; what it returns is overwritten by the next one with the same inputs."""
        if not self._planned:
            return self._agent.act(inputs)
        key = tuple(map(id, inputs.values()))  # the part holds them, so that no other tensor gets their numbers
        part = self._parts.get(key)
        if part is None:
            act = functools.partial(self._agent.act, inputs)
            name = f"infer {len(self._parts)}"
            part = self._parts[key] = Part(name, act, stream=self._stream, reason=self._reason, timed=False)
        return part()

    def finish(self, inputs: Ports) -> Ports:
        """As the agent's."""
        return self._agent.finish(inputs)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """As the agent's."""
        self._agent.load_weights(weights)

    def state_dict(self) -> dict[str, Tensor]:
        """As the agent's."""
        return self._agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """As the agent's."""
        self._agent.load_state_dict(state)

    def close(self) -> None:
        """Release the graphs."""
        for part in self._parts.values():
            part.close()
