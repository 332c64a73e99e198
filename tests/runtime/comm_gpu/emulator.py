"""Runs the kernels of `ipc` on the CPU: the same source, compiled by g++ against `emulated_device.h`."""

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmiflow.runtime.comm.collectives import ipc_layout as layout

HERE = Path(__file__).parent
KERNEL_INDEX = {"float32": 0, "float64": 1, "int32": 2, "int64": 3, "broadcast": 4}


class Launch(ctypes.Structure):
    _fields_ = (
        ("arguments", layout.Arguments),
        ("kernel", ctypes.c_uint32),
        ("ctas", ctypes.c_uint32),
        ("present", ctypes.c_uint32),
        ("delay_us", ctypes.c_uint32),
    )


def kernel_source():
    return layout.kernel_source((HERE / "emulated_device.h").read_text()) + (HERE / "emulated_launch.cpp").read_text()


def build(folder, members, *flags, source=None):
    """Shared library of the kernels for one group size; None when it cannot be compiled for lack of a compiler."""
    code = folder / f"kernels_{members}.cpp"
    code.write_text(source or kernel_source())
    library = folder / f"kernels_{members}{'_'.join(flags).replace('=', '')}.so"
    constants = [f"-D{name}={value}" for name, value in layout.kernel_constants(members).items()]
    command = ["g++", "-std=c++20", "-Og", "-shared", "-fPIC", "-pthread", "-w", *flags, *constants]
    subprocess.run([*command, str(code), "-o", str(library)], check=True, timeout=400)
    return ctypes.CDLL(str(library)) if not flags else library


@dataclass
class Call:
    """One call of the group: an array per member, reduced in place (or sent from `root` by a broadcast)."""

    arrays: list[np.ndarray]
    op: str = "sum"
    broadcast: bool = False
    root: int = layout.EVERYBODY
    one_shot_bytes: int = 0
    missing: tuple[int, ...] = ()
    phases: int = layout.ALL_PHASES


class Group:
    """Slabs, states and reports of all members, in ordinary memory."""

    def __init__(self, library, members, half_bytes=1 << 16, ctas=2, threads=None, timeout_s=120.0, seed=0):
        self.library, self.members, self.half_bytes, self.ctas = library, members, half_bytes, ctas
        self.threads = threads or max(16, members)
        self.timeout_ns = int(timeout_s * 1e9)
        self.random = np.random.default_rng(seed)
        self.slabs = [_aligned(layout.slab_bytes(half_bytes)) for _ in range(members)]
        self.states = [np.zeros(layout.STATE_WORDS, np.uint64) for _ in range(members)]
        self.reports = [np.zeros(layout.REPORT_WORDS, np.uint64) for _ in range(members)]
        for state in self.states:
            for peer, slab in enumerate(self.slabs):
                state[layout.SLABS + peer] = slab.ctypes.data

    def run(self, calls, delays_us=0):
        """Make the calls on all members; arrays must be aligned to 16 bytes and stay alive."""
        launches = [[launch for call in calls for launch in self._launches(call, rank)] for rank in range(self.members)]
        for index in range(len(launches[0])):  # several CTAs even for short tensors, the same number on all members
            ctas = int(self.random.integers(1, self.ctas + 1))
            for row in launches:
                row[index].ctas = ctas
        for row in launches:
            for launch in row:
                launch.delay_us = int(self.random.integers(0, delays_us + 1)) if delays_us else 0
        flat = (Launch * sum(map(len, launches)))(*(launch for row in launches for launch in row))
        self.library.run_group(flat, self.members, len(launches[0]), self.ctas, self.threads)

    def failure(self, rank):
        return layout.report_failure(
            "test.group", [10 + r for r in range(self.members)], rank, self.reports[rank].tolist()
        )

    def _launches(self, call, rank):
        array = call.arrays[rank]
        item = 1 if call.broadcast else array.itemsize
        count = array.nbytes if call.broadcast else array.size
        one_shot = self.half_bytes if call.broadcast else call.one_shot_bytes
        for step in layout.schedule(count, item, self.members, self.half_bytes, self.ctas, one_shot):
            yield Launch(
                arguments=layout.Arguments(
                    user=array.ctypes.data + step.first * item,
                    elements=step.elements,
                    state=self.states[rank].ctypes.data,
                    report=self.reports[rank].ctypes.data,
                    timeout_ns=self.timeout_ns,
                    half_bytes=self.half_bytes,
                    rank=rank,
                    root=call.root,
                    op=layout.OPERATION_CODES[call.op],
                    algorithm=step.algorithm,
                    phases=call.phases,
                ),
                kernel=KERNEL_INDEX["broadcast" if call.broadcast else array.dtype.name],
                ctas=step.ctas,
                present=int(rank not in call.missing),
            )


def aligned(values):
    """A copy that starts at a multiple of 16 bytes."""
    copy = _aligned(values.nbytes)[: values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


def _aligned(size):
    raw = np.zeros(size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + size]
