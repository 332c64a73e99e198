"""What every collective offers: the `gmiflow.api.Communicator` protocol plus names, time and release."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from gmiflow.runtime.turn import Turn

OPERATIONS = ("sum", "max", "min")
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


class Collective(ABC):
    """Collective operations of one group of GMIs, seen by one member.

    Every member makes the same calls in the same order. A call returns when the result is in the
    caller's tensor (for device tensors: when it is enqueued on the current stream). All members get
    the same bits, because sums are always taken in rank order. Nothing waits for ever: a member that
    died or does not come raises `GMIError` E0704 or E0705 in the others, which names it.

    Attributes:
        name: name in the plan, for messages.
        members: GMI ids in rank order.
        rank: index of this member.
        seconds: host time spent in the group's calls so far; whoever reads it may set it to zero.
        capturable: whether `all_reduce` only enqueues work on the current CUDA stream.
        turn: given up during calls that wait on the host, for the other GMIs of the process; None without such.
    """

    capturable: bool = False
    turn: Turn | None = None

    def __init__(self, name: str, members: tuple[int, ...], rank: int) -> None:
        self.name = name
        self.members = members
        self.rank = rank
        self.seconds = 0.0

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)

    def all_reduce(self, flat: Tensor, op: str = "sum") -> None:
        """Reduce a contiguous 1-D tensor (f32, f64, i32, i64) over all members, in place.

        Raises:
            ValueError: for another layout, element type or operation.
            GMIError: E0704, E0705 when a member is lost or late.
        """
        self._validate(flat, op)
        if self.size > 1 and flat.numel() > 0:
            with self._timed():
                self._all_reduce(flat, op)

    def broadcast(self, flat: Tensor, root: int = 0) -> None:
        """Copy a contiguous 1-D tensor of rank ``root`` to all members, in place; raises as `all_reduce`."""
        self._validate(flat, "sum")
        if not 0 <= root < self.size:
            raise ValueError(f"root {root} is not a rank of a group of {self.size}")
        if self.size > 1 and flat.numel() > 0:
            with self._timed():
                self._broadcast(flat, root)

    def barrier(self) -> None:
        """Return when every member has called it; raises `GMIError` as `all_reduce`."""
        if self.size > 1:
            with self._timed():
                self._barrier()

    @property
    def waits(self) -> bool:
        """Whether a call made now waits on the host for the other members; others of the process may work meanwhile."""
        return not self.capturable

    def settle(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Called between recording a CUDA graph with calls of this group and its first replay, by all members.

        Raises:
            GMIError: as `all_reduce`.
        """

    def lost_peer(self) -> int | None:
        """GMI of a member whose process has ended without leaving, None where all live or nobody can tell."""
        return None

    def check(self) -> None:  # noqa: B027 - most find failures in the call itself
        """Look for failures of work that the device has done, captured or not; never waits for the device.

        Raises:
            GMIError: as `all_reduce`.
        """

    @abstractmethod
    def close(self) -> None:
        """Release memory and handles; no call may follow."""

    @abstractmethod
    def _all_reduce(self, flat: Tensor, op: str) -> None:
        """`all_reduce` of a valid tensor that is not empty, in a group of two or more."""

    @abstractmethod
    def _broadcast(self, flat: Tensor, root: int) -> None:
        """`broadcast` of a valid tensor that is not empty, in a group of two or more."""

    @abstractmethod
    def _barrier(self) -> None:
        """`barrier` in a group of two or more."""

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            # A call that is being captured never waits, and must not let others in.
            with self.turn.yielded() if self.turn is not None and self.waits else nullcontext():
                yield
        finally:
            self.seconds += time.perf_counter() - start

    @staticmethod
    def _validate(flat: Tensor, op: str) -> None:
        if op not in OPERATIONS:
            raise ValueError(f"unknown operation {op!r}: use one of {', '.join(OPERATIONS)}")
        if flat.dim() != 1 or not flat.is_contiguous():
            raise ValueError("collectives take contiguous tensors of one dimension")
        if flat.dtype not in DTYPES:
            raise ValueError(f"collectives take f32, f64, i32 and i64 tensors, not {flat.dtype}")


def combine(op: str, left: Tensor, right: Tensor, out: Tensor) -> None:
    """``out = left op right``, elementwise; ``out`` may be ``left``. NaN wins in max and min."""
    if op == "sum":
        torch.add(left, right, out=out)
    elif op == "max":
        torch.maximum(left, right, out=out)
    else:
        torch.minimum(left, right, out=out)


def shard(rank: int, size: int, count: int) -> tuple[int, int]:
    """Half-open range of the elements that ``rank`` reduces; sizes differ by at most one granule.

    Bounds are multiples of 16 elements (one 64-byte line of f32), so that no two ranks write to one
    cache line.
    """
    granules = (count + 15) // 16
    return min(count, granules * rank // size * 16), min(count, granules * (rank + 1) // size * 16)
