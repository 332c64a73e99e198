"""`hybrid`: collectives composed of two levels.

An inner group reduces among its members, one of them (the leader) carries the partial result
through the upper group, and the inner group spreads what came back. Two compositions:

- `two_level_layout`: the inner groups are the GMIs of one GPU (`ipc`), the upper group has one GMI
  per GPU (`rp`). Any number of GMIs per GPU.
- `paper_layout`: as the paper composes them (section "Communicator"). The j-th GMIs of all GPUs form
  a ring (`rp`) for j < k; the first member of each ring and all other GMIs meet in the upper group
  (`ip`, or `rp` for k = m, which needs leaders on different GPUs and so m <= n).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.comm.collectives.ipc import SlabCollective
from gmiflow.runtime.comm.collectives.rp import RingCollective, gpu_uuid

LocalGroupMaker = Callable[[str, tuple[int, ...]], "Collective | None"]
"""Makes a collective, by name, of GMIs that share this process; None when they do not."""

Store = Callable[[str], Path]
"""The file, new, by which the members of the ring of this name find each other."""

HostGroup = Callable[[tuple[int, ...]], Collective]
"""Makes a host communicator of some ranks of the group, in that order; exactly these ranks call it together."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Who meets whom, as ranks of the whole group.

    Attributes:
        inner: disjoint groups; a rank in none of them goes straight to the upper group.
        leaders: for each inner group, its member in the upper group.
        upper: ranks of the upper group.
    """

    inner: tuple[tuple[int, ...], ...]
    leaders: tuple[int, ...]
    upper: tuple[int, ...]

    def inner_of(self, rank: int) -> tuple[int, ...]:
        """The inner group of a rank, empty when it has none."""
        return next((group for group in self.inner if rank in group), ())

    def leader_of(self, rank: int) -> int:
        """The rank that carries this rank's part to the upper group."""
        return next((head for group, head in zip(self.inner, self.leaders, strict=True) if rank in group), rank)


def two_level_layout(devices: Sequence[str]) -> Levels:
    """Inner groups by device, led by their first rank.

    Args:
        devices: for each rank, the name of its GPU.
    """
    columns = _by_device(devices)
    shared = tuple(column for column in columns if len(column) > 1)
    return Levels(shared, tuple(column[0] for column in shared), tuple(column[0] for column in columns))


def paper_layout(devices: Sequence[str], k: int) -> Levels:
    """Rings, k of them, across all GPUs; their leaders, on different GPUs where possible, and the rest above.

    Raises:
        ValueError: when the GPUs hold different numbers of GMIs, or k is not within 0..m.
    """
    columns = _by_device(devices)
    per_gpu = len(columns[0])
    if any(len(column) != per_gpu for column in columns):
        raise ValueError("rings need the same number of GMIs on every GPU")
    if not 0 <= k <= per_gpu:
        raise ValueError(f"k is {k}, but a GPU holds {per_gpu} GMIs")
    if len(columns) == 1:
        return Levels((), (), tuple(range(len(devices))))
    rings = tuple(tuple(column[j] for column in columns) for j in range(k))
    leaders = tuple(ring[j % len(ring)] for j, ring in enumerate(rings))
    rest = tuple(column[j] for j in range(k, per_gpu) for column in columns)
    return Levels(rings, leaders, tuple(sorted((*leaders, *rest))))


def _by_device(devices: Sequence[str]) -> list[tuple[int, ...]]:
    """Ranks of each device, devices in order of their first rank."""
    columns: dict[str, list[int]] = {}
    for rank, device in enumerate(devices):
        columns.setdefault(device, []).append(rank)
    return [tuple(column) for column in columns.values()]


class HybridCollective(Collective):
    """One member of a two-level group; owns the collectives it is made of."""

    def __init__(
        self,
        name: str,
        members: tuple[int, ...],
        rank: int,
        levels: Levels,
        inner: Collective | None,
        upper: Collective | None,
        *,
        capturable: bool = False,
    ) -> None:
        """Compose.

        Args:
            name: name in the plan.
            members: GMI ids in rank order.
            rank: index of this member.
            levels: the layout, the same on all members.
            inner: collective of ``levels.inner_of(rank)`` in that order, None when that is empty.
            upper: collective of ``levels.upper``, None when this rank is not in it or is alone there.
            capturable: whether all parts of all members can be captured; a member sees only its own.
        """
        super().__init__(name, members, rank)
        group = levels.inner_of(rank)
        self._inner = inner
        self._upper = upper
        self._root = group.index(levels.leader_of(rank)) if group else 0
        if (inner is None) == bool(group):
            raise ValueError(f"rank {rank} {'needs an' if group else 'has no'} inner group")
        self._levels = levels
        self.capturable = capturable

    def check(self) -> None:
        """Look for a failure of work that the GPU has done; raises `GMIError` as the parts do."""
        for part in (self._inner, self._upper):
            if part is not None:
                part.check()

    def lost_peer(self) -> int | None:
        """As the base class, of either level."""
        found = (part.lost_peer() for part in (self._inner, self._upper) if part is not None)
        return next((gmi for gmi in found if gmi is not None), None)

    def close(self) -> None:
        """Close the parts, inner first: its members wait for each other."""
        for part in (self._inner, self._upper):
            if part is not None:
                part.close()

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        if isinstance(self._inner, SlabCollective):
            self._inner.reduce(flat, self._root, op)
        elif self._inner is not None:
            self._inner.all_reduce(flat, op)
        if self._upper is not None:
            self._upper.all_reduce(flat, op)
        if self._inner is not None:
            self._inner.broadcast(flat, self._root)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        group = self._levels.inner_of(root)
        if self._inner is not None and self.rank in group:
            self._inner.broadcast(flat, group.index(root))  # the leader has it now
        if self._upper is not None:
            self._upper.broadcast(flat, self._levels.upper.index(self._levels.leader_of(root)))
        if self._inner is not None and self.rank not in group:
            self._inner.broadcast(flat, self._root)

    def _barrier(self) -> None:
        if self._inner is not None:
            self._inner.barrier()
        if self._upper is not None:
            self._upper.barrier()
        if self._inner is not None:
            self._inner.barrier()


