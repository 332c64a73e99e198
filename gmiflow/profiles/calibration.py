"""What all-reduces cost on a machine: measured once (`gmiflow bench collective --calibrate`), or built in.

A calibration is a table of times by collective, layout and size. Between measured sizes it interpolates;
layouts that were not measured are scaled by the cost formulas of the paper (section "Communicator"). What
comes straight from a measurement on this machine is marked "measured", everything else "modelled".
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gmiflow.profiles.collective_cost import Calibration, traffic
from gmiflow.profiles.json_values import decode, load_object

FORMAT = 1

_SMALLEST_S = 1e-9
"""No all-reduce takes less time."""

Origin = Literal["measured", "modelled"]
Device = Literal["cpu", "cuda"]
Primitive = Literal["ip", "rp", "ipc", "two_level", "rings", "nccl_multirank"]

H200 = "NVIDIA H200"
CPU = "CPU"


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Times of one all-reduce over sizes, on one layout.

    Attributes:
        gpus, gmis_per_gpu: the layout; one "GPU" on the CPU.
        points: (bytes, seconds), sizes rising.
        k: of `rings` (the paper's compositions), how many GMIs of each GPU are in one.
    """

    collective: Primitive
    gpus: int
    gmis_per_gpu: int
    points: tuple[tuple[int, float], ...]
    k: int = 0

    def seconds(self, size: int) -> float:
        """Time at a size: interpolated between the measured ones in logarithms of both.

        Below the smallest it is that one's time (latency); above the largest it grows with the size (bandwidth).
        """
        sizes = [point[0] for point in self.points]
        after = bisect.bisect_left(sizes, size)
        if after == 0:
            return self.points[0][1]
        if after == len(sizes):
            return self.points[-1][1] * size / sizes[-1]
        (low, low_s), (high, high_s) = self.points[after - 1], self.points[after]
        part = math.log(size / low) / math.log(high / low)
        return low_s * (high_s / low_s) ** part


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveProfile:
    """The curves of one kind of machine.

    Attributes:
        machine: what was measured, for messages.
        origin: "measured" on this machine, or "modelled" from built-in numbers.
        date: of the measurement, "" for built-in numbers.
    """

    machine: str
    origin: Origin
    date: str
    curves: tuple[Curve, ...]

    def direct(self, collective: Primitive, gpus: int, gmis_per_gpu: int, size: int, k: int = 0) -> float | None:
        """The time on exactly this layout, or None when it was not measured."""
        wanted = collective, gpus, gmis_per_gpu, k
        for curve in self.curves:
            if (curve.collective, curve.gpus, curve.gmis_per_gpu, curve.k) == wanted:
                return curve.seconds(size)
        return None

    def host_s(self, members: int, size: int) -> float | None:
        """`ip` among ``members``, scaled by 2 (p - 1) / p from the nearest measured number of members."""
        curves = [curve for curve in self.curves if curve.collective == "ip"]
        return self._scaled(curves, members, size, traffic)

    def ring_s(self, gpus: int, size: int) -> float | None:
        """`rp` with one GMI on each of ``gpus``, scaled likewise."""
        curves = [curve for curve in self.curves if curve.collective == "rp" and curve.gmis_per_gpu == 1]
        return self._scaled(curves, gpus, size, traffic)

    def inside_s(self, members: int, size: int) -> float | None:
        """`ipc` among ``members`` of one GPU, which share its memory: 2 (p - 1) S bytes in all, never less than 2."""
        curves = [curve for curve in self.curves if curve.collective == "ipc" and curve.gpus == 1]
        return self._scaled(curves, members, size, lambda count: max(1.0, count - 1.0))

    def inputs(self, gpus: int, gmis_per_gpu: int, size: int) -> Calibration:
        """The three numbers that the paper's model needs, for one layout and size."""
        inside = self.inside_s(gmis_per_gpu, size)
        return Calibration(
            bytes=size,
            gpus=gpus,
            ip_s=self.host_s(max(2, gpus), size) or math.inf,
            rp_s=self.ring_s(gpus, size) if gpus > 1 else None,
            ipc_s={} if inside is None else {gmis_per_gpu: inside},
        )

    @staticmethod
    def _scaled(curves: Sequence[Curve], members: int, size: int, work: Any) -> float | None:  # noqa: ANN401
        if not curves:
            return None
        nearest = min(curves, key=lambda c: (abs(c.gpus * c.gmis_per_gpu - members), c.gpus))
        return nearest.seconds(size) * work(members) / work(nearest.gpus * nearest.gmis_per_gpu)

    def to_json(self) -> str:
        """Deterministic text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CollectiveProfile:
        """Read what `to_json` wrote.

        Raises:
            ValueError: for anything else.
        """
        try:
            data = load_object(text)
            if data.pop("format", None) != FORMAT:
                raise ValueError("another format")
            profile = decode(cls, data, "profile")
            for number, curve in enumerate(profile.curves):
                _require_sensible(curve, f"profile.curves[{number}]")
        except ValueError as problem:
            raise ValueError(f"not a profile of collectives: {problem}") from problem
        return profile


def _require_sensible(curve: Curve, place: str) -> None:
    """Raises ValueError for what no machine measures."""
    sizes = [size for size, _ in curve.points]
    if min(curve.gpus, curve.gmis_per_gpu) < 1:
        raise ValueError(f"{place} is of no GMI")
    if not sizes or sizes[0] < 1 or any(low >= high for low, high in itertools.pairwise(sizes)):
        raise ValueError(f"{place}: the sizes do not rise")
    if min(seconds for _, seconds in curve.points) < _SMALLEST_S:
        raise ValueError(f"{place}: a time is no time")


_SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


def _curve(collective: Primitive, gpus: int, gmis: int, microseconds: Sequence[float]) -> Curve:
    points = tuple((size, us * 1e-6) for size, us in zip(_SIZES, microseconds, strict=True))
    return Curve(collective=collective, gpus=gpus, gmis_per_gpu=gmis, points=points)


def _ring_us(latency_us: float, bytes_per_s: float) -> list[float]:
    return [latency_us + traffic(2) * size / bytes_per_s * 1e6 for size in _SIZES]


_BUILT_IN = {
    # Measured with benchmarks/collectives.py on 2026-11-29 (driver 580.159, torch 2.11+cu130): 4 GMIs of one GPU
    # under MPS, `ipc` in a CUDA graph. The ring was not measured: 20 us and 300 GB/s are NCCL's usual numbers for
    # two GPUs on NVLink 4.
    H200: (
        _curve("ipc", 1, 4, (10.2, 14.1, 15.1, 22.1, 35.9, 111.8, 425.7)),
        _curve("ip", 1, 4, (76, 120, 219, 631, 2454, 9162, 39592)),
        _curve("rp", 2, 1, _ring_us(20.0, 300e9)),
    ),
    # The lowest of the batches of `gmiflow bench collective` on two shared cores, 2 GMIs.
    CPU: (_curve("ip", 1, 2, (33, 81, 170, 513, 1830, 19176, 76700)),),
}


def built_in(device: Device, gpu: str) -> CollectiveProfile:
    """The numbers that hold until this machine is measured; GPUs without numbers of their own get the H200's."""
    name = CPU if device == "cpu" else H200
    machine = "two shared CPU cores" if device == "cpu" else f"4 GMIs of one {H200}"
    if device == "cuda" and gpu and H200 not in gpu:
        machine += f", taken for {gpu}"
    return CollectiveProfile(machine=machine, origin="modelled", date="", curves=_BUILT_IN[name])
