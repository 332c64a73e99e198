"""`green`: parts of a GPU as CUDA green contexts inside one host process, each with streams of its own.

The SMs are split once and the pieces handed out: contexts made one by one would each split the whole device, and
overlap. The parts are disjoint sets of SMs; they share memory, L2 cache, bandwidth and faults.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gmiflow.hardware import GPU
from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, SLICE_UNPROVEN, RuntimeFailure, error
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.gpu import memory_failure, planned_gpus

if TYPE_CHECKING:
    import torch

_ROUNDING = 1e-3
"""Of a number of groups: plans give shares six digits, and three of 0.333333 are a whole device."""


def share_groups(groups: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Hand out equal groups of SMs in proportion to shares.

    Args:
        groups: how many groups the device was split into.
        shares: parts of the whole device, each > 0, together at most 1.

    Returns:
        Groups per share: its exact number rounded down, at least 1; what rounding leaves of the sum goes to
        the largest remainders, the first of equals.

    Raises:
        ValueError: the shares exceed the device, or there are more of them than groups.
    """
    if sum(shares) > 1 + _ROUNDING or min(shares) <= 0:
        raise ValueError(f"shares {', '.join(f'{share:g}' for share in shares)} are not parts of one device")
    if len(shares) > groups:
        raise ValueError(f"{len(shares)} parts of {groups} groups of SMs: each needs at least one")
    exact = [share * groups for share in shares]
    given = [max(1, math.floor(value + _ROUNDING)) for value in exact]
    available = min(groups, math.floor(sum(exact) + _ROUNDING))
    by_remainder = sorted(range(len(shares)), key=lambda i: (given[i] - exact[i], i))
    for index in by_remainder[: max(0, available - sum(given))]:
        given[index] += 1
    while sum(given) > groups:  # parts below one group were rounded up at the expense of the largest
        given[given.index(max(given))] -= 1
    return tuple(given)


