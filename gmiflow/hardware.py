"""What this machine has: CPU cores and NVIDIA GPUs. No torch, no CUDA context."""

# NVML's Python binding has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

MULTI_RANK_NCCL = (2, 30)
"""First NCCL that admits several ranks on one GPU, behind NCCL_MULTI_RANK_GPU_ENABLE; experimental there."""


_P2P_READ, _P2P_WRITE = 0, 1
"""Of nvmlGpuP2PCapsIndex_t; the binding's own name of the first is a tuple."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GPU:
    """One NVIDIA GPU as NVML sees it.

    Attributes:
        index: position among the GPUs that CUDA_VISIBLE_DEVICES admits.
        uuid: "GPU-...", the name that survives renumbering.
        sm_count: streaming multiprocessors.
        memory_bytes: total device memory.
        mig: whether MIG mode is on.
    """

    index: int
    uuid: str
    name: str
    sm_count: int
    memory_bytes: int
    mig: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """This machine.

    Attributes:
        cores: physical CPU cores that this process may use (its affinity and cgroup quota count).
        gpus: the GPUs that CUDA_VISIBLE_DEVICES admits.
        peer_access: whether each of them may read and write the memory of each other one, by NVLink or PCIe.
    """

    cores: int
    gpus: tuple[GPU, ...]
    peer_access: bool = False


def usable_cpus() -> tuple[int, ...]:
    """Logical CPUs that this process may run on, one hardware thread per core first."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    first, siblings, seen = list[int](), list[int](), set[str]()
    for cpu in allowed:
        core = _core_key(cpu)
        (siblings if core in seen else first).append(cpu)
        seen.add(core)
    return (*first, *siblings)


def physical_cores() -> int:
    """Physical cores behind `usable_cpus`, at most the cgroup CPU quota, at least 1."""
    cores = len({_core_key(cpu) for cpu in usable_cpus()})
    quota = _cgroup_quota()
    return max(1, min(cores, quota) if quota else cores)


def detect() -> Hardware:
    """Look at this machine (a few milliseconds; NVML is loaded only where a driver is present)."""
    gpus = _gpus()
    return Hardware(cores=physical_cores(), gpus=gpus, peer_access=len(gpus) > 1 and _peer_access(gpus))


def _core_key(cpu: int) -> str:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(cpu)


def _cgroup_quota() -> int:
    """Whole CPUs of the cgroup v2 quota, 0 when there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return 0 if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return 0


def _gpus() -> tuple[GPU, ...]:
    if not Path("/proc/driver/nvidia").exists() and not Path("/dev/nvidiactl").exists():
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = [_gpu(pynvml.nvmlDeviceGetHandleByIndex(i), i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return _visible(tuple(found))


def _gpu(handle: object, index: int) -> GPU:
    import pynvml

    def text(value: str | bytes) -> str:
        return value.decode() if isinstance(value, bytes) else value

    try:
        mig = pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except pynvml.NVMLError:
        mig = False
    name = text(pynvml.nvmlDeviceGetName(handle))
    try:  # on GPUs with MIG NVML says it; elsewhere it counts CUDA cores
        attributes = pynvml.nvmlDeviceGetAttributes(handle)
        sm_count = int(attributes.multiprocessorCount)
    except (pynvml.NVMLError, AttributeError):
        sm_count = _sm_count(handle)
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    uuid = text(pynvml.nvmlDeviceGetUUID(handle))
    return GPU(index=index, uuid=uuid, name=name, sm_count=sm_count, memory_bytes=memory, mig=mig)


def _sm_count(handle: object) -> int:
    import pynvml

    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        per_sm = 64 if major in (6, 7) or (major, minor) == (8, 0) else 128
        return int(pynvml.nvmlDeviceGetNumGpuCores(handle)) // per_sm
    except (pynvml.NVMLError, AttributeError):
        return 0


def _peer_access(gpus: tuple[GPU, ...]) -> bool:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid) for gpu in gpus]
        return all(
            pynvml.nvmlDeviceGetP2PStatus(one, other, kind) == pynvml.NVML_P2P_STATUS_OK
            for one, other in itertools.permutations(handles, 2)
            for kind in (_P2P_READ, _P2P_WRITE)
        )
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()


def _visible(gpus: tuple[GPU, ...]) -> tuple[GPU, ...]:
    """Honour CUDA_VISIBLE_DEVICES: indices or UUID prefixes, up to the first that does not exist."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return gpus
    chosen: list[GPU] = []
    for item in (part.strip() for part in wanted.split(",")):
        match = [g for g in gpus if item and (item == str(g.index) or g.uuid.startswith(item))]
        if len(match) != 1:
            break
        chosen.append(match[0])
    return tuple(
        GPU(index=i, uuid=g.uuid, name=g.name, sm_count=g.sm_count, memory_bytes=g.memory_bytes, mig=g.mig)
        for i, g in enumerate(chosen)
    )
