"""What NVML says about GPUs, in plain values. NVML needs no CUDA context and disturbs nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pynvml

from gmiflow.runtime.gmi.cpus import gpu_node

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class GPUFacts:
    """One physical GPU.

    Attributes:
        index: NVML's number, which nvidia-smi uses and CUDA_VISIBLE_DEVICES does not change.
        uuid: "GPU-...".
        pci_bus_id: for example "00000000:1B:00.0".
        node: NUMA node, or None where the machine does not say.
        compute_mode: "shared" (the default), "exclusive" (one process, or one MPS server) or "prohibited".
        capability: compute capability.
        mig: whether MIG mode is on.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    node: int | None
    compute_mode: Literal["shared", "exclusive", "prohibited"]
    capability: tuple[int, int]
    mig: bool


@contextmanager
def session() -> Iterator[bool]:
    """Load NVML for the duration of the block; yields whether there is a driver that answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def optional(read: Callable[[], T]) -> T | None:
    """The result of a reading, or None where this GPU or driver does not give it."""
    try:
        return read()
    except pynvml.NVMLError:
        return None


def text(value: str | bytes) -> str:
    """NVML's texts are bytes in some versions of its bindings."""
    return value.decode() if isinstance(value, bytes) else value


def handle_of(uuid: str) -> Any:  # noqa: ANN401 - an opaque handle
    """NVML's handle of a GPU or MIG instance; call within a `session`."""
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def read_gpu(uuid: str) -> GPUFacts:
    """Facts of one GPU; call within a `session`."""
    handle = handle_of(uuid)
    bus = text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
    mode = optional(lambda: pynvml.nvmlDeviceGetComputeMode(handle))
    modes: dict[int | None, Literal["exclusive", "prohibited"]] = {
        pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
        pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    }
    capability = optional(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)) or (0, 0)
    mig = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)) or [0, 0]
    return GPUFacts(
        index=int(pynvml.nvmlDeviceGetIndex(handle)),
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        name=text(pynvml.nvmlDeviceGetName(handle)),
        pci_bus_id=bus,
        node=gpu_node(bus),
        compute_mode=modes.get(mode, "shared"),
        capability=(int(capability[0]), int(capability[1])),
        mig=mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
    )


def cuda_driver_version() -> int:
    """The CUDA version that the driver supports, as 13000 for 13.0; 0 without a driver."""
    with session() as present:
        return int(optional(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0) if present else 0


def gpu_nodes(uuids: tuple[str, ...]) -> tuple[int | None, ...]:
    """NUMA node of each GPU, for `cpus.assign_cpus`; None where unknown."""
    with session() as present:
        if not present:
            return (None,) * len(uuids)
        facts = (optional(lambda uuid=uuid: read_gpu(uuid)) for uuid in uuids)
        return tuple(fact.node if fact else None for fact in facts)