def _all_capturable(everybody: HostExchange, *parts: Collective | None) -> bool:
    """Whether the parts of every member can be in a CUDA graph: all capture, or none does."""
    own = all(part.capturable for part in parts if part is not None)
    return all(message["capturable"] for message in everybody.gather({"capturable": own}))


def connect_two_level(
    name: str,
    members: tuple[int, ...],
    rank: int,
    device: torch.device,
    host_group: HostGroup,
    store_path: Path,
    *,
    timeout_s: float,
    local_group: LocalGroupMaker = lambda name, members: None,
) -> HybridCollective:
    """`ipc` inside every GPU and `rp` between the GPUs' leaders. All members call it together.

    GMIs of a GPU that share a process use `local` instead of `ipc`.

    Args:
        name: name in the plan.
        members: GMI ids in rank order.
        rank: index of this member.
        device: its GPU.
        host_group: makes the host communicators that `ipc` starts with.
        store_path: new file by which the leaders find each other.
        timeout_s: how long any call waits.
        local_group: makes collectives inside this process.

    Raises:
        GMIError: as the parts do.
    """
    everybody = HostExchange(host_group(tuple(range(len(members)))))
    uuids = [message["uuid"] for message in everybody.gather({"uuid": gpu_uuid(device)})]
    levels = two_level_layout(uuids)
    inner = upper = None
    if group := levels.inner_of(rank):
        gmis = tuple(members[r] for r in group)
        inner = local_group(f"{name}.gpu.{group[0]}", gmis) or SlabCollective(
            f"{name}.gpu", gmis, HostExchange(host_group(group)), device, timeout_s=timeout_s
        )
    if rank in levels.upper and len(levels.upper) > 1:
        gmis = tuple(members[r] for r in levels.upper)
        position = levels.upper.index(rank)
        upper = RingCollective(f"{name}.ring", gmis, position, device, store_path, timeout_s=timeout_s)
    capturable = _all_capturable(everybody, inner, upper)
    return HybridCollective(name, members, rank, levels, inner, upper, capturable=capturable)


def connect_rings(
    name: str,
    members: tuple[int, ...],
    rank: int,
    device: torch.device,
    rings: int,
    host_group: HostGroup,
    upper_group: HostGroup,
    store: Store,
    *,
    timeout_s: float,
    place: str = "",
) -> HybridCollective:
    """The paper's composition (section "Communicator"): so many GMIs of each GPU by rings, their results by the host.

    With as many rings as a GPU has GMIs the results go through a ring of their own, which can be captured in a
    CUDA graph. All members call it together.

    Args:
        name: name in the plan.
        members: GMI ids in rank order, the same number on every GPU.
        rank: index of this member.
        device: its GPU.
        rings: the paper's k, from 1.
        host_group: makes the host communicator by which the members tell each other where they are.
        upper_group: likewise the one that carries the results and the other GMIs' tensors.
        store: names files.
        timeout_s: how long any call waits.
        place: what is the same for members of one GPU; "" for the GPU itself.

    Raises:
        GMIError: as the parts do.
    """
    everybody = HostExchange(host_group(tuple(range(len(members)))))
    places = [message["place"] for message in everybody.gather({"place": place or gpu_uuid(device)})]
    levels = paper_layout(places, rings)

    def ring(part: str, ranks: tuple[int, ...]) -> Collective:
        gmis, own = tuple(members[r] for r in ranks), ranks.index(rank)
        uuids = [places[r] for r in ranks]
        part = f"{name}.{part}"
        return RingCollective(part, gmis, own, device, store(part), uuids=uuids, timeout_s=timeout_s)

    inner = upper = None
    if group := levels.inner_of(rank):
        inner = ring(f"ring.{group[0]}", group)
    if rank in levels.upper and len(levels.upper) > 1:
        by_ring = set(levels.upper) == set(levels.leaders)
        upper = ring("leaders", levels.upper) if by_ring else upper_group(levels.upper)
    capturable = _all_capturable(everybody, inner, upper)
    return HybridCollective(name, members, rank, levels, inner, upper, capturable=capturable)
