"""GPU samples from NVML, for `telemetry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from gmiflow.runtime.gmi.nvml import handle_of, optional
from gmiflow.runtime.telemetry import GPUSample

_MIB = 2**20


def open_nvml(uuids: Sequence[str]) -> NVMLReader | None:
    """A reader of these GPUs, or None where NVML does not answer or does not know one of them."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return NVMLReader([handle_of(uuid) for uuid in uuids])
    except pynvml.NVMLError:
        pynvml.nvmlShutdown()
        return None


class NVMLReader:
    """Reads some GPUs; what one of them does not support is None."""

    def __init__(self, handles: Sequence[Any]) -> None:
        """Take NVML's handles; NVML is initialised."""
        self._handles = tuple(handles)
        self._since = [0] * len(self._handles)

    def gpus(self) -> tuple[GPUSample, ...]:
        """One sample per GPU."""
        return tuple(_read_gpu(handle) for handle in self._handles)

    def processes(self) -> Mapping[int, tuple[float | None, float | None]]:
        """Process id to (memory in MiB, percent of SM time)."""
        found: dict[int, tuple[float | None, float | None]] = {}
        for index, handle in enumerate(self._handles):
            shares = self._sm_percent(index)
            memory = _memory(handle)
            for pid in memory.keys() | shares.keys():
                found[pid] = (memory.get(pid), shares.get(pid))
        return found

    def close(self) -> None:
        """Let go of NVML."""
        optional(pynvml.nvmlShutdown)

    def _sm_percent(self, index: int) -> dict[int, float]:
        """Mean share of SM time per process since the last call; empty when no process ran."""
        handle = self._handles[index]
        samples = optional(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, self._since[index])) or []
        values: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > self._since[index]:
                values.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        self._since[index] = max([self._since[index], *(int(sample.timeStamp) for sample in samples)])
        return {pid: sum(shares) / len(shares) for pid, shares in values.items()}


def _read_gpu(handle: Any) -> GPUSample:  # noqa: ANN401 - an opaque handle
    rates = optional(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    memory = optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    power_mw = optional(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
    return GPUSample(
        gpu_percent=float(rates.gpu) if rates else None,
        memory_percent=float(rates.memory) if rates else None,
        memory_used_mib=round(int(memory.used) / _MIB, 1) if memory else None,
        power_w=power_mw / 1000 if power_mw is not None else None,
    )


def _memory(handle: Any) -> dict[int, float | None]:  # noqa: ANN401 - an opaque handle
    """GPU memory per process in MiB; clients of MPS are listed apart on some drivers."""
    listings: tuple[Callable[[Any], Any], ...] = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    found: dict[int, float | None] = {}
    for listing in listings:
        for process in optional(lambda listing=listing: listing(handle)) or ():
            used = process.usedGpuMemory
            found[int(process.pid)] = None if used is None else round(int(used) / _MIB, 1)
    return found