@dataclass
class GreenPart:
    """A disjoint set of SMs of one GPU.

    Attributes:
        device: CUDA's number of the GPU in this process.
        sm_count: SMs in it, as the driver says after making it.
    """

    device: int
    sm_count: int
    _driver: Any = field(repr=False)
    _context: Any = field(repr=False)
    _streams: list[Any] = field(default_factory=list[Any], repr=False)

    def make_stream(self, priority: int = 0) -> torch.cuda.ExternalStream:
        """A stream whose kernels run on this part only; it lives until the partition is closed.

        Args:
            priority: smaller runs first, as torch counts; work is never interrupted.
        """
        import torch

        flags = int(self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        stream = _call(self._driver, "cuGreenCtxStreamCreate", self._context, flags, priority)
        self._streams.append(stream)
        return torch.cuda.ExternalStream(int(stream), device=self.device)

    def close(self) -> None:
        """Destroy streams and context; all work must have ended."""
        for stream in self._streams:
            _call(self._driver, "cuStreamDestroy", stream)
        self._streams.clear()
        if self._context is not None:
            _call(self._driver, "cuGreenCtxDestroy", self._context)
            self._context = None


class GreenPartition:
    """One split of a GPU's SMs, in the process that runs its GMIs.

    Attributes:
        parts: in the order of the shares.
        group_sms: SMs in one group, the unit of the split.
    """

    def __init__(self, shares: Sequence[float], device: int = 0) -> None:
        """Split the device that this process sees as number ``device``.

        Args:
            shares: parts of the whole device; see `share_groups`.
            device: CUDA's number in this process.

        Raises:
            GMIError: E0711 when the driver or the device cannot do it.
        """
        import torch

        self.parts: tuple[GreenPart, ...] = ()
        self.group_sms = 0
        driver = _load_driver()
        torch.zeros(1, device=f"cuda:{device}")  # the primary context, which green contexts share
        try:
            self._split(driver, device, shares)
        except (_DriverError, ValueError) as reason:
            self.close()
            raise error(LAUNCH_FAILED, f"GPU {device} cannot be split into green contexts: {reason}") from reason

    def close(self) -> None:
        """Destroy all parts; wait for their work before."""
        for part in self.parts:
            part.close()
        self.parts = ()

    def _split(self, driver: Any, number: int, shares: Sequence[float]) -> None:  # noqa: ANN401 - a module
        device = _call(driver, "cuDeviceGet", number)
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        whole = _call(driver, "cuDeviceGetDevResource", device, kind)
        smallest = minimum_group(_capability(driver, device))
        groups, made, _ = _call(driver, "cuDevSmResourceSplitByCount", whole.sm.smCount // smallest, whole, 0, smallest)
        pieces = list(groups)[:made]
        self.group_sms = int(pieces[0].sm.smCount)
        flag = int(driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
        for count in share_groups(len(pieces), shares):
            mine, pieces = pieces[:count], pieces[count:]
            description = _call(driver, "cuDevResourceGenerateDesc", mine, len(mine))
            context = _call(driver, "cuGreenCtxCreate", description, device, flag)
            resource = _call(driver, "cuGreenCtxGetDevResource", context, kind)
            sm_count = int(resource.sm.smCount)
            part = GreenPart(device=number, sm_count=sm_count, _driver=driver, _context=context)
            self.parts = (*self.parts, part)


class GreenBackend(GMIBackend):
    """GMIs as parts of one host process per GPU.

    The launcher prepares it like any backend and starts one process per GPU with `environment`; that process calls
    `open` with the GMIs it hosts, then `prove` for each, and `release` at its end.
    """

    name: ClassVar[Backend] = "green"

    def __init__(self) -> None:
        """Without GPUs until `prepare`, without parts until `open`."""
        self._gpus: dict[int, GPU] = {}
        self._partition: GreenPartition | None = None
        self._parts: dict[int, GreenPart] = {}

    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Find the GPUs.

        Raises:
            GMIError: E0711, also when a GPU is in MIG mode.
        """
        self._gpus = planned_gpus(gmis)
        for device, gpu in self._gpus.items():
            if gpu.mig:
                raise error(LAUNCH_FAILED, f"GPU {device} ({gpu.name}) is in MIG mode: green contexts need it whole")

    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """The GPU of the host process."""
        return {"CUDA_VISIBLE_DEVICES": self._gpus[gmi.device].uuid}

    def open(self, gmis: Sequence[GMIPlan]) -> dict[int, GreenPart]:
        """In the host process: split its GPU among the GMIs it hosts, all of one device; parts by GMI id.

        Raises:
            GMIError: E0711.
        """
        self._partition = GreenPartition([gmi.share for gmi in gmis])
        self._parts = {gmi.id: part for gmi, part in zip(gmis, self._partition.parts, strict=True)}
        return dict(self._parts)

    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """In the host process: the SMs that the driver gave to the GMI's part.

        Raises:
            GMIError: E0712 when it has none.
        """
        part = self._parts.get(gmi.id)
        if part is None or self._partition is None or part.sm_count <= 0:
            raise error(SLICE_UNPROVEN, f"GMI {gmi.id} has no green context in this process")
        return {"sm_count": part.sm_count, "group_sms": self._partition.group_sms}

    def explain(self, gmi: GMIPlan, output: str) -> RuntimeFailure | None:
        """Memory that ran out."""
        return memory_failure(gmi, output)

    def release(self) -> None:
        """Destroy the parts of this process."""
        if self._partition is not None:
            self._partition.close()
        self._partition, self._parts = None, {}


def minimum_group(capability: tuple[int, int]) -> int:
    """The smallest group of SMs that can be split off, by compute capability (CUDA driver API, green contexts)."""
    return 8 if capability >= (9, 0) else 4 if capability >= (8, 0) else 2 if capability >= (7, 0) else 1


class _DriverError(Exception):
    """A driver call failed."""


def _load_driver() -> Any:  # noqa: ANN401 - the module of the bindings
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as reason:
        raise error(
            LAUNCH_FAILED,
            f"green contexts need the package cuda-bindings: {reason}",
            "pip install 'gmiflow[gpu]'",
        ) from reason


def _call(driver: Any, function: str, *arguments: Any) -> Any:  # noqa: ANN401 - the driver's own types
    """Call the driver; return its one result, or all of several."""
    code, *results = getattr(driver, function)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise _DriverError(f"{function} says {code.name}")
    return results[0] if len(results) == 1 else results


def _capability(driver: Any, device: Any) -> tuple[int, int]:  # noqa: ANN401 - opaque handles
    attribute = driver.CUdevice_attribute
    major = _call(driver, "cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = _call(driver, "cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return int(major), int(minor)
