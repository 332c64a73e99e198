"""Runs scenarios in groups of processes, one after the other: ``python ip_group.py SCENARIO:MEMBERS ...``.

The processes are forked from a single-threaded one that has torch loaded, as the runtime does it.
Each checks its own results and ends with status 0, or prints what it saw. What was wrong with each scenario, "" for
nothing, goes to stdout as a line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import uuid

import torch

from gmiflow.runtime.comm.collectives.ip import IPCollective
from gmiflow.runtime.comm.shared_memory import directory
from gmiflow.runtime.failure import GMIError

SEGMENT = f"gmiflow-test-{uuid.uuid4().hex}"
SLOT_BYTES = 8192
LATE_S = 4.0
"""Patience in the scenario in which it ends, once all have met."""
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


class End:
    """Lets the last member of a group wait for the end of the others: of the only writers of a pipe."""

    def __init__(self) -> None:
        self.reading = self.writing = -1

    def prepare(self) -> None:
        """Before the members are forked."""
        self.reading, self.writing = os.pipe()

    def forget(self) -> None:
        """In the parent, after that."""
        os.close(self.reading)
        os.close(self.writing)

    def wait(self) -> None:
        """Return when the other members have ended."""
        os.close(self.writing)
        os.read(self.reading, 1)


OTHERS_END = End()


def tensor_of(case: int, rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(case * 100 + rank)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=dtype)
    return torch.randint(-1000, 1000, (count,), generator=generator, dtype=dtype)


def expected_of(op: str, tensors: list[torch.Tensor]) -> torch.Tensor:
    stacked = torch.stack([t.double() for t in tensors])
    return {"sum": stacked.sum(0), "max": stacked.max(0).values, "min": stacked.min(0).values}[op]


def check_random_cases(group: IPCollective) -> None:
    """Random sizes (empty, one, beyond a slot), types and operations, with random delays."""
    chooser = random.Random(group.size)
    delays = random.Random(1000 + group.rank)
    for case in range(240 // group.size):
        count = chooser.choice([0, 1, 2, 15, 16, 17, 100, 1023, 2048, 2049, 5000, chooser.randrange(9000)])
        dtype, op = chooser.choice(DTYPES), chooser.choice(["sum", "max", "min"])
        kind = chooser.choice(["all_reduce"] * 8 + ["broadcast", "barrier"])
        if delays.random() < 0.05:
            time.sleep(delays.random() * 0.01)
        tensors = [tensor_of(case, rank, dtype, count) for rank in range(group.size)]
        own = tensors[group.rank].clone()
        if kind == "barrier":
            group.barrier()
        elif kind == "broadcast":
            root = chooser.randrange(group.size)
            group.broadcast(own, root)
            assert torch.equal(own, tensors[root]), (case, kind)
        else:
            group.all_reduce(own, op)
            if count:
                torch.testing.assert_close(own.double(), expected_of(op, tensors), rtol=1e-5, atol=1e-5)
            bits = own.view(torch.uint8).to(torch.int64) * torch.arange(1, own.numel() * own.element_size() + 1)
            sums = torch.stack([bits.sum(), -bits.sum()])
            group.all_reduce(sums, "max")
            assert sums[0] == -sums[1], "members hold different bits"


def check_repeats(group: IPCollective) -> None:
    """A thousand calls with members delayed at random: no value of one call may leak into the next.

    The buffers end with one element in a cache line of its own, and one starts in the middle of a line.
    """
    delays = random.Random(group.rank)
    buffers = [torch.empty(count, dtype=dtype) for count in (1, 17, 700, 2049) for dtype in DTYPES]
    buffers.append(torch.empty(702)[1:])
    for i in range(1000):
        flat = buffers[i % len(buffers)]
        flat.fill_(i * (group.rank + 1))
        if delays.random() < 0.02:
            time.sleep(delays.random() * 2e-3)
        group.all_reduce(flat)
        assert bool((flat == i * group.size * (group.size + 1) // 2).all()), i


def check_against_gloo(group: IPCollective) -> None:
    store = torch.distributed.FileStore(f"{tempfile.gettempdir()}/{SEGMENT}.store", group.size)
    torch.distributed.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)
    for count in (1, 1000, 29440):
        own = tensor_of(count, group.rank, torch.float32, count)
        reference = own.clone()
        group.all_reduce(own)
        torch.distributed.all_reduce(reference)
        torch.testing.assert_close(own, reference, rtol=1e-6, atol=1e-6)
    torch.distributed.destroy_process_group()


def check_special_values(group: IPCollective) -> None:
    own = torch.tensor([float("nan") if group.rank == 0 else 1.0, float("inf"), -0.0])
    for op in ("sum", "max", "min"):
        flat = own.clone()
        group.all_reduce(flat, op)
        assert flat[0].isnan() and flat[1].isinf() and flat[2] == 0


def expect_failure(group: IPCollective, code: str, text: str) -> None:
    flat = torch.ones(3000)
    try:
        group.all_reduce(flat)
        group.all_reduce(flat)
    except GMIError as problem:
        assert problem.failure.code == code, problem.failure
        assert text in str(problem), problem
        return
    raise AssertionError("no failure was reported")


def check_death(group: IPCollective) -> None:
    """The last member dies between two calls: the others name it."""
    group.barrier()
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    last = group.members[-1]
    expect_failure(group, "E0704", f"GMI {last} died while the collective test.gradient waited for it")


def check_lateness(group: IPCollective) -> None:
    """The last member does not come: the others name it after the time-out."""
    group.barrier()
    if group.rank == group.size - 1:
        OTHERS_END.wait()
        return
    group._flags._timeout_s = LATE_S
    last = group.members[-1]
    expect_failure(group, "E0705", f"GMI {last} did not come to the collective test.gradient within {LATE_S:g} s")


def check_leaving(group: IPCollective) -> None:
    """The last member closes its group: the others need not wait for the time-out."""
    group.barrier()
    if group.rank == group.size - 1:
        return
    expect_failure(group, "E0704", f"GMI {group.members[-1]} left while the collective test.gradient waited")


def check_different_calls(group: IPCollective) -> None:
    flat = torch.ones(5 if group.rank == 0 else 6)
    try:
        group.all_reduce(flat)
    except ValueError as problem:
        assert "made another call on test.gradient" in str(problem)
        return
    raise AssertionError("different sizes were not noticed")


SCENARIOS = {
    "random": check_random_cases,
    "repeats": check_repeats,
    "gloo": check_against_gloo,
    "special": check_special_values,
    "death": check_death,
    "lateness": check_lateness,
    "leaving": check_leaving,
    "different": check_different_calls,
}


def member(scenario: str, segment: str, rank: int, size: int) -> int:
    members = tuple(range(10, 10 + size))
    group = IPCollective("test.gradient", members, rank, segment, slot_bytes=SLOT_BYTES, timeout_s=240.0)
    try:
        group.connect()
        SCENARIOS[scenario](group)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        group.close()
    return 0


def run(scenario: str, size: int) -> str:
    """What was wrong, "" for nothing."""
    segment = f"{SEGMENT}-{scenario}-{size}"
    sys.stderr.flush()
    children = []
    OTHERS_END.prepare()
    for rank in range(size):
        child = os.fork()
        if child == 0:
            os._exit(member(scenario, segment, rank, size))
        children.append(child)
    OTHERS_END.forget()
    statuses = [os.waitpid(child, 0)[1] for child in children]
    left = list(directory().glob(f"{segment}*"))
    if left:
        return f"left behind: {left}"
    killed = [s for s in statuses if os.WIFSIGNALED(s)]
    failed = [s for s in statuses if not os.WIFSIGNALED(s) and os.waitstatus_to_exitcode(s) != 0]
    return f"statuses {statuses}" if failed or len(killed) != (scenario == "death") else ""


def main() -> None:
    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # what it loads is loaded before the members are forked
    for name in sys.argv[1:]:
        scenario, _, size = name.partition(":")
        print(json.dumps([name, run(scenario, int(size))]), flush=True)


if __name__ == "__main__":
    main()
