"""Migrator: brings the rollouts of one agent GMI into the slots of the trainers that train on them.

With one trainer and slots on its own device a GMI collects straight into the slot: nothing is copied. Otherwise
it collects into a buffer of its own and copies that into each slot, group by group where the slot holds just its
environments: to host memory, or straight into the memory of another GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gmiflow.plan import ChannelPlan
from gmiflow.runtime.comm.channel.packer import Memory, SlotLayout, TensorMemory
from gmiflow.runtime.comm.channel.ring import Ring

if TYPE_CHECKING:  # it needs a driver
    from gmiflow.runtime.comm.channel.device import DeviceSlots

__all__ = ["Link", "Migrator"]


@dataclass(frozen=True, kw_only=True)
class Link:
    """One end of a channel.

    Attributes:
        plan: of the channel.
        ring: who is how far.
        layout: of a slot.
        memory: where the slots are.
        slots: each as tensors by kind; none after `close`.
        leave: leaves the channel and lets go of the memory.
        far: the memory when it is on another GPU than this end; then `slots` are places in it, for `copy`.
    """

    plan: ChannelPlan
    ring: Ring
    layout: SlotLayout
    memory: Memory
    slots: tuple[dict[str, Tensor], ...]
    leave: Callable[[], None]
    far: DeviceSlots | None = None

    def is_on(self, device: torch.device) -> bool:
        """Whether the slots are this end's own memory of ``device``, which nothing has to be copied to or from."""
        return all(value.device.type == device.type for value in self.slots[0].values())

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Enqueue a copy from a tensor of this end to one of `slots` or of `layout`, or the other way."""
        if self.far is not None:
            self.far.copy(source, target)
        else:
            target.copy_(source, non_blocking=True)

    def copy_all(self, sources: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
        """`copy` by name."""
        for name, target in targets.items():
            self.copy(sources[name], target)

    def overlap(self, env_offset: int, num_env: int) -> tuple[int, int]:
        """First global environment and count of those in a slot and in ``env_offset ..``."""
        first = max(env_offset, self.plan.env_offset)
        return first, min(env_offset + num_env, self.plan.env_offset + self.plan.num_env) - first

    def part(self, slot: int, env_offset: int, num_env: int) -> dict[str, Tensor]:
        """A slot, narrowed to the environments that it shares with ``env_offset ..``."""
        first, count = self.overlap(env_offset, num_env)
        return self.layout.part(self.slots[slot], first - self.plan.env_offset, count)

    def close(self) -> None:
        """Drop the tensors of the slots, whose memory may go, and leave."""
        for slot in self.slots:
            slot.clear()
        self.leave()


class Migrator:
    """The producing end of an agent GMI's channels.

    Attributes:
        storages: tensors by kind to collect into, one of them at a time; see `storage`.
        direct: whether they are the slots.
        bytes: moved so far.
    """

    def __init__(
        self, links: tuple[Link, ...], *, env_offset: int, num_env: int, max_staleness: int, device: torch.device
    ) -> None:
        """Move rollouts of ``num_env`` environments from ``env_offset`` on through ``links``."""
        self._links = links
        self._range = (env_offset, num_env)
        self._staleness = max_staleness
        self._device = device
        self._limits = [min(max_staleness, link.plan.depth) for link in links]
        self.bytes = 0
        first = links[0]
        self.direct = len(links) == 1 and first.is_on(device)
        if self.direct:
            self.storages: tuple[dict[str, Tensor], ...] = tuple(
                first.part(slot, *self._range) for slot in range(len(first.slots))
            )
            return
        self._layout = first.layout.resized(num_env)
        self._memory = TensorMemory(self._layout.slot_bytes, device)
        self.storages = (self._layout.tensors(self._memory),)

    @property
    def made(self) -> int:
        """Rollouts handed over so far."""
        return self._links[0].ring.published

    @property
    def dropped(self) -> int:
        """Rollouts that were dropped because the trainers were too slow."""
        return sum(link.ring.dropped for link in self._links)

    @property
    def storage(self) -> int:
        """Index into `storages` of the one to collect into next."""
        return self._links[0].ring.slot_to_fill() if self.direct else 0

    def needed_version(self, version: int) -> int | None:
        """The oldest policy that the next rollout may be collected with; None while there is no room for it.

        A rollout that is pending now is trained on first, unless it is dropped. So the next one is trained on by update
        number `Ring.next_update` or an earlier one, when the trainer's policy has that version: its lag is at most
        ``max_staleness`` with the version returned here or a newer one.

        Args:
            version: of the newest policy; where rollouts may be dropped, those are whose place would make the next
                one too old.
        """
        if not self.has_room(version):
            return None
        return max(link.ring.next_update for link in self._links) - self._staleness

    def has_room(self, version: int) -> bool:
        """Whether the next rollout has room in all channels; ``version`` as for `needed_version`."""
        newest = version + self._staleness
        room = [link.ring.make_room(limit, newest) for link, limit in zip(self._links, self._limits, strict=True)]
        return all(room)

    def look(self, waited_s: float) -> None:
        """Raise when a trainer is gone; see `Watch.look`."""
        for link in self._links:
            link.ring.watch.look(waited_s)

    def deliver(self, version: int) -> None:
        """Hand over what was collected into `storage` with the policy of ``version``."""
        if not self.direct:
            for link in self._links:
                self._copy(link)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()  # the reader is another process
        for link in self._links:
            link.ring.publish(version)
            self.bytes += link.layout.payload_bytes * link.overlap(*self._range)[1] // link.plan.num_env

    def _copy(self, link: Link) -> None:
        slot = link.ring.slot_to_fill()
        own_range = (link.plan.env_offset, link.plan.num_env)
        if own_range == self._range:
            start = slot * link.layout.slot_bytes
            targets = link.layout.packed(link.memory, start)
            for source, target in zip(self._layout.packed(self._memory), targets, strict=True):
                link.copy(source, target)
            return
        first, count = link.overlap(*self._range)
        sources = self._layout.part(self.storages[0], first - self._range[0], count)
        link.copy_all(sources, link.part(slot, *self._range))

    def close(self) -> None:
        """Leave the channels."""
        self.storages = ()
        for link in self._links:
            link.close()
