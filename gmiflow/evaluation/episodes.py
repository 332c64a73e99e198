"""Episodes of a policy without exploration: every environment's first one, to its end.

First episodes alone make the mean honest: counting whatever ends within a time would prefer short episodes.
All sums are static tensors of the simulator's device, so that a GPU replays simulator and sums as one CUDA graph.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gmiflow.api import Ports, Simulator
from gmiflow.evaluation.subject import Act
from gmiflow.runtime.execution.replay import Part, obstacle_of
from gmiflow.tasks.base import Task
from gmiflow.tasks.catalog import TaskInfo
from gmiflow.tasks.goals import Goal, Measure

LOOK_EVERY = 25
"""Steps between two looks at whether all episodes have ended: a look waits for the device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What some episodes came to.

    Attributes:
        returns: of each episode that ended, of the reward as the simulator gives it.
        lengths: their control steps.
        survived: how many of them were not terminated.
        unfinished: episodes that had not ended after the most steps; they count in nothing else.
        measures: means over the episodes that ended, by name.
        solved: whether the task's goal is reached; None for a simulator without one.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    survived: int
    unfinished: int
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    solved: bool | None = None

    @property
    def episodes(self) -> int:
        """How many ended."""
        return len(self.returns)

    @property
    def mean_return(self) -> float | None:
        """None when no episode ended."""
        return statistics.fmean(self.returns) if self.returns else None

    @property
    def return_deviation(self) -> float | None:
        """Sample standard deviation of the returns; None for fewer than two."""
        return statistics.stdev(self.returns) if len(self.returns) > 1 else None

    @property
    def mean_length(self) -> float | None:
        """Mean control steps of an episode; None when none ended."""
        return statistics.fmean(self.lengths) if self.lengths else None

    @property
    def survival(self) -> float | None:
        """Share of the episodes that lasted their whole time; None when none ended."""
        return self.survived / self.episodes if self.returns else None


class Arena:
    """A simulator in which policies are tried, one after the other.

    Attributes:
        info: the benchmark task that the simulator is, or None.
    """

    def __init__(
        self,
        simulator: Simulator,
        *,
        num_env: int,
        device: torch.device,
        observation: str = "obs",
        action: str = "action",
    ) -> None:
        """Take a simulator that is set up.

        Args:
            simulator: with ``num_env`` environments.
            num_env: how many.
            device: where they live.
            observation: its port that the policy sees.
            action: its port that the policy drives.
        """
        self._simulator, self._num_env, self._device = simulator, num_env, device
        self._observation_port, self._action_port = observation, action
        self.info: TaskInfo | None = simulator.info if isinstance(simulator, Task) else None
        self._measures = self.info.goal.measures if self.info is not None else ()
        values = simulator.watch() if isinstance(simulator, Task) else torch.zeros(0, num_env, device=device)
        self._tally = _Tally(values, self._measures)
        self._action: Tensor | None = None
        self._first: dict[str, Tensor] | None = None
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._part = Part("evaluate", self._advance, stream=stream, reason=obstacle_of(simulator, "step"))
        self._stream = stream

    @torch.no_grad()
    def play(self, act: Act, max_steps: int) -> Outcome:
        """Let every environment make one episode.

        Args:
            act: the policy.
            max_steps: where episodes that have not ended are given up.
        """
        if self._stream is not None:  # what others enqueued: the policy's weights, the simulator's setup
            torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            self._tally.clear()
            observation = _tensor(self._start(), self._observation_port)
            for step in range(1, max_steps + 1):
                action = act(observation)
                if self._action is None:
                    self._action = torch.empty_like(action)
                self._action.copy_(action)
                observation = self._part()
                if step % LOOK_EVERY == 0 and not bool(self._tally.running.any()):
                    break
            return self._tally.outcome(self.info.goal if self.info is not None else None)

    def _start(self) -> Ports:
        """The same first states for every policy, where the simulator can take a state back; else new ones."""
        if self._first is None:
            ports = self._simulator.reset()
            self._first = {name: value.clone() for name, value in self._simulator.state_dict().items()}
            return ports
        if not self._first:
            return self._simulator.reset()
        self._simulator.load_state_dict(self._first)
        return self._simulator.observe()

    def _advance(self) -> Tensor:
        """One control step of all environments, and its sums; the observation after it."""
        assert self._action is not None, "`play` makes it"
        out = self._simulator.step({self._action_port: self._action})
        self._tally.add(*(_tensor(out, port) for port in ("reward", "terminated", "truncated")))
        return _tensor(out, self._observation_port)

    def close(self) -> None:
        """Release graph and simulator."""
        self._part.close()
        self._simulator.close()


class _Tally:
    """Sums over the first episode of every environment."""

    def __init__(self, values: Tensor, measures: tuple[Measure, ...]) -> None:
        """``values``, f32 [measures, num_env], are written by every step."""
        self._values, self._measures = values, measures
        num_env, device = values.shape[1], values.device
        self.running = torch.ones(num_env, dtype=torch.bool, device=device)
        self._survived = torch.zeros_like(self.running)
        self._returns = torch.zeros(num_env, dtype=torch.float64, device=device)
        self._lengths = torch.zeros(num_env, dtype=torch.int64, device=device)
        self._totals = torch.zeros(len(measures), num_env, dtype=torch.float64, device=device)

    def clear(self) -> None:
        """Begin new episodes."""
        self.running.fill_(True)
        for tensor in (self._survived, self._returns, self._lengths):
            tensor.zero_()
        for total, measure in zip(self._totals, self._measures, strict=True):
            total.fill_(-float("inf") if measure.over == "max" else 0.0)

    def add(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Count one step of the episodes that are running."""
        running = self.running
        self._returns += torch.where(running, reward, 0.0)
        self._lengths += running
        for total, value, measure in zip(self._totals, self._values, self._measures, strict=True):
            value = value.double()
            changed = {"max": torch.maximum(total, value), "last": value}.get(measure.over, total + value)
            total.copy_(torch.where(running, changed, total))
        self._survived |= running & truncated & ~terminated
        running &= ~(terminated | truncated)

    def outcome(self, goal: Goal | None) -> Outcome:
        """What the episodes that have ended came to; waits for the device."""
        ended = ~self.running
        lengths = self._lengths[ended]
        found = Outcome(
            returns=tuple(self._returns[ended].tolist()),
            lengths=tuple(lengths.tolist()),
            survived=int(self._survived.sum()),
            unfinished=int(self.running.sum()),
            measures=self._means(ended) if lengths.numel() else {},
        )
        if goal is None:
            return found
        value, survival = found.mean_return, found.survival
        reached = value is not None and survival is not None and goal.reached(value, survival, found.measures)
        return dataclasses.replace(found, solved=reached)

    def _means(self, ended: Tensor) -> dict[str, float]:
        """Of every measure over the environments ``ended``, bool [num_env], at least one."""
        means: dict[str, float] = {}
        for total, measure in zip(self._totals, self._measures, strict=True):
            values = total / self._lengths if measure.over == "mean" else total
            means[measure.name] = float(values[ended].mean())
        return means


def _tensor(ports: Ports, name: str) -> Tensor:
    value = ports[name]
    assert isinstance(value, Tensor), f"the port {name} is a tensor"
    return value
