"""Every composition of collectives with its projected time, for one layout and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gmiflow.profiles.calibration import CollectiveProfile, Origin, Primitive
from gmiflow.profiles.collective_cost import Composition, project

Choice = Composition | Literal["local", "nccl_multirank"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Projected:
    """One composition.

    Attributes:
        k: GMIs per GPU that go by rings first (the paper's hybrids), else 0.
        published_s: the paper's projection as printed; None where it has none.
        corrected_s: from the same measurements by the paper's cost formulas, or measured; None when unknown.
        origin: of ``corrected_s``.
        reason: why it is unknown, else "".
    """

    composition: Choice
    k: int
    published_s: float | None
    corrected_s: float | None
    origin: Origin
    reason: str = ""

    @property
    def name(self) -> str:
        """As shown: the paper's hybrids with their k."""
        return f"hybrid, k = {self.k}" if self.composition == "hybrid" else self.composition


_PRIMITIVES: dict[Choice, Primitive] = {"ip": "ip", "rp": "rp", "ipc": "ipc", "two_level": "two_level"}


def candidates(gpus: int, gmis_per_gpu: int, size: int, profile: CollectiveProfile) -> tuple[Projected, ...]:
    """All compositions that the paper's model and ours know for a layout, cheapest first, unknown ones last.

    `local` (threads of one process) moves the bytes that `ipc` moves and takes its time. NCCL with several GMIs per
    GPU is known where exactly this layout was measured.

    Args:
        gpus: n.
        gmis_per_gpu: m.
        size: bytes of the tensor.
        profile: measured or built in.
    """
    forms: dict[tuple[Composition, int], dict[str, tuple[float | None, str]]] = {}
    for item in project(gpus, gmis_per_gpu, profile.inputs(gpus, gmis_per_gpu, size)):
        forms.setdefault((item.composition, item.k), {})[item.form] = (item.seconds, item.reason)
    found: list[Projected] = []
    for (composition, k), form in forms.items():
        rings = k if composition == "hybrid" or (composition == "rp" and gmis_per_gpu > 1) else 0
        primitive = "rings" if rings else _PRIMITIVES[composition]
        direct = profile.direct(primitive, gpus, gmis_per_gpu, size, rings)
        corrected, reason = form["corrected"]
        found.append(
            Projected(
                composition=composition,
                k=k,
                published_s=form.get("published", (None, ""))[0],
                corrected_s=corrected if direct is None else direct,
                origin="modelled" if direct is None else profile.origin,
                reason="" if direct is not None else reason,
            )
        )
    inside = profile.inside_s(gpus * gmis_per_gpu, size) if gpus == 1 else None
    if inside is not None:
        found.append(Projected(composition="local", k=0, published_s=None, corrected_s=inside, origin="modelled"))
    several = profile.direct("nccl_multirank", gpus, gmis_per_gpu, size)
    if several is not None:
        found.append(
            Projected(composition="nccl_multirank", k=0, published_s=None, corrected_s=several, origin=profile.origin)
        )
    return tuple(sorted(found, key=_order))


def _order(item: Projected) -> tuple[bool, float, str, int]:
    unknown = item.corrected_s is None
    return unknown, item.corrected_s or 0.0, item.composition, item.k
