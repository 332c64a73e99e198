"""Joint replicas: one simulator steps the environments of several trainings of one process.

Physics batches far better than it runs side by side: eight simulators of 4,096 environments cost a GPU more than
one of 32,768. So GMIs to which the plan gives one `joint` share a simulator, and keep everything else for
themselves: policy, trainer, seed, statistics, checkpoints. Each finds its environments as a range of rows.

The GMIs are threads, and meet (`gmiflow.runtime.meeting`) where the simulator works for all of them: `setup`, the
first observation, and every rollout (`gmiflow.runtime.execution.joint`). A GMI that has ended or failed leaves; those
that stay go on, and its environments idle along.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from gmiflow.api import Ports, Simulator, StageContext
from gmiflow.plan import GMIPlan
from gmiflow.runtime.failure import PORT_MISMATCH, error
from gmiflow.runtime.meeting import Meeting
from gmiflow.runtime.noise import CounterNoise
from gmiflow.runtime.program import Program
from gmiflow.runtime.turn import Turn

COLLECT_PRIORITY = -1
"""CUDA priority of rollouts that run beside updates: the rollout is the longer chain, so its kernels go first."""


class JointGroup(Meeting):
    """What the GMIs of one simulator share; one per simulator, used by a thread per GMI.

    Attributes:
        pool: memory of the graphs of shared work, which take turns on the stream.
        simulator: of all members, once they have set up.
        members: ids of the GMIs whose environments the simulator has, in the order of its rows.
        rollouts: the joint rollouts, by name of their part.
        closers: called when the last member has left, before the simulator closes.
    """

    def __init__(self, gmis: Sequence[int], turn: Turn, stream: torch.cuda.Stream | None = None) -> None:
        """Prepare for the GMIs ``gmis`` of the process that takes turns by ``turn``."""
        super().__init__(gmis, turn, stream)
        self.pool: Any = None if stream is None else torch.cuda.graph_pool_handle()
        self.simulator: Simulator | None = None
        self.members: tuple[int, ...] = ()
        self.rollouts: dict[str, Callable[[Mapping[int, Any]], Mapping[int, Any]]] = {}
        self.closers: list[Callable[[], None]] = []

    def _left(self) -> None:
        """Release what was shared: graphs first, then the simulator whose work they hold."""
        closers, self.closers = self.closers, []
        for close in closers:
            close()
        self.rollouts.clear()
        simulator, self.simulator = self.simulator, None
        if simulator is not None:
            simulator.close()

    # Work of a meeting.

    def build(self, make: Callable[[], Simulator], contexts: Mapping[int, StageContext]) -> Mapping[int, None]:
        """Make the simulator of all members from their contexts, which differ in seed alone."""
        self.members = tuple(contexts)
        first = next(iter(contexts.values()))
        total = sum(context.num_env for context in contexts.values())
        noises = [cast("CounterNoise", context.noise) for context in contexts.values()]
        simulator = make()
        simulator.setup(
            replace(
                first,
                num_env=total,
                env_offset=0,
                num_env_total=total,
                noise=CounterNoise.joined(noises),
                threads=usable_threads([context.threads for context in contexts.values()]),
            )
        )
        self.simulator = simulator
        return {}

    def start(self, states: Mapping[int, Mapping[str, Tensor] | None]) -> Mapping[int, Ports]:
        """First outputs of each member: of a reset for those without a state, of their state for the others."""
        simulator = self.require_simulator()
        given = {gmi: state for gmi, state in states.items() if state is not None}
        outputs: Ports = {}
        if len(given) < len(self.members):
            outputs = simulator.reset()
        if given:
            simulator.load_state_dict(self._merged(simulator, given))
            outputs = simulator.observe()
        return dict(zip(self.members, self.split(outputs), strict=True))

    def _merged(self, simulator: Simulator, given: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The state of all environments: as given, and as it is for members that bring none."""
        if len(given) == len(self.members):
            states = [given[gmi] for gmi in self.members]
        else:
            now = self.split(self.rows_only(simulator.state_dict()))
            states = [given.get(gmi, mine) for gmi, mine in zip(self.members, now, strict=True)]
        num_env = max(value.shape[0] for state in given.values() for value in state.values() if value.dim())
        # What is one number for all environments of a training is not for those of several.
        rows = [{name: v if v.dim() else v.expand(num_env) for name, v in state.items()} for state in states]
        return {name: torch.cat([state[name].cpu() for state in rows]) for name in rows[0]}

    # Rows of the members.

    def require_simulator(self) -> Simulator:
        """The simulator, which the members have set up."""
        assert self.simulator is not None, "the members have met in `setup`"
        return self.simulator

    def split(self, ports: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Ports of all environments as views of each member's; what is no tensor goes to all."""
        count = len(self.members)
        found: list[dict[str, Any]] = [{} for _ in self.members]
        for name, value in ports.items():
            if isinstance(value, Tensor) and value.dim() and value.shape[0] % count == 0:
                parts: Sequence[Any] = value.unflatten(0, (count, -1)).unbind(0)
            elif isinstance(value, Mapping):
                parts = self.split(cast("Mapping[str, Any]", value))
            else:
                parts = [value] * count
            for own, part in zip(found, parts, strict=True):
                own[name] = part
        return found

    def rows_only(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """``state``, all of whose tensors have a row per environment.

        Raises:
            GMIError: E0708 otherwise: such a simulator cannot be joined.
        """
        for name, value in state.items():
            if not value.dim() or value.shape[0] % len(self.members):
                kind = type(self.simulator).__name__
                broken = f"{kind} is `joinable`, but `{name}` of its state has no row per environment"
                raise error(PORT_MISMATCH, broken)
        return state


@dataclass(frozen=True, kw_only=True, slots=True)
class JointSeat:
    """One GMI's place in a group.

    Attributes:
        stream: the GMI's own; None on the CPU.
    """

    group: JointGroup
    gmi: int
    stream: torch.cuda.Stream | None = None

    def leave(self) -> None:
        """Come no more."""
        self.group.leave(self.gmi)


class JointSlice(Simulator):
    """The environments of one GMI in a simulator that it shares.

    Rollouts do not call `step`: they step all environments at once (`gmiflow.runtime.execution.joint`).
    """

    def __init__(self, seat: JointSeat, make: Callable[[], Simulator]) -> None:
        """Take a seat; ``make`` constructs the simulator if this GMI is the one to do it."""
        self.seat = seat
        self._make = make
        self._state: Mapping[str, Tensor] | None = None
        self._started = False

    @property
    def whole(self) -> Simulator:
        """The simulator of all members."""
        return self.seat.group.require_simulator()

    def setup(self, context: StageContext) -> None:
        """Make the simulator together with the other members."""
        seat = self.seat
        seat.group.meet(seat.gmi, context, lambda contexts: seat.group.build(self._make, contexts), seat.stream)
        self.capturable = self.whole.capturable

    def reset(self) -> Ports:
        """Start all environments of all members."""
        return self._start(None)

    def step(self, inputs: Ports) -> Ports:
        """Not to be called: a step is one of all members."""
        raise NotImplementedError("a joint simulator steps the environments of all its trainings at once")

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Keep a state for `observe`, which gives it to the simulator together with those of the other members."""
        self._state = state

    def observe(self) -> Ports:
        """The current observation of this member; the first time together with the others."""
        if not self._started:
            return self._start(self._state)
        return self._mine(self.whole.observe())

    def _start(self, state: Mapping[str, Tensor] | None) -> Ports:
        seat, self._started, self._state = self.seat, True, None
        return seat.group.meet(seat.gmi, state, seat.group.start, seat.stream)

    def state_dict(self) -> dict[str, Tensor]:
        """The rows of this member: as of a simulator of its own."""
        return self._mine(self.seat.group.rows_only(self.whole.state_dict()))

    def diagnostics(self) -> dict[str, Any]:
        """The counters of the whole simulator, which every member reports."""
        return self.whole.diagnostics()

    def close(self) -> None:
        """Leave; the last member closes the simulator."""
        self.seat.leave()

    def _mine(self, ports: Mapping[str, Any]) -> dict[str, Any]:
        group = self.seat.group
        return group.split(ports)[group.members.index(self.seat.gmi)]


def usable_threads(wanted: Sequence[int]) -> int:
    """Threads for work that is done for several GMIs at a time: theirs together, at most one per usable CPU."""
    return max(1, min(sum(wanted), len(os.sched_getaffinity(0))))


def joint_groups(
    programs: Sequence[Program], turn: Turn, make_stream: Callable[[GMIPlan, int], torch.cuda.Stream | None]
) -> dict[int, JointGroup]:
    """The group of every GMI of a process that shares a simulator with others of the process, by id.

    Args:
        programs: of the process.
        turn: of the process.
        make_stream: makes a stream on a GMI's share by priority (smaller runs first); None on the CPU.
    """
    sharing: dict[int, list[Program]] = {}
    for program in programs:
        if program.gmi.joint is not None:
            sharing.setdefault(program.gmi.joint, []).append(program)
    found: dict[int, JointGroup] = {}
    for members in sharing.values():
        gmis = [program.gmi.id for program in members]
        overlap = members[0].training.execution == "overlap"
        group = JointGroup(gmis, turn, make_stream(members[0].gmi, COLLECT_PRIORITY if overlap else 0))
        found |= dict.fromkeys(gmis, group)
    return found
