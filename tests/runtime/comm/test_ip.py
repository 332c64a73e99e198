"""`ip`: results, failures and what is left behind, in groups of real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.comm.collectives.ip import IPCollective
from gmiflow.runtime.failure import GMIError

SCRIPT = Path(__file__).with_name("ip_group.py")


GROUPS = {
    "random": (2, 3, 5, 7, 10),
    "repeats": (2, 4, 10),
    "gloo": (3,),
    "special": (3,),
    "death": (2, 4),
    "lateness": (2, 4),
    "leaving": (2, 4),
    "different": (2,),
}


@pytest.fixture(scope="module")
def outcomes() -> tuple[dict[str, str], str]:
    """What was wrong with each group, and all that they printed; one process loads torch for all of them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    names = [f"{scenario}:{members}" for scenario, sizes in GROUPS.items() for members in sizes]
    command = [sys.executable, str(SCRIPT), *names]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    return dict(json.loads(line) for line in result.stdout.splitlines()), result.stderr


@pytest.mark.parametrize(
    ("scenario", "members"), [(scenario, members) for scenario, sizes in GROUPS.items() for members in sizes]
)
def test_groups_of_processes(outcomes: tuple[dict[str, str], str], scenario: str, members: int) -> None:
    """The scenarios of `ip_group.py`: results, failures that are named, nothing left behind."""
    found, printed = outcomes
    assert found.get(f"{scenario}:{members}", "did not end") == "", printed[-3000:]


def test_a_member_that_never_joins_is_named() -> None:
    group = IPCollective("a.gradient", (4, 9), 0, f"gmiflow-test-{os.getpid()}-alone", timeout_s=0.2)
    with pytest.raises(GMIError, match=r"GMI 9 did not join a.gradient within 0.2 s"):
        group.connect()
    group.close()
    assert not (shared_memory.directory() / f"gmiflow-test-{os.getpid()}-alone").exists()


def test_a_place_is_taken_once() -> None:
    name = f"gmiflow-test-{os.getpid()}-twice"
    group = IPCollective("a.gradient", (0, 1), 0, name)
    with pytest.raises(GMIError, match=r"GMI 0 is in the collective a\.gradient already"):
        IPCollective("a.gradient", (0, 1), 0, name)
    group.close()


def test_too_little_shared_memory_is_reported() -> None:
    name = f"gmiflow-test-{os.getpid()}-huge"
    with pytest.raises(GMIError, match=r"of shared memory in .* cannot be had"):
        IPCollective("a.gradient", (0, 1), 0, name, slot_bytes=1 << 50)
    assert not (shared_memory.directory() / name).exists()


@pytest.mark.parametrize(
    ("tensor", "op", "message"),
    [
        (torch.ones(2, 2), "sum", "one dimension"),
        (torch.ones(4)[::2], "sum", "contiguous"),
        (torch.ones(2, dtype=torch.float16), "sum", "not torch.float16"),
        (torch.ones(2), "product", "unknown operation"),
    ],
)
def test_arguments_are_checked(tensor: torch.Tensor, op: str, message: str) -> None:
    name = f"gmiflow-test-{os.getpid()}-arguments"
    group = IPCollective("a.gradient", (0, 1), 0, name)
    try:
        with pytest.raises(ValueError, match=message):
            group.all_reduce(tensor, op)
    finally:
        group.close()


def test_the_fence_of_weakly_ordered_machines_works_here_too() -> None:
    fence = shared_memory.make_membarrier("x86_64")
    fence()
    with pytest.raises(OSError, match="no memory fence is known for vax"):
        shared_memory.make_membarrier("vax")
