"""A fault of the GPU after the end of a peer's process names the peer."""

import os
import signal
import uuid

import pytest

from gmiflow.runtime.comm import faults
from gmiflow.runtime.comm.collectives.ip import IPCollective
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.failure import NOT_SUPPORTED, GMIError, error

FAULT = "CUDA error: an illegal memory access was encountered\nSearch for more"


@pytest.fixture
def pair():
    """A group of GMIs 4 and 7; the process of GMI 7, which waits to be killed."""
    segment = f"gmiflow-test-{uuid.uuid4().hex}"
    here = IPCollective("train.gradient", (4, 7), 0, segment, slot_bytes=4096, timeout_s=120.0)
    child = os.fork()
    if child == 0:
        IPCollective("train.gradient", (4, 7), 1, segment, slot_bytes=4096, timeout_s=120.0).connect()
        signal.pause()
    here.connect()
    yield here, child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    here.close()


def test_a_dead_peer_explains_a_fault_of_torch_or_the_driver(pair):
    group, child = pair
    refused = error(NOT_SUPPORTED, "the CUDA driver refused: an illegal memory access was encountered")
    assert group.lost_peer() is None
    assert faults.behind(RuntimeError(FAULT), [group], patience_s=0.05).args == (FAULT,)
    os.kill(child, signal.SIGKILL)
    for problem in (RuntimeError(FAULT), refused):
        failure = faults.behind(problem, [LocalCollective.alone("other", 4), group])
        assert isinstance(failure, GMIError) and failure.failure.code == "E0704"
        assert "GMI 7 died" in failure.failure.message and "train.gradient" in failure.failure.message
        assert "illegal memory access" in failure.failure.notes[0] and "Search" not in failure.failure.notes[0]


def test_other_problems_stay_what_they_are(pair):
    group, child = pair
    os.kill(child, signal.SIGKILL)
    for problem in (ValueError("no"), RuntimeError("no"), error(NOT_SUPPORTED, "no")):
        assert faults.behind(problem, [group], patience_s=0.05) is problem
