"""How busy the SMs of GPUs were between two moments, from the counters that NVML reads (Hopper and later). No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pynvml

from gmiflow.runtime.gmi.nvml import handle_of, optional


class SMActivity:
    """The mean part of the SMs that worked since `start`; NVML is initialised while it lives."""

    def __init__(self, gpu_uuids: Sequence[str]) -> None:
        """Look at these GPUs, as far as NVML answers and they have the counters."""
        self._handles: list[Any] = []
        self._before: list[Any] = []
        optional(pynvml.nvmlInit)
        for uuid in gpu_uuids:
            handle = optional(lambda uuid=uuid: handle_of(uuid))
            if handle is not None and _supported(handle):
                self._handles.append(handle)

    def start(self) -> None:
        """Begin."""
        self._free()
        self._before = [_sample(handle) for handle in self._handles]

    def part(self) -> float | None:
        """Since `start`: 0 to 1, the mean over the GPUs; None where nothing says."""
        found = [_busy(handle, before) for handle, before in zip(self._handles, self._before, strict=False)]
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None

    def close(self) -> None:
        """Let go of NVML."""
        self._free()
        optional(pynvml.nvmlShutdown)

    def _free(self) -> None:
        for sample in self._before:
            if sample is not None:
                _discard(sample)
        self._before = []


def _supported(handle: Any) -> bool:  # noqa: ANN401 - an opaque handle
    support = optional(lambda: pynvml.nvmlGpmQueryDeviceSupport(handle))
    return bool(support is not None and support.isSupportedDevice)


def _sample(handle: Any) -> Any:  # noqa: ANN401 - opaque handles
    """The counters now, None when they cannot be read."""
    sample = optional(pynvml.nvmlGpmSampleAlloc)
    if sample is None or optional(lambda: pynvml.nvmlGpmSampleGet(handle, sample)) is not None:
        return sample
    _discard(sample)
    return None


def _discard(sample: Any) -> None:  # noqa: ANN401 - an opaque handle
    optional(lambda: pynvml.nvmlGpmSampleFree(sample))


def _busy(handle: Any, before: Any) -> float | None:  # noqa: ANN401 - opaque handles
    after = _sample(handle) if before is not None else None
    if after is None:
        return None
    request: Any = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = 1
    request.sample1, request.sample2 = before, after
    request.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
    read = optional(lambda: pynvml.nvmlGpmMetricsGet(request))
    _discard(after)
    if read is None or request.metrics[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return float(request.metrics[0].value) / 100.0
