"""How the GMIs of one process join their groups: every kind of collective is opened here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gmiflow.plan import CollectivePlan
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.ip import CONTROL_SLOT_BYTES, SLOT_BYTES, IPCollective
from gmiflow.runtime.comm.collectives.local import LocalCollective, LocalGroup
from gmiflow.runtime.failure import NOT_SUPPORTED, error
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.turn import Turn

if TYPE_CHECKING:
    from gmiflow.runtime.comm.channel.bridge import Bridge
    from gmiflow.runtime.comm.mpi_world import MPIWorld


class Switchboard:
    """Groups of the GMIs of one process; threads may use it at the same time.

    Attributes:
        turn: of the process.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        rendezvous: Rendezvous,
        device: torch.device,
        timeout_s: float,
        world: MPIWorld | None = None,
    ) -> None:
        """Serve the GMIs ``programs``, which all use ``device``; ``world`` reaches those of other machines."""
        self.turn = Turn()
        self.timeout_s = timeout_s
        self._here = {program.gmi.id for program in programs}
        self._rendezvous = rendezvous
        self._device = device
        self._world = world
        self._groups: dict[str, LocalGroup] = {}
        self._lock = threading.Lock()

    def connect(self, program: Program, stack: contextlib.ExitStack) -> tuple[dict[str, Collective], Collective]:
        """Join all groups of a GMI; its peers do the same at the same time.

        Args:
            program: the GMI.
            stack: closes them, the last first, also when joining fails.

        Returns:
            The plan's groups by name, and the group of all GMIs of the training for small host tensors.

        Raises:
            GMIError: E0705, E0710, E0711.
        """
        training, gmi = program.training.name, program.gmi.id
        alone = program.members or (gmi,)
        trainers = tuple(sorted({channel.consumer for channel in program.carrying("rollout")}))
        if program.training.update == "apply" and gmi in trainers:  # they have no collective, and meet at checkpoints
            alone = trainers
        members = next((plan.members for plan in program.collectives if plan.training == training), alone)
        name = f"{training}.control"
        if len(members) > 1 and self._here.issuperset(members):
            control = self._keep(self._local(name, members, gmi), stack)
        else:
            control = self._host_group(name, members, gmi, stack)
        return {plan.name: self._open(plan, gmi, stack) for plan in program.collectives}, control

    def bridge(self, program: Program, on_broken: Callable[[Exception], object]) -> Bridge | None:
        """What carries a GMI's channels and weights between machines; None when none has to.

        ``on_broken`` hears at once, in another thread, when it can carry no more.

        Raises:
            GMIError: E0710 for a training that cannot be on several, E0711.
        """
        if self._world is None:
            return None
        from gmiflow.runtime.comm.channel.bridge import Bridge, needs_bridge

        if not needs_bridge(program, self._world):
            return None
        return Bridge(program, self._world, self._rendezvous, self._device, self.timeout_s, on_broken)

    def _open(self, plan: CollectivePlan, gmi: int, stack: contextlib.ExitStack) -> Collective:
        """Join one group of the plan."""
        members, rank = plan.members, plan.members.index(gmi)
        if len(members) == 1:
            return LocalCollective.alone(plan.name, gmi)
        if plan.kind == "local":
            return self._keep(self._hosted(plan.name, members, gmi), stack)
        if plan.kind == "ip":
            return self._host_group(plan.name, members, gmi, stack, slot_bytes=SLOT_BYTES)
        if plan.kind == "ipc":
            return self._keep(self._slab(plan.name, members, gmi, stack), stack)
        if plan.kind in ("rp", "nccl_multirank"):
            return self._keep(self._ring(plan, rank, stack), stack)
        if plan.rings:
            return self._keep(self._rings(plan, rank, stack), stack)
        return self._keep(self._two_level(plan, rank, stack), stack)

    def _slab(self, name: str, members: tuple[int, ...], gmi: int, stack: contextlib.ExitStack) -> Collective:
        from gmiflow.runtime.comm.collectives.exchange import HostExchange
        from gmiflow.runtime.comm.collectives.ipc import SlabCollective

        exchange = HostExchange(self._host_group(f"{name}.host", members, gmi, stack))
        return SlabCollective(name, members, exchange, self._device, timeout_s=self.timeout_s)

    def _ring(self, plan: CollectivePlan, rank: int, stack: contextlib.ExitStack) -> Collective:
        from gmiflow.runtime.comm.collectives.exchange import HostExchange
        from gmiflow.runtime.comm.collectives.rp import RingCollective, gpu_uuid

        members = plan.members
        exchange = HostExchange(self._host_group(f"{plan.name}.host", members, members[rank], stack))
        uuids = [message["uuid"] for message in exchange.gather({"uuid": gpu_uuid(self._device)})]
        return RingCollective(
            plan.name,
            members,
            rank,
            self._device,
            self._store(plan.name),
            uuids=uuids if self._device.type == "cuda" else (),
            timeout_s=self.timeout_s,
            several_per_gpu=plan.kind == "nccl_multirank",
        )

    def _rings(self, plan: CollectivePlan, rank: int, stack: contextlib.ExitStack) -> Collective:
        from gmiflow.runtime.comm.collectives.hybrid import connect_rings

        gmi = plan.members[rank]

        def group(part: str, slot_bytes: int) -> Callable[[tuple[int, ...]], Collective]:
            return lambda ranks: self._host_group(
                f"{plan.name}.{part}", tuple(plan.members[r] for r in ranks), gmi, stack, slot_bytes
            )

        return connect_rings(
            plan.name,
            plan.members,
            rank,
            self._device,
            plan.rings,
            group("host", CONTROL_SLOT_BYTES),
            group("upper", SLOT_BYTES),
            self._store,
            timeout_s=self.timeout_s,
        )

    def _two_level(self, plan: CollectivePlan, rank: int, stack: contextlib.ExitStack) -> Collective:
        from gmiflow.runtime.comm.collectives.hybrid import connect_two_level

        gmi = plan.members[rank]

        def host_group(ranks: tuple[int, ...]) -> Collective:
            members = tuple(plan.members[r] for r in ranks)
            name = f"{plan.name}.host.{'.'.join(map(str, ranks))}"
            return self._host_group(name, members, gmi, stack)

        def local_group(name: str, members: tuple[int, ...]) -> Collective | None:
            return self._hosted(name, members, gmi) if self._here.issuperset(members) else None

        return connect_two_level(
            plan.name,
            plan.members,
            rank,
            self._device,
            host_group,
            self._store(plan.name),
            timeout_s=self.timeout_s,
            local_group=local_group,
        )

    def _host_group(
        self,
        name: str,
        members: tuple[int, ...],
        gmi: int,
        stack: contextlib.ExitStack,
        slot_bytes: int = CONTROL_SLOT_BYTES,
    ) -> Collective:
        """A group through the memory of the host."""
        if len(members) == 1:
            return LocalCollective.alone(name, gmi)
        if self._world is not None and self._world.spans_nodes(members):
            return self._across_nodes(self._world, name, members, gmi, stack, slot_bytes)
        rank, segment = members.index(gmi), self._rendezvous.segment(name)
        group = IPCollective(name, members, rank, segment, slot_bytes=slot_bytes, timeout_s=self.timeout_s)
        self._keep(group, stack)
        group.connect()
        return group

    def _across_nodes(
        self,
        world: MPIWorld,
        name: str,
        members: tuple[int, ...],
        gmi: int,
        stack: contextlib.ExitStack,
        slot_bytes: int,
    ) -> Collective:
        """Shared memory on each machine, MPI between the first members of each."""
        from gmiflow.runtime.comm.collectives.hybrid import HybridCollective, two_level_layout
        from gmiflow.runtime.comm.collectives.mpi import MPICollective

        rank = members.index(gmi)
        levels = two_level_layout([world.node(member) for member in members])
        inner = upper = None
        if group := levels.inner_of(rank):
            node_members = tuple(members[r] for r in group)
            inner = self._host_group(f"{name}.node.{group[0]}", node_members, gmi, stack, slot_bytes)
        if rank in levels.upper:
            leaders = tuple(members[r] for r in levels.upper)
            upper = MPICollective(f"{name}.mpi", leaders, leaders.index(gmi), world, timeout_s=self.timeout_s)
            self._keep(upper, stack)
        both = HybridCollective(name, members, rank, levels, inner, upper)
        both.turn = self.turn
        return both

    def _hosted(self, name: str, members: tuple[int, ...], gmi: int) -> Collective:
        """A group of GMIs of this process that reduces tensors of its device."""
        if self._device.type == "cpu":
            return self._local(name, members, gmi)
        from gmiflow.runtime.comm.collectives.hosted import HostedCollective

        return HostedCollective(self._group(name, members), members.index(gmi), self._device, timeout_s=self.timeout_s)

    def _local(self, name: str, members: tuple[int, ...], gmi: int) -> Collective:
        """A group of GMIs of this process for tensors of the host."""
        return self._group(name, members).member(members.index(gmi))

    def _group(self, name: str, members: tuple[int, ...]) -> LocalGroup:
        """What the members of a group of this process share."""
        if not self._here.issuperset(members):
            listed, here = (", ".join(map(str, ids)) for ids in (members, sorted(self._here)))
            raise error(
                NOT_SUPPORTED,
                f"the collective {name} joins GMIs {listed} of one process, but this process runs only {here}",
                "`python -m gmiflow.runtime.host PROGRAM... --rendezvous DIR` runs several programs in one process",
            )
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                group = self._groups[name] = LocalGroup(name, members, self.timeout_s)
            return group

    def _keep(self, collective: Collective, stack: contextlib.ExitStack) -> Collective:
        collective.turn = self.turn
        stack.callback(collective.close)
        return collective

    def _store(self, name: str) -> Path:
        """The file by which the members of a ring find each other."""
        if self._world is not None:
            return self._world.store(name)
        return self._rendezvous.path / f"{name}.store"
