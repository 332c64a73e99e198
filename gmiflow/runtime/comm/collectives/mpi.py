"""`mpi`: collectives between machines, one member on each; the upper level of `ip` there.

Sums are MPI's: its standard requires that all members of an all-reduce receive identical results, but not
that they are taken in rank order. Maxima and minima are gathered and taken here, because MPI does not say
what it does with NaN.
"""

# mpi4py is optional, and its objects are untyped here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives.base import Collective, combine
from gmiflow.runtime.comm.mpi_world import MPIWorld
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, error

TIMEOUT_S = 300.0
SPINS = 200
"""Looks at a request before the core is offered to others."""
SPIN_S = 5e-4
SLEEP_S = 50e-6


class MPICollective(Collective):
    """A member of a group of processes on different machines. Device tensors go through host memory."""

    def __init__(
        self, name: str, members: tuple[int, ...], rank: int, world: MPIWorld, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Make the group; all members do so at the same time.

        Args:
            name: name in the plan.
            members: GMI ids in rank order, each in a process of its own.
            rank: index of this member.
            world: of this process.
            timeout_s: how long any call waits for the others.
        """
        super().__init__(name, members, rank)
        self._world = world
        self._comm: Any = world.group(name, members)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Drop the group; MPI frees it when the process leaves."""
        self._comm = None

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        host = flat.cpu()  # the tensor itself on the CPU
        mpi = self._world.mpi
        if op == "sum":
            self._wait(lambda: self._comm.Iallreduce(mpi.IN_PLACE, self._buffer(host), mpi.SUM))
        else:
            table = host.new_empty(self.size, host.numel())
            self._wait(lambda: self._comm.Iallgather(self._buffer(host), self._buffer(table)))
            host.copy_(table[0])
            for row in table[1:]:
                combine(op, host, row, host)
        if host is not flat:
            flat.copy_(host)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        host = flat.cpu()
        self._wait(lambda: self._comm.Ibcast(self._buffer(host), root))
        if host is not flat:
            flat.copy_(host)

    def _barrier(self) -> None:
        self._wait(self._comm.Ibarrier)

    def _buffer(self, host: Tensor) -> list[Any]:
        mpi = self._world.mpi
        kinds = {
            torch.float32: mpi.FLOAT,
            torch.float64: mpi.DOUBLE,
            torch.int32: mpi.INT32_T,
            torch.int64: mpi.INT64_T,
        }
        return [host.numpy(), kinds[host.dtype]]

    def _wait(self, start: Any) -> None:  # noqa: ANN401 - a function that gives mpi4py's request
        """Start a call and return when it is complete; MPI goes on only while somebody looks.

        Raises:
            GMIError: E0705 after the time-out. MPI does not say who is missing.
        """
        with self._world.lock:
            request = start()
        begin = time.monotonic()
        looks = 0
        while not self._complete(request):
            looks += 1
            waited_s = time.monotonic() - begin
            if waited_s > self._timeout_s:
                names = ", ".join(f"GMI {gmi}" for gmi in self.members if gmi != self.members[self.rank])
                raise error(
                    COLLECTIVE_TIMED_OUT,
                    f"the collective {self.name} did not complete within {self._timeout_s:g} s: one of {names} is late",
                )
            if waited_s > SPIN_S:
                time.sleep(SLEEP_S)
            elif looks > SPINS:
                os.sched_yield()

    def _complete(self, request: Any) -> bool:  # noqa: ANN401 - mpi4py's request
        with self._world.lock:
            return bool(request.Test())
