"""How a process becomes a client of MPS: its variables, its limits, and the proof that it is one."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gmiflow.plan import GMIPlan
from gmiflow.runtime.gmi.mps_control import (
    BINARY,
    MPSControl,
    MPSControlError,
    StaticPartition,
    binary_version,
    find_binary,
)
from gmiflow.runtime.gmi.nvml import cuda_driver_version

PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PARTITION: Final = "CUDA_MPS_SM_PARTITION"
MEMORY_LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
STATIC_PARTITIONS_SINCE: Final = 13_010
"""CUDA version that brought static partitions, and more clients."""


def client_environment(
    gmi: GMIPlan, uuid: str, control: MPSControl, partition: StaticPartition | None
) -> dict[str, str]:
    """The variables that make a process the client that the plan says.

    The daemon sees one GPU, which is number 0 to it: the memory limit names it so.
    """
    variables = {"CUDA_VISIBLE_DEVICES": uuid, **control.environment()}
    if partition is not None:
        variables[PARTITION] = partition.id
    elif gmi.share < 1:
        variables[PERCENTAGE] = str(thread_percentage(gmi.share))
    if gmi.memory_mib:
        variables[MEMORY_LIMIT] = f"0={gmi.memory_mib}M"
    return variables


def thread_percentage(share: float) -> int:
    """A share as the whole percentage that MPS takes: rounded down, at least 1."""
    return max(1, math.floor(share * 100 + 1e-9))


LEAST_SMS = 8
"""What MPS gives for the smallest percentages; measured on an H200."""


def most_sms(share: float, total: int) -> int:
    """The most SMs that a share of ``total`` SMs can show; MPS rounds down, but not below 8 (1 % of an H200)."""
    return min(total, max(LEAST_SMS, math.ceil(share * total - 1e-9)))


def max_clients(cuda_version: int) -> int:
    """Client contexts per GPU: 48 up to CUDA 13.0, 60 from 13.1."""
    return 60 if cuda_version >= STATIC_PARTITIONS_SINCE else 48


def static_partitions_available(binary: str) -> bool:
    """Whether tool and driver are new enough; whether they really work is tried when they are used."""
    return min(binary_version(binary), cuda_driver_version()) >= STATIC_PARTITIONS_SINCE


def static_partitions_fit(gmis: Sequence[GMIPlan]) -> bool:
    """Whether all shares of a GPU can be had at once, as SMs of their own."""
    return all(gmi.share < 1 for gmi in gmis) and sum(gmi.share for gmi in gmis) <= 1 + 1e-9


def own_server() -> tuple[int | None, str]:
    """In a GMI: the server that lists this process as its client, or None and why not."""
    try:
        pipe, log = (Path(os.environ[f"CUDA_MPS_{kind}_DIRECTORY"]) for kind in ("PIPE", "LOG"))
        server = MPSControl(find_binary() or BINARY, pipe, log).attached(os.getpid())
    except KeyError:
        return None, "it was started without the address of a daemon"
    except MPSControlError as reason:
        return None, f"the daemon does not answer: {reason}"
    return server, f"the daemon in {pipe} does not list process {os.getpid()}"
