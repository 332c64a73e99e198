"""`local`: members that are threads of one process."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable

import pytest
import torch

from gmiflow.runtime.comm.collectives.base import Collective, shard
from gmiflow.runtime.comm.collectives.local import LocalCollective, LocalGroup
from gmiflow.runtime.failure import GMIError


def run_members(group: LocalGroup, work: Callable[[Collective], None]) -> list[BaseException]:
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        member = group.member(rank)
        try:
            work(member)
        except BaseException as problem:
            errors.append(problem)
        finally:
            member.close()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(len(group.members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("members", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_equals_the_float64_reference(members: int, op: str) -> None:
    def work(member: Collective) -> None:
        for case in range(20):
            count = [0, 1, 15, 16, 17, 500][case % 6]
            generator = torch.Generator().manual_seed(case)
            dtype = [torch.float32, torch.float64, torch.int32, torch.int64][case % 4]
            tensors = (100 * torch.randn(members, count, generator=generator, dtype=torch.float64)).to(dtype)
            own = tensors[member.rank].clone()
            member.all_reduce(own, op)
            wide = tensors.double()
            expected = {"sum": wide.sum(0), "max": wide.amax(0), "min": wide.amin(0)}[op]
            torch.testing.assert_close(own.double(), expected, rtol=1e-5, atol=1e-5)
            member.barrier()

    assert run_members(LocalGroup("g", tuple(range(members))), work) == []


def test_a_thousand_calls_under_random_delays() -> None:
    def work(member: Collective) -> None:
        delays = random.Random(member.rank)
        buffers = [torch.empty(count) for count in (1, 17, 700)]
        for i in range(1000):
            flat = buffers[i % len(buffers)].fill_(float(i * (member.rank + 1)))
            if delays.random() < 0.02:
                time.sleep(delays.random() * 2e-3)
            member.all_reduce(flat)
            assert bool((flat == i * 10).all()), i

    assert run_members(LocalGroup("g", (0, 1, 2, 3)), work) == []


def test_broadcast() -> None:
    def work(member: Collective) -> None:
        own = torch.full((5,), float(member.rank))
        member.broadcast(own, 2)
        assert bool((own == 2).all())

    assert run_members(LocalGroup("g", (0, 1, 2)), work) == []


def test_a_member_that_leaves_is_named() -> None:
    def work(member: Collective) -> None:
        member.barrier()
        if member.rank != 1:
            member.all_reduce(torch.ones(3))

    errors = run_members(LocalGroup("g", (4, 5, 6)), work)
    assert len(errors) == 2
    assert {str(error) for error in errors} == {"GMI 5 left while the collective g waited for it"}


def test_a_member_that_is_late_is_named() -> None:
    group = LocalGroup("g", (4, 5), timeout_s=0.1)
    with pytest.raises(GMIError, match=r"GMI 5 did not come to the collective g within 0.1 s"):
        group.member(0).barrier()


def test_alone_nothing_happens() -> None:
    alone = LocalCollective.alone("g", 3)
    own = torch.arange(4.0)
    alone.all_reduce(own)
    alone.broadcast(own)
    alone.barrier()
    assert own.tolist() == [0, 1, 2, 3]
    assert (alone.rank, alone.size, alone.members) == (0, 1, (3,))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 28_751])
@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_shards_cover_everything_once(count: int, size: int) -> None:
    bounds = [shard(rank, size, count) for rank in range(size)]
    assert bounds[0][0] == 0 and bounds[-1][1] == count
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    assert all(first % 16 == 0 or first == count for first, _ in bounds)
