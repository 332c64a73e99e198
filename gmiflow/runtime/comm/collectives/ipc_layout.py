"""`ipc`, the parts that need no GPU: layout of a slab, schedule of a call, reading of a report.

The kernels in ``ipc_kernels.cu`` get these numbers as preprocessor constants, so they are stated once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, GMIError, error

PACK_BYTES: Final = 16
THREADS: Final = 256
"""Threads per CTA; the kernels are compiled so that at least four such CTAs fit one multiprocessor."""
CTAS_LIMIT: Final = 64
MEMBERS_LIMIT: Final = 64

PAGE_BYTES: Final = 4096
"""The first page of a slab holds random bytes, whose checksum proves that an imported slab is the right one."""
ABORT_OFFSET: Final = PAGE_BYTES
FLAGS_OFFSET: Final = 2 * PAGE_BYTES
DATA_OFFSET: Final = FLAGS_OFFSET + CTAS_LIMIT * MEMBERS_LIMIT * 8

CALLS: Final = 0
FINISHED: Final = 1
FAILED: Final = 2
SLABS: Final = 8
STATE_WORDS: Final = SLABS + MEMBERS_LIMIT
REPORT_WORDS: Final = 8

ONE_SHOT: Final = 0
TWO_SHOT: Final = 1
COPY_IN: Final = 1
REDUCE: Final = 2
GATHER: Final = 4
ALL_PHASES: Final = COPY_IN | REDUCE | GATHER
EVERYBODY: Final = 0xFFFFFFFF
OPERATION_CODES: Final = {"sum": 0, "max": 1, "min": 2}

KERNELS: Final = {
    torch.float32: "all_reduce_f32",
    torch.float64: "all_reduce_f64",
    torch.int32: "all_reduce_i32",
    torch.int64: "all_reduce_i64",
}
BROADCAST_KERNEL: Final = "broadcast"

_TIMED_OUT = 1


class Arguments(ctypes.Structure):
    """``struct Arguments`` of the kernels; its only parameter."""

    _fields_ = (
        ("user", ctypes.c_uint64),
        ("elements", ctypes.c_uint64),
        ("state", ctypes.c_uint64),
        ("report", ctypes.c_uint64),
        ("timeout_ns", ctypes.c_uint64),
        ("half_bytes", ctypes.c_uint64),
        ("rank", ctypes.c_uint32),
        ("root", ctypes.c_uint32),
        ("op", ctypes.c_uint32),
        ("algorithm", ctypes.c_uint32),
        ("phases", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel launch of a call.

    Attributes:
        first: index of the first element of the caller's tensor.
        elements: how many elements it moves.
        ctas: thread blocks, the same on every member.
        algorithm: ONE_SHOT or TWO_SHOT.
    """

    first: int
    elements: int
    ctas: int
    algorithm: int


def kernel_constants(members: int) -> dict[str, int]:
    """Preprocessor constants for a group of ``members``."""
    return {
        "MEMBERS": members,
        "CALLS": CALLS,
        "FINISHED": FINISHED,
        "FAILED": FAILED,
        "SLABS": SLABS,
        "ABORT_OFFSET": ABORT_OFFSET,
        "FLAGS_OFFSET": FLAGS_OFFSET,
        "FLAGS_PER_CTA": MEMBERS_LIMIT,
        "DATA_OFFSET": DATA_OFFSET,
    }


def kernel_source(machine: str | None = None) -> str:
    """CUDA C++ of the kernels, after ``machine`` (default: the PTX primitives of ``ipc_device.cuh``)."""
    here = Path(__file__).parent
    prelude = machine if machine is not None else (here / "ipc_device.cuh").read_text()
    return prelude + (here / "ipc_kernels.cu").read_text()


def slab_bytes(half_bytes: int) -> int:
    """Size of a slab, in whole 2 MiB: the granularity in which CUDA exports memory."""
    granule = 2 << 20
    return -(-(DATA_OFFSET + 2 * half_bytes) // granule) * granule


def resident_ctas(sm_count: int, ctas_per_sm: int, members: int, limit: int) -> int:
    """Thread blocks per member that all members can keep on the GPU at once, wherever they are placed.

    MPS limits how many multiprocessors a client uses and does not promise different ones, so the
    bound holds even when all members share the same ones. A kernel that waits for a peer's kernel
    which cannot start would wait until the time-out.
    """
    return max(0, min(limit, CTAS_LIMIT, sm_count * ctas_per_sm // members))


def schedule(
    elements: int, item_bytes: int, members: int, half_bytes: int, max_ctas: int, one_shot_bytes: int
) -> tuple[Step, ...]:
    """Cut a reduction of ``elements`` into launches. A pure function: all members get the same steps.

    Args:
        elements: length of the caller's tensor.
        item_bytes: bytes of one element.
        members: size of the group.
        half_bytes: capacity of a slab for one launch.
        max_ctas: thread blocks at most.
        one_shot_bytes: largest launch that goes in one shot.
    """
    chunk = half_bytes // PACK_BYTES * PACK_BYTES // item_bytes
    steps: list[Step] = []
    for first in range(0, elements, chunk):
        count = min(chunk, elements - first)
        packs = -(-count * item_bytes // PACK_BYTES)
        algorithm = ONE_SHOT if count * item_bytes <= one_shot_bytes else TWO_SHOT
        work = packs if algorithm == ONE_SHOT else -(-packs // members)
        steps.append(Step(first, count, max(1, min(max_ctas, -(-work // THREADS))), algorithm))
    return tuple(steps)


def report_failure(name: str, members: Sequence[int], rank: int, words: Sequence[int]) -> GMIError | None:
    """The error that a kernel's report stands for, or None when there is none.

    Args:
        name: name of the collective.
        members: GMI ids in rank order.
        rank: the member that reads its report.
        words: REPORT_WORDS integers.
    """
    code, call, missing, reporter, meeting, cta, algorithm, op = words
    if code == 0:
        return None
    details = (
        f"launch {call} of the collective, meeting {meeting}, block {cta}, "
        f"{'two-shot' if algorithm == TWO_SHOT else 'one-shot'}, operation {op}"
    )
    if code == _TIMED_OUT:
        who = f"GMI {members[missing]} did not come to the collective {name} in time"
    elif missing == rank:
        who = f"GMI {members[reporter]} gave up waiting for this GMI in the collective {name}"
    else:
        who = f"GMI {members[reporter]} reported that GMI {members[missing]} did not come to the collective {name}"
    return error(COLLECTIVE_TIMED_OUT, who, details)


def host_phases(algorithm: int) -> tuple[int, ...]:
    """Phases of the launches that one step takes when the hosts meet between launches."""
    return (COPY_IN, REDUCE | GATHER) if algorithm == ONE_SHOT else (COPY_IN, REDUCE, GATHER)
