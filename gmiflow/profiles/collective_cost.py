"""Projected time of an all-reduce for every legal composition (the paper's section "Communicator").

n GPUs, m GMIs on each, S bytes. The paper measures two numbers once, with one GMI per GPU: the host
path (`ip`) and the NVLink ring (`rp`), and scales them. Each composition is given in two forms:

- "published": the projection as printed, for comparison;
- "corrected": from the same two measurements by the paper's own cost formulas. A ring of p members moves
  2 (p - 1) S / p bytes per member over NVLink; reduction by the host moves 2 (p - 1) S / (p B1).

`ipc` and `two_level` are not in the paper and have one form. No form knows contention: the best few
candidates are to be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["published", "corrected"]
Composition = Literal["ip", "rp", "hybrid", "ipc", "two_level"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What was measured on this machine for one size.

    Attributes:
        bytes: S.
        gpus: n of the measurement of ``ip_s`` and ``rp_s``; 1 when there is one GPU.
        ip_s: host path, one GMI per GPU (with one GPU: two GMIs of it).
        rp_s: ring, one GMI per GPU; None with one GPU.
        ipc_s: for each measured number of GMIs on one GPU, the time of `ipc`.
    """

    bytes: int
    gpus: int
    ip_s: float
    rp_s: float | None
    ipc_s: dict[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """One composition and its projected time.

    Attributes:
        k: GMIs per GPU that go by rings first; 0 where that has no meaning.
        seconds: None when it cannot be projected from what was measured; ``reason`` says why.
    """

    composition: Composition
    k: int
    form: Form
    seconds: float | None
    reason: str = ""


def traffic(members: int) -> float:
    """Bytes that each of ``members`` sends and receives in an all-reduce, per byte of the tensor: 2 (p - 1) / p."""
    return 2 * (members - 1) / members


def project(gpus: int, gmis_per_gpu: int, calibration: Calibration) -> tuple[Projection, ...]:
    """All compositions that are legal for the layout, both forms, cheapest corrected one first.

    Args:
        gpus: n.
        gmis_per_gpu: m.
        calibration: measurements with n GPUs (or one).

    Raises:
        ValueError: when the calibration is of another number of GPUs.
    """
    if calibration.gpus != gpus:
        raise ValueError(f"the calibration is of {calibration.gpus} GPUs, the layout has {gpus}")
    found = [*_host(gpus, gmis_per_gpu, calibration)]
    if gpus > 1:
        found += _rings(gpus, gmis_per_gpu, calibration)
        for k in range(1, gmis_per_gpu):
            found += _hybrid(gpus, gmis_per_gpu, k, calibration)
    if gmis_per_gpu > 1:
        found.append(_on_device(gpus, gmis_per_gpu, calibration))
    return tuple(sorted(found, key=_order))


def _order(projection: Projection) -> tuple[bool, float, str, int, str]:
    seconds = projection.seconds if projection.seconds is not None else float("inf")
    return projection.form == "published", seconds, projection.composition, projection.k, projection.form


def _host(n: int, m: int, calibration: Calibration) -> list[Projection]:
    """`ip` alone: 2 (nm - 1) S / (nm B1)."""
    measured = max(2, n)
    corrected = calibration.ip_s * traffic(n * m) / traffic(measured) if n * m > 1 else 0.0
    published = (n * m - 1) / (m * (n - 1)) * calibration.ip_s if n > 1 else corrected
    return _both("ip", 0, published, corrected)


def _rings(n: int, m: int, calibration: Calibration) -> list[Projection]:
    """`rp` alone: m disjoint rings, then one over their results, which needs leaders on m different GPUs."""
    if m > n:
        return [
            Projection(composition="rp", k=m, form=f, seconds=None, reason=f"{m} rings need {m} GPUs") for f in FORMS
        ]
    if calibration.rp_s is None:
        return _unmeasured("rp", m, "the ring was not measured")
    second = calibration.rp_s * traffic(m) / traffic(n) if m > 1 else 0.0
    published = 2 * calibration.rp_s if m > 1 else calibration.rp_s
    return _both("rp", m, published, calibration.rp_s + second)


def _hybrid(n: int, m: int, k: int, calibration: Calibration) -> list[Projection]:
    """K GMIs per GPU by rings, then the k results and the other n (m - k) GMIs by the host."""
    if calibration.rp_s is None:
        return _unmeasured("hybrid", k, "the ring was not measured")
    upper = n * (m - k) + k
    published = (k / n + m - k) * calibration.ip_s + calibration.rp_s
    corrected = calibration.rp_s + calibration.ip_s * traffic(upper) / traffic(n)
    return _both("hybrid", k, published, corrected)


def _on_device(n: int, m: int, calibration: Calibration) -> Projection:
    """`ipc` inside the GPUs; across them, the leaders' ring. The way back costs at most what the way in does."""
    composition: Composition = "ipc" if n == 1 else "two_level"
    inside = calibration.ipc_s.get(m)
    reason = ""
    seconds = inside
    if inside is None:
        reason = f"`ipc` was not measured with {m} GMIs"
    elif n > 1:
        reason = "" if calibration.rp_s is not None else "the ring was not measured"
        seconds = None if calibration.rp_s is None else 2 * inside + calibration.rp_s
    return Projection(composition=composition, k=0, form="corrected", seconds=seconds, reason=reason)


FORMS: tuple[Form, Form] = ("published", "corrected")


def _both(composition: Composition, k: int, published: float, corrected: float) -> list[Projection]:
    return [
        Projection(composition=composition, k=k, form=form, seconds=seconds)
        for form, seconds in zip(FORMS, (published, corrected), strict=True)
    ]


def _unmeasured(composition: Composition, k: int, reason: str) -> list[Projection]:
    return [Projection(composition=composition, k=k, form=form, seconds=None, reason=reason) for form in FORMS]
