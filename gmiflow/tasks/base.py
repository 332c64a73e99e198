"""The common part of all benchmark tasks: a `Simulator` written once in torch over any `Engine`.

A task says four things: what the observation is, what the reward and the termination are, which
state an episode starts in, and (if it is not a plain copy) how an action becomes controls. This
module does the rest: engines, episode counters, time-outs, resets inside `step`, state that
resumes exactly, and diagnostics.

On the CPU the operations of a task that is `Task.taped` are recorded once and replayed by NumPy.

Two ways of restarting finished environments give the same numbers:

* by index, for engines on the CPU: work is proportional to the number of finished environments,
  which is usually none;
* by mask, for engines whose steps can be captured in a CUDA graph: a fresh state is made for every environment and
  `torch.where` selects, so that no shape depends on data and nothing waits for the device.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from gmiflow.api import Floats, Integers, Ports, Simulator, StageContext
from gmiflow.sim.base import Engine, EngineSpec, by_column, create_engine
from gmiflow.tasks.catalog import TaskInfo
from gmiflow.tasks.operands import FirstRows, Kept, number
from gmiflow.tasks.snapshot import Snapshot
from gmiflow.tasks.tape import TapePerCount, record

__all__ = ["ASSETS", "Snapshot", "Task"]

ASSETS = Path(__file__).parent / "assets"
"""Folder of the MJCF bodies."""

DIVERGED = 1e5
"""Length that no observation reaches while the physics is sound."""

DIVERGED_SQUARE = number(DIVERGED**2)
ONE_STEP, ONE_TICK = number(1, torch.int32), number(1, torch.int64)

_Starts = tuple[Tensor, Tensor, Tensor]
"""Positions, velocities and observations of first states."""


class Task(Simulator):
    """A batch of environments of one benchmark task.

    Parameters of the stage: ``engine``, one of "auto", "mujoco", "mjwarp".
    Every episode starts at step 0; finished environments are restarted inside `step`.
    """

    info: ClassVar[TaskInfo]
    """Sizes and lengths of the task."""

    derived: ClassVar[tuple[str, ...]] = ()
    """Derived physics fields that the task reads. They are those of the last substep."""

    direct: ClassVar[bool] = True
    """Whether the controls are the clamped action; if not, the task overrides `apply`."""

    taped: ClassVar[bool] = False
    """Whether what a task says (`apply` aside) may be recorded on the CPU and replayed, see `gmiflow.tasks.tape`: every
    call makes the same tensor operations on the same memory (`start` and `observe_start`: for as many environments)
    and nothing else, neither noise nor numbers that change."""

    joinable = True

    engine: Engine

    start_numbers: int
    """How many uniform numbers `start` makes a first state of; set by the class or in `prepare`."""

    start_columns: Tensor
    """The observation of a start per environment, f32 [num_env, O]. `observe_start` writes rows of it and may rely
    on what it holds, for example constants that `prepare` wrote."""

    def setup(self, context: StageContext) -> None:
        """Make the engine and every buffer.

        Raises:
            ValueError: the parameter ``engine`` names no engine or one that cannot run here.
        """
        info = self.info
        self._context = context
        self.engine = create_engine(
            str(context.params.get("engine", "auto")),
            EngineSpec(
                model_path=ASSETS / info.model,
                num_env=context.num_env,
                substeps=info.substeps,
                derived=self.derived,
                device=context.device,
                threads=context.threads,
            ),
        )
        self.capturable = self.engine.capturable
        self._allocate_ports()
        self._allocate_counters()
        # What a tensor of the CPU is to NumPy; asking torch for it costs more than what is then done with it.
        self._array_of = Kept(Tensor.numpy)
        self.prepare(context)
        self._lay_out_step()

    def _lay_out_step(self) -> None:
        """Decide how a step goes on after the physics."""
        self._assess: Callable[[], None] = self._assess_step
        self._begin: Callable[[Tensor | Floats], _Starts] = self._begin_episodes
        if self.taped and self._context.device.type == "cpu":
            self._assess = record(self._assess_step)
            noise = torch.zeros(self._context.num_env, self.start_numbers)
            self._begin = TapePerCount(self._begin_episodes, noise)

    def _allocate_ports(self) -> None:
        """What `step` takes and gives, and the state that it is made from."""
        engine, device, num_env = self.engine, self._context.device, self._context.num_env
        observation, action = self.info.observation_size, self.info.action_size
        self._obs = torch.zeros(num_env, observation, device=device)
        # Observations are worked out column by column and copied into the row-major port at the end.
        self._columns = by_column(num_env, observation, device)
        self.start_columns = by_column(num_env, observation, device)
        self._start_rows = FirstRows(self.start_columns)
        self._action = engine.ctrl if self.direct else by_column(num_env, action, device)
        self._reward = torch.zeros(num_env, device=device)
        self._terminated = torch.zeros(num_env, dtype=torch.bool, device=device)
        self._truncated = torch.zeros_like(self._terminated)
        # Values and first values of the memory; `prepare` fills both.
        self._memory: dict[str, Tensor] = {}
        self._first_memory: dict[str, Tensor] = {}
        self._now = Snapshot(
            qpos=engine.qpos, qvel=engine.qvel, action=self._action, derived=engine.derived, memory=self._memory
        )
        self._no_action = torch.zeros(num_env, action, device=device)
        self._no_derived = {name: torch.zeros_like(field) for name, field in engine.derived.items()}
        self._out: dict[str, Tensor] = {
            "obs": self._obs,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }

    def _allocate_counters(self) -> None:
        """Episode steps, the clock, and what tells sound physics from broken."""
        device, num_env = self._context.device, self._context.num_env
        self._episode_step = torch.zeros(num_env, dtype=torch.int32, device=device)
        self._episode_length = number(self.info.episode_length, torch.int32)
        # Control steps since the run began: the counter of the reset noise, a device tensor so that a captured
        # step advances it. One per environment: those of several trainings may have begun at different times.
        self._clock = torch.zeros(num_env, dtype=torch.int64, device=device)
        self._done = torch.zeros_like(self._terminated)
        self._every = torch.ones_like(self._terminated)
        self._squares, self._length = torch.zeros_like(self._columns), torch.zeros(num_env, device=device)
        self._nothing = torch.zeros((), device=device)
        self._measures: Tensor | None = None
        self._sound = torch.zeros_like(self._terminated)
        self._sound_steps = torch.zeros(num_env, dtype=torch.int64, device=device)
        self._counted_from = torch.zeros_like(self._clock)

    # What a task says.

    def prepare(self, context: StageContext) -> None:
        """Make the task's constants and, with `remember` and `remember_drawn`, its memory. Called last in `setup`."""

    def apply(self, action: Tensor) -> None:
        """Write ``engine.ctrl`` from the clamped action, f32 [num_env, A]; they are the same tensor if `direct`."""

    @abstractmethod
    def observe_into(self, state: Snapshot, out: Tensor) -> None:
        """Write the observation of every row of ``state`` into ``out``, f32 [n, O]."""

    @abstractmethod
    def judge(self, state: Snapshot, obs: Tensor, reward: Tensor, terminated: Tensor) -> None:
        """Write the reward (f32 [num_env]) and termination (bool [num_env]) of the step just made.

        Follows `observe_into` of the same state, and may use what that has worked out.

        Args:
            state: the state after the step, before any restart.
            obs: the observation of ``state``, f32 [num_env, O].
            reward: to be written.
            terminated: to be written.
        """

    @abstractmethod
    def start(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """First state of an episode: qpos f32 [k, nq] and qvel f32 [k, nv], valid until the next call.

        Args:
            noise: f32 [k, start_numbers], uniform in [0, 1), which is all that differs between episodes.
        """

    def observe_start(self, qpos: Tensor, qvel: Tensor, out: Tensor) -> None:
        """Write the observation of states that `start` gave: nothing measured yet, no action taken.

        ``out`` is the first k rows of `start_columns`. A task may override it with something cheaper that
        gives the same numbers.
        """
        count = qpos.shape[0]
        state = Snapshot(
            qpos=qpos,
            qvel=qvel,
            action=self._no_action[:count],
            derived={name: values[:count] for name, values in self._no_derived.items()},
            memory={name: first[:count] for name, first in self._first_memory.items()},
        )
        self.observe_into(state, out)

    def measure(self, state: Snapshot, obs: Tensor, out: Tensor) -> None:
        """Write the measures of `TaskInfo.goal` for the step just made; only evaluations ask.

        Follows `judge` of the same state, and may use what that has worked out.

        Args:
            state: the state after the step, before any restart.
            obs: the observation of ``state``, f32 [num_env, O].
            out: to be written, f32 [measures, num_env].
        """

    # Services for a task.

    def start_noise(self) -> Tensor:
        """What `start` would get in this step for every environment, f32 [num_env, start_numbers]."""
        return self._context.noise.uniform("reset", self._clock, self.start_numbers)

    def remember(self, name: str, initial: Sequence[float]) -> Tensor:
        """Memory of the task per environment, f32 [num_env, len(initial)], set to ``initial`` at each episode start."""
        values, first = self.remember_drawn(name, len(initial))
        for part in (values, first):
            part.copy_(torch.tensor([initial], dtype=torch.float32, device=part.device))
        return values

    def remember_drawn(self, name: str, width: int) -> tuple[Tensor, Tensor]:
        """As `remember`, with first values that `start` draws.

        Returns:
            the memory, f32 [num_env, width], and where `start` writes the first values of the environments
            that it is asked for: the first k rows of another tensor of that shape.
        """
        num_env, device = self._context.num_env, self._context.device
        values, first = by_column(num_env, width, device), by_column(num_env, width, device)
        self._memory[name], self._first_memory[name] = values, first
        return values, first

    # The Simulator interface. Its tensors are all made in `setup`, outside of inference mode, so they are ordinary
    # ones; the mode itself spares every operation a pass through autograd, a seventh of a step's work on the CPU.

    @torch.inference_mode()
    def reset(self) -> Ports:
        """Start every environment; return "obs"."""
        self._episode_step.zero_()
        self._action.zero_()
        qpos, qvel, obs = self._begin(self.start_noise())
        self.engine.write_where(self._every, qpos, qvel)
        for name, values in self._memory.items():
            values.copy_(self._first_memory[name])
        return {"obs": self._obs.copy_(obs)}

    @torch.inference_mode()
    def step(self, inputs: Ports) -> Ports:
        """Advance every environment by one control step; see `gmiflow.api.Simulator.step`."""
        action = inputs["action"]
        assert isinstance(action, Tensor), "the port action is a tensor"
        torch.clamp(action, -1.0, 1.0, out=self._action)
        self.apply(self._action)
        self.engine.step()
        self._assess()
        if self.engine.masked:
            self._restart_where(self._done)
        else:
            rows = self._array_of(self._done).nonzero()[0]
            if rows.size:
                self._restart(rows)
        return self._out

    def _assess_step(self) -> None:
        """Count the step, observe, judge, and find what has ended: a fixed sequence of operations on fixed buffers."""
        self._clock.add_(ONE_TICK)
        self._episode_step.add_(ONE_STEP)
        self.observe_into(self._now, self._columns)
        self.judge(self._now, self._columns, self._reward, self._terminated)
        self._end_episodes()
        if not self.engine.masked:
            self._obs.copy_(self._columns)

    def _end_episodes(self) -> None:
        """Complete termination and truncation; write which environments ended into ``_done``, bool [num_env].

        Physics that has blown up (an observation that is not finite, or as long as `DIVERGED`) ends the
        episode with reward 0, so that no such number reaches the learner.
        """
        if self._measures is not None:
            self.measure(self._now, self._columns, self._measures)
        # The sum of squares is not finite if any observation is not. Written so that a NaN, for which every
        # comparison is false, counts as broken; terminated = terminated or not sound.
        torch.mul(self._columns, self._columns, out=self._squares)
        torch.sum(self._squares, dim=1, out=self._length)
        torch.lt(self._length, DIVERGED_SQUARE, out=self._sound)
        self._sound_steps.add_(self._sound)
        torch.le(self._sound, self._terminated, out=self._terminated)
        torch.where(self._sound, self._reward, self._nothing, out=self._reward)
        torch.ge(self._episode_step, self._episode_length, out=self._done)
        torch.gt(self._done, self._terminated, out=self._truncated)
        self._done.logical_or_(self._terminated)

    def _begin_episodes(self, noise: Tensor | Floats) -> _Starts:
        """First states made of ``noise`` (f32 [k, start_numbers]) and their observations, valid until the next call."""
        qpos, qvel = self.start(torch.as_tensor(noise))
        (obs,) = self._start_rows(noise.shape[0])
        self.observe_start(qpos, qvel, obs)
        return qpos, qvel, obs

    def _restart(self, rows: Integers) -> None:
        """Restart the environments ``rows`` (i64 [k]).

        By NumPy, because they are few: its calls cost a third of torch's.
        """
        array_of, count = self._array_of, rows.size
        clock = array_of(self._clock)[rows]
        noise = self._context.noise.uniform_array("reset", clock, self.start_numbers, rows)
        qpos, qvel, obs = self._begin(noise)
        self.engine.write(rows, array_of(qpos), array_of(qvel))
        array_of(self._episode_step)[rows] = 0
        for name, values in self._memory.items():
            array_of(values)[rows] = array_of(self._first_memory[name])[:count]
        array_of(self._obs)[rows] = array_of(obs)

    def _restart_where(self, done: Tensor) -> None:
        """As `_restart` for the environments where ``done`` holds, with shapes that never change."""
        qpos, qvel, obs = self._begin(self.start_noise())
        self.engine.write_where(done, qpos, qvel)
        self._episode_step.masked_fill_(done, 0)
        column = done.unsqueeze(1)
        for name, values in self._memory.items():
            torch.where(column, self._first_memory[name], values, out=values)
        torch.where(column, obs, self._columns, out=self._obs)

    def watch(self) -> Tensor:
        """Have every step from now on write the measures of the task's goal, also before a restart.

        Returns:
            where: f32 [measures, num_env], in the order of ``info.goal.measures``.
        """
        self._measures = torch.zeros(len(self.info.goal.measures), self._context.num_env, device=self._context.device)
        self._lay_out_step()
        return self._measures

    def observe(self) -> Ports:
        """The current observation."""
        return {"obs": self._obs}

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on: physics, episode steps, task memory, noise counter."""
        state = {f"engine.{name}": value for name, value in self.engine.state_dict().items()}
        state |= {f"memory.{name}": values.clone() for name, values in self._memory.items()}
        state["obs"] = self._obs.clone()
        state["episode_step"] = self._episode_step.clone()
        state["clock"] = self._clock.clone()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave, also from another engine."""
        prefix = "engine."
        self.engine.load_state_dict(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )
        for name, values in self._memory.items():
            values.copy_(state[f"memory.{name}"])
        self._obs.copy_(state["obs"])
        self._episode_step.copy_(state["episode_step"])
        self._clock.copy_(state["clock"])
        self._counted_from.copy_(self._clock)
        self._sound_steps.zero_()

    def diagnostics(self) -> dict[str, Any]:
        """The engine's counters and the number of episodes ended because the physics blew up."""
        steps = int((self._clock - self._counted_from).sum())
        return {**self.engine.diagnostics(), "diverged": steps - int(self._sound_steps.sum())}

    def close(self) -> None:
        """Release the engine."""
        self.engine.close()
