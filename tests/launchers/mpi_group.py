"""One rank of a group on two pretended machines: ``mpirun -n 4 python mpi_group.py RENDEZVOUS``.

Ranks 0 and 1 share memory, so do 2 and 3; between them goes MPI. Joined as in a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from pathlib import Path

import torch
from plans import launch_plan, program_of, training_plan

from gmiflow.runtime.comm.collectives.base import DTYPES, Collective
from gmiflow.runtime.comm.collectives.hybrid import HybridCollective
from gmiflow.runtime.comm.mpi_world import MPIWorld
from gmiflow.runtime.connect import Switchboard
from gmiflow.runtime.rendezvous import Rendezvous


def check_random_cases(group: Collective) -> None:
    """Random sizes, types and operations under random delays, against float64; the same bits everywhere."""
    chooser, delays = random.Random(3), random.Random(group.rank)
    for case in range(60):
        count = chooser.choice([1, 2, 15, 17, 1025, chooser.randrange(1, 100_000), 300_001 if case % 20 == 0 else 3])
        dtype, op = chooser.choice(DTYPES), chooser.choice(["sum", "sum", "max", "min"])
        generator = torch.Generator().manual_seed(case)
        tensors = (100 * torch.randn(group.size, count, generator=generator, dtype=torch.float64)).to(dtype)
        if delays.random() < 0.1:
            time.sleep(delays.random() * 5e-3)
        own = tensors[group.rank].clone()
        group.all_reduce(own, op)
        wide = tensors.double()
        expected = {"sum": wide.sum(0), "max": wide.amax(0), "min": wide.amin(0)}[op]
        torch.testing.assert_close(own.double(), expected, rtol=1e-5, atol=1e-4)
        bits = own.view(torch.uint8).to(torch.int64) * torch.arange(1, own.numel() * own.element_size() + 1)
        sums = torch.stack([bits.sum(), -bits.sum()])
        group.all_reduce(sums, "max")
        assert sums[0] == -sums[1], "members hold different bits"


def check_repeats(group: Collective) -> None:
    """A thousand calls under random delays: no value of one call may leak into the next."""
    delays = random.Random(group.rank)
    buffers = [torch.empty(count) for count in (1, 17, 700)]
    for i in range(1000):
        flat = buffers[i % len(buffers)].fill_(float(i * (group.rank + 1)))
        if delays.random() < 0.01:
            time.sleep(delays.random() * 2e-3)
        group.all_reduce(flat)
        assert bool((flat == i * group.size * (group.size + 1) / 2).all()), i


def check_the_rest(group: Collective) -> None:
    """Broadcasts from everywhere; NaN wins."""
    for root in range(group.size):
        flat = torch.full((1000,), float(group.rank))
        group.broadcast(flat, root)
        assert bool((flat == root).all()), root
    for op in ("sum", "max", "min"):
        flat = torch.tensor([float("nan") if group.rank == 0 else 1.0, 2.0])
        group.all_reduce(flat, op)
        assert flat[0].isnan(), op
    group.barrier()


def main() -> None:
    torch.set_num_threads(1)
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    node = f"node{rank // 2}"
    world = MPIWorld([rank], node, None)
    program = program_of(launch_plan(training_plan(num_env=16 * size), gmis=size), rank)
    rendezvous = Rendezvous.join(Path(sys.argv[1]) / node)
    with contextlib.ExitStack() as stack:
        collectives, control = Switchboard([program], rendezvous, torch.device("cpu"), 240.0, world).connect(
            program, stack
        )
        (group,) = collectives.values()
        assert isinstance(group, HybridCollective) and isinstance(control, HybridCollective)
        for check in (check_random_cases, check_repeats, check_the_rest):
            check(group)
        control.barrier()
    world.close()
    print(f"rank {rank} is done")


if __name__ == "__main__":
    main()
