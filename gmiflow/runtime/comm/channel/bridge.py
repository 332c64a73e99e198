"""Bridge: a training's channels and weights between machines, carried by MPI in a thread of each GMI's process.

On one machine nothing changes. Where an agent and its trainer are on different ones, each has shared memory as if the
other were here, and an end of the bridge stands in for it (`far_rollouts`, `far_weights`). Weights cross once for each
machine: the first agent there keeps the board that all agents of the machine read.

The thread never waits in MPI, and holds neither the interpreter nor MPI's lock while it sleeps: it looks at what is
under way, and sleeps the longer the longer nothing has moved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence

import torch

from gmiflow.plan import ChannelPlan
from gmiflow.runtime.comm.channel.connect import open_link, weights_path
from gmiflow.runtime.comm.channel.far_end import FarEnd
from gmiflow.runtime.comm.channel.far_rollouts import RolloutsIn, RolloutsOut
from gmiflow.runtime.comm.channel.far_weights import FoundBoard, WeightsIn, WeightsOut
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.post import Post, require_sendable
from gmiflow.runtime.comm.channel.presence import LONG_SLEEP_S, SHORT_SLEEP_S
from gmiflow.runtime.comm.mpi_world import MPIWorld
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, NOT_SUPPORTED, PEER_LOST, GMIError, error
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous

__all__ = ["Bridge", "needs_bridge"]

BRISK_S = 0.02
"""So long after something has moved the thread sleeps briefly."""
LAST_WORDS_S = 0.5
"""How long a GMI that failed tries to say so to the other machines."""
_WEIGHTS_TAG = 1
_FIRST_CHANNEL_TAG = 2


def needs_bridge(program: Program, world: MPIWorld) -> bool:
    """Whether rollouts or weights of a GMI's training go from one machine to another.

    Raises:
        GMIError: E0710 when something else would have to.
    """
    training = program.training
    for channel in program.carrying("step"):
        if world.spans_nodes((*channel.producers, channel.consumer)):
            raise error(
                NOT_SUPPORTED,
                f"GMI {channel.producers[0]} simulates and GMI {channel.consumer} acts on different machines, and with "
                f"`mapping = {training.mapping}` every step would cross between them",
                "start the two on one machine, or use `mapping = dp_only`",
            )
    rollouts = program.carrying("rollout")
    members = sorted({gmi for channel in rollouts for gmi in (*channel.producers, channel.consumer)})
    if not members or not world.spans_nodes(members):
        return False
    if training.update == "apply":
        raise error(
            NOT_SUPPORTED,
            f"the trainers and agents of {training.name} are on several machines, and with `update = apply` they share "
            "parameters in memory of one",
            "use a trainer that reduces its gradients (`ppo.Learner`), or one machine",
        )
    return True


class Bridge:
    """What one GMI's process carries to and from other machines for its training."""

    def __init__(
        self,
        program: Program,
        world: MPIWorld,
        rendezvous: Rendezvous,
        device: torch.device,
        timeout_s: float,
        on_broken: Callable[[Exception], object],
    ) -> None:
        """Carry what ``program``'s channels and weights need; nothing moves before `start`.

        Args:
            program: of the GMI.
            world: reaches the processes of other machines.
            rendezvous: names the shared memory of this one.
            device: of the GMI.
            timeout_s: how long any wait may last.
            on_broken: hears at once, in the bridge's thread, what breaks it; the GMI may be waiting elsewhere.

        Raises:
            GMIError: E0711 when this MPI library cannot be called by a thread of its own.
        """
        world.require_threads()
        self._program, self._world, self._rendezvous = program, world, rendezvous
        self._device, self._timeout_s = device, timeout_s
        self._on_broken = on_broken
        self._weights_path = weights_path(rendezvous, program.training.name)
        self._agents = tuple(sorted({gmi for plan in program.carrying("rollout") for gmi in plan.producers}))
        self._board: FoundBoard | None = None
        self._stack = contextlib.ExitStack()
        self._ends: list[FarEnd] = []
        self._problem: Exception | None = None
        self._finish, self._close = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def _far(self, gmi: int) -> bool:
        return self._world.node(gmi) != self._world.node(self._program.gmi.id)

    def links(self, stack: contextlib.ExitStack) -> tuple[Link, ...]:
        """As `open_links`: the GMI's ends of its channels, on this machine; ``stack`` closes them when joining fails.

        Raises:
            GMIError: E0704, E0705, E0710, E0711.
        """
        own = self._program.gmi.id
        found = tuple(
            self._link(self._seen(plan, own), own, stack)
            for plan in self._program.channels
            if own == plan.consumer or own in plan.producers
        )
        for link in found:
            if any(self._far(gmi) for gmi in (*link.plan.producers, link.plan.consumer)):
                require_sendable(f"a rollout of {link.plan.name}", link.layout.slot_bytes)
        return found

    def _seen(self, plan: ChannelPlan, own: int) -> ChannelPlan:
        """A channel as this GMI sees it: whole on the trainer's machine, else just its own environments.

        What goes by MPI goes from and to memory of the host.
        """
        gmi = self._program.gmi
        if self._world.spans_nodes((*plan.producers, plan.consumer)):
            plan = dataclasses.replace(plan, kind="host")
        if not self._far(plan.consumer):
            return plan
        first = max(gmi.env_offset, plan.env_offset)
        count = min(gmi.env_offset + gmi.num_env, plan.env_offset + plan.num_env) - first
        return dataclasses.replace(plan, producers=(own,), env_offset=first, num_env=count)

    def _link(self, plan: ChannelPlan, member: int, stack: contextlib.ExitStack) -> Link:
        """Join the ring of a channel as ``member``."""
        narrow = self._far(plan.consumer)
        segment = self._rendezvous.segment(f"{plan.name}.{plan.producers[0]}" if narrow else plan.name)
        own = member == self._program.gmi.id
        device = self._device if own else torch.device("cpu")
        return open_link(plan, self._program, member, segment, device, self._timeout_s, stack)

    def start(self) -> None:
        """Stand in for the GMIs of other machines, in a thread, until `finish` or `close`."""
        own = self._program.gmi.id
        for number, plan in enumerate(self._program.carrying("rollout")):
            tag = _FIRST_CHANNEL_TAG + number
            if own == plan.consumer:
                for gmi in filter(self._far, plan.producers):
                    self._ends.append(RolloutsIn(Post(self._world, gmi, tag), self._opener(self._seen(plan, own), gmi)))
            elif own in plan.producers and self._far(plan.consumer):
                post, seen = Post(self._world, plan.consumer, tag), self._seen(plan, own)
                opener = self._opener(seen, plan.consumer)
                self._ends.append(RolloutsOut(post, opener, seen.env_offset, seen.num_env, self._version))
        self._ends += self._weights()
        if self._ends:
            self._thread = threading.Thread(target=self._work, name=f"bridge of GMI {own}", daemon=True)
            self._thread.start()

    def _opener(self, plan: ChannelPlan, stand_in: int) -> Callable[[], Link]:
        """Joins the ring of a channel in the place of the member that is far."""
        return lambda: self._link(plan, stand_in, self._stack)

    def _weights(self) -> list[FarEnd]:
        """The ends of the weights' way, if the GMI has any: of the first trainer, and the first agent of a machine."""
        world, own, training = self._world, self._program.gmi.id, self._program.training
        path, agents = self._weights_path, self._agents
        writer = min(plan.consumer for plan in self._program.carrying("rollout"))
        machines: dict[str, list[int]] = {}
        for agent in agents:
            if world.node(agent) != world.node(writer):
                machines.setdefault(world.node(agent), []).append(agent)
        found: list[FarEnd] = []
        for members in machines.values():
            first, there = members[0], tuple(members)
            if own == writer:
                found.append(WeightsOut(Post(world, first, _WEIGHTS_TAG), training.name, path, agents, there))
            elif own == first:
                found.append(WeightsIn(Post(world, writer, _WEIGHTS_TAG), training.name, path, agents, there))
        return found

    def _version(self) -> int:
        """Of the weights on this machine; 0 before there are any."""
        if self._board is None:
            self._board = FoundBoard.find(self._program.training.name, self._weights_path, self._agents)
            if self._board is not None:
                self._stack.callback(self._board.close)
        return self._board.version if self._board is not None else 0

    def finish(self) -> None:
        """Say goodbye in order, and return when the others have, too.

        Raises:
            GMIError: E0704 when the way to another machine was lost, E0705 when the others take too long.
        """
        self._finish.set()
        if self._thread is not None:
            self._thread.join(self._timeout_s)
            if self._thread.is_alive():
                late = ", ".join(f"GMI {gmi}" for gmi in dict.fromkeys(e.gmi for e in self._ends if not e.left))
                raise error(COLLECTIVE_TIMED_OUT, f"{late} did not end {self._timeout_s:g} s after this one")
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """Leave; if not in order, the others are told, if they can be."""
        self._close.set()
        if self._thread is not None:
            self._thread.join()
        self._stack.close()

    def behind(self, problem: Exception) -> Exception:
        """What broke the bridge and so led to ``problem``; else ``problem``."""
        return self._problem if self._problem is not None and isinstance(problem, GMIError) else problem

    # ---- the thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._carry(lambda: self._close.is_set() or all(end.done for end in self._ends))
            if not all(end.done for end in self._ends):
                self._give_up()
        except Exception as problem:
            self._break(problem)
        finally:
            for end in self._ends:
                end.close()

    def _carry(self, until: Callable[[], bool]) -> None:
        """Drive all ends."""
        moved_s = time.monotonic()
        told = False
        while not until():
            if not told and self._finish.is_set():
                told = True
                for end in self._ends:
                    end.finish()
            moved = [self._step(end) for end in self._ends]  # every end has its turn
            if any(moved) or any(end.busy for end in self._ends):
                moved_s = time.monotonic()
            time.sleep(SHORT_SLEEP_S if time.monotonic() - moved_s < BRISK_S else LONG_SLEEP_S)

    def _step(self, end: FarEnd) -> bool:
        try:
            return end.step()
        except self._world.mpi.Exception as problem:
            raise error(PEER_LOST, f"GMI {self._program.gmi.id} lost the way to GMI {end.gmi}: {problem}") from problem

    def _give_up(self) -> None:
        """Tell the other machines that this GMI will not go on, as far as that can be done at once."""
        deadline = time.monotonic() + LAST_WORDS_S
        ends: Sequence[FarEnd] = self._ends
        while time.monotonic() < deadline and not all(end.told for end in ends):
            for end in ends:
                end.give_up()
            time.sleep(SHORT_SLEEP_S)

    def _break(self, problem: Exception) -> None:
        """Tell what went wrong, and let the GMI stop waiting for those behind the bridge."""
        self._problem = problem
        self._on_broken(problem)
        for end in self._ends:
            end.lose()
