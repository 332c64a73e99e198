"""Batcher: puts the slots of a trainer GMI's channels together to training batches.

With one channel whose slots are on the trainer's device the batch is the slot: [time, env, ...] tensors in global
order of environments, which several agents may have filled. Otherwise slots are copied into one buffer, side by side.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from gmiflow.api import Ports
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.packer import TensorMemory

__all__ = ["Batcher"]


class Batcher:
    """The consuming end of a trainer GMI's channels.

    Attributes:
        batches: the trainer's in ports, one for each slot, or the only one; see `take`.
        direct: whether they are the slots.
        lags: how many parts of rollouts had which lag, in policy versions, since somebody emptied it.
        bytes: taken in so far.
    """

    def __init__(
        self, dispenser: Dispenser, links: tuple[Link, ...], *, env_offset: int, num_env: int, device: torch.device
    ) -> None:
        """Read ``links``, which together hold ``num_env`` environments from ``env_offset`` on."""
        self._links = links
        self._range = (env_offset, num_env)
        self._device = device
        self.lags: Counter[int] = Counter()
        self.bytes = 0
        self._collected: list[int] = []
        self._missing = list(links)
        first = links[0]
        self.direct = len(links) == 1 and first.is_on(device) and not first.ring.shape.drop
        if self.direct:
            self._tensors: tuple[dict[str, Tensor], ...] = first.slots
        else:
            self._layout = first.layout.resized(num_env)
            self._memory = TensorMemory(self._layout.slot_bytes, device)
            self._tensors = (self._layout.tensors(self._memory),)
        self.batches: tuple[Ports, ...] = tuple(dispenser.ports(tensors) for tensors in self._tensors)

    @property
    def dropped(self) -> int:
        """Rollouts that were dropped because this trainer was too slow."""
        return sum(link.ring.dropped for link in self._links)

    def tensors(self, index: int) -> dict[str, Tensor]:
        """Batch number ``index`` by kind."""
        return self._tensors[index]

    def ready(self) -> bool:
        """Whether a whole batch is there."""
        return all(link.ring.ready() for link in self._missing)

    def look(self, waited_s: float) -> None:
        """Raise when an agent that is waited for is gone; see `Watch.look`."""
        for link in self._missing:
            link.ring.look(waited_s)

    def take(self) -> int | None:
        """Take the next batch; its index in `batches`.

        None when a part was dropped since `ready`: then wait again.
        """
        index = 0
        while self._missing:  # after a None the parts that were taken before are kept
            link = self._missing[-1]
            with link.ring.reading() as slot:
                if slot is None:
                    return None
                self._collected += link.ring.versions()
                if self.direct:
                    index = slot
                else:
                    self._copy(link, slot)
            self.bytes += link.layout.payload_bytes
            if not self.direct:
                link.ring.release()
            self._missing.pop()
        self._missing = list(self._links)
        return index

    def count_lags(self, version: int) -> None:
        """The batch that was taken is for the policy of ``version``: count how old its parts are."""
        self.lags.update(version - collected for collected in self._collected)
        self._collected.clear()

    def release(self) -> None:
        """The batch is used up, on a GPU too."""
        if self.direct:
            self._links[0].ring.release()

    def _copy(self, link: Link, slot: int) -> None:
        if (link.plan.env_offset, link.plan.num_env) == self._range:
            sources = link.layout.packed(link.memory, slot * link.layout.slot_bytes)
            for source, target in zip(sources, self._layout.packed(self._memory), strict=True):
                link.copy(source, target)
        else:
            first, count = link.overlap(*self._range)
            link.copy_all(link.slots[slot], self._layout.part(self._tensors[0], first - self._range[0], count))
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()  # before the slot is given back

    def close(self) -> None:
        """Leave the channels."""
        self.batches = ()
        self._tensors = ()
        for link in self._links:
            link.close()
