"""`local` on a GPU: GMIs that are threads of one process, each with CUDA streams of its own.

Outside of a CUDA graph the threads meet on the host and their streams by events (`local`). Inside of one
nothing may depend on the host, so there the kernels of `ipc` do the work, over slabs in one address space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives import ipc
from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.comm.collectives.local import LocalCollective, LocalGroup

__all__ = ["HostedCollective"]


class HostedCollective(LocalCollective):
    """A member of a group of threads that use one GPU."""

    capturable = True

    def __init__(self, group: LocalGroup, rank: int, device: torch.device, *, timeout_s: float) -> None:
        """Make the slabs; all members call it together, each on a stream of its own.

        Args:
            group: shared by the members.
            rank: index of this member.
            device: the GPU.
            timeout_s: how long a kernel waits for the peers' kernels.

        Raises:
            GMIError: as `SlabCollective` does.
        """
        super().__init__(group, rank)
        exchange = HostExchange(LocalCollective(group, rank))
        self._slab = ipc.SlabCollective(group.name, group.members, exchange, device, timeout_s=timeout_s)
        self._cuda = ipc.load_driver()

    @property
    def waits(self) -> bool:
        """Whether a call made now waits on the host for the other members."""
        return not self._cuda.capturing()

    def settle(self) -> None:
        """Wait on the host until all members have recorded their graphs.

        Recording waits for the device, and so would wait for a kernel of a replayed graph that waits for this
        member's.
        """
        self.barrier()

    def check(self) -> None:
        """Look for a failure of a replayed graph; raises `GMIError` E0705."""
        self._slab.check()

    def close(self) -> None:
        """Release the slab when nobody uses it any more, and leave the group."""
        self._slab.close()
        super().close()

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        if self._cuda.capturing():
            self._slab.all_reduce(flat, op)
        else:
            super()._all_reduce(flat, op)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        if self._cuda.capturing():
            self._slab.broadcast(flat, root)
        else:
            super()._broadcast(flat, root)

    def _barrier(self) -> None:
        if self._cuda.capturing():
            self._slab.barrier()
        else:
            super()._barrier()
