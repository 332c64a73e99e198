"""Which composition of collectives carries the gradients of a component.

In: the GMIs that train it, what the target asks for, and what all-reduces cost. Out: every composition with its time,
the cheapest first, and why it was not taken; the chosen one has no reason against it. Part of `comm_lowering`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gmiflow.compatibility import incompatibilities
from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.comm import Candidate
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Target
from gmiflow.plan import Backend, CollectiveKind
from gmiflow.profiles.calibration import CollectiveProfile
from gmiflow.profiles.candidates import Choice, Projected, candidates

__all__ = ["choose"]

_SHOWN: tuple[Choice, ...] = ("local", "ipc", "rp", "two_level", "ip")
"""What the table has in any case, also where the layout rules it out; the fastest first where no time is known."""

_EXPERIMENTAL = (
    "experimental in NCCL, from 2.30: taken where `gmiflow bench collective --calibrate` measured it, or asked for"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Option:
    """A composition as it would join the GMIs at hand.

    Attributes:
        item: the composition with its times.
        kind, rings: what the plan calls it.
        obstacle: why it cannot join them, or "".
        unasked: why it is not considered though it could, or "".
    """

    item: Projected
    kind: CollectiveKind
    rings: int
    obstacle: str
    unasked: str


def choose(
    sized: SizedWorkflow, parts: Sequence[Slice], size: int, profile: CollectiveProfile
) -> tuple[Candidate, ...]:
    """All compositions for the GMIs ``parts`` in order of cost; the first that can work is chosen.

    Args:
        sized: the workflow.
        parts: its slices that have the trainer.
        size: bytes of the buffer that is reduced.
        profile: times of all-reduces on the target, measured or built in.

    Raises:
        DiagnosticError: E0503 when the target asks for one that cannot join these GMIs.
    """
    target, crowds = sized.mapped.workflow.target, Counter(part.device for part in parts)
    shown = _shown(target, len(crowds), max(crowds.values()), size, profile)
    options = [_option(item, target, sized.backend, crowds) for item in shown]
    possible = [option for option in options if not option.obstacle and not option.unasked]
    if not possible:
        raise DiagnosticError(_impossible(target, options, crowds))
    best = min(possible, key=_order)
    return tuple(
        Candidate(
            name=option.item.name,
            kind=option.kind,
            published_s=option.item.published_s,
            corrected_s=option.item.corrected_s,
            origin=option.item.origin,
            reason="" if option is best else option.obstacle or option.unasked or _dearer(option.item, best.item),
            rings=option.rings,
        )
        for option in options
    )


def _shown(target: Target, gpus: int, per_gpu: int, size: int, profile: CollectiveProfile) -> list[Projected]:
    """All compositions that have a time, and those that the table has in any case."""
    projected = list(candidates(gpus, per_gpu, size, profile))
    several = target.collective == "nccl_multirank" or (target.device == "cuda" and per_gpu > 1)
    names: tuple[Choice, ...] = (*_SHOWN, "nccl_multirank") if several else _SHOWN
    missing: list[Choice] = [name for name in names if all(item.composition != name for item in projected)]
    unknown = [Projected(composition=n, k=0, published_s=None, corrected_s=None, origin="modelled") for n in missing]
    return projected + unknown


def _option(item: Projected, target: Target, backend: Backend, crowds: Counter[int]) -> _Option:
    kind, rings = _named(item, len(crowds), max(crowds.values()))
    obstacle = _obstacle(backend, crowds, item, kind, rings)
    return _Option(item=item, kind=kind, rings=rings, obstacle=obstacle, unasked=_unasked(target, item, kind, rings))


def _named(item: Projected, gpus: int, per_gpu: int) -> tuple[CollectiveKind, int]:
    """What the plan calls a composition, and how many rings it has."""
    if item.composition == "two_level":
        return "hybrid", 0
    if item.composition == "hybrid":
        return "hybrid", item.k
    if item.composition == "rp" and gpus > 1 and per_gpu > 1:  # all by rings, then a ring of their results
        return "hybrid", per_gpu
    return item.composition, 0


def _order(option: _Option) -> tuple[bool, float, int]:
    """The cheapest first; where no time is known in order of the table, which knows the fastest first."""
    seconds, composition = option.item.corrected_s, option.item.composition
    return seconds is None, seconds or 0.0, _SHOWN.index(composition) if composition in _SHOWN else len(_SHOWN)


def _dearer(item: Projected, best: Projected) -> str:
    """Why a composition that could work was not taken."""
    if item.corrected_s is None or best.corrected_s is None:
        return item.reason or "its time is not known"
    ratio = item.corrected_s / best.corrected_s
    return f"`{best.name}` is as fast" if ratio < 1.005 else f"`{best.name}` is {ratio:.3g} times as fast"


def _obstacle(backend: Backend, crowds: Counter[int], item: Projected, kind: CollectiveKind, rings: int) -> str:
    """Why a composition cannot join GMIs, so many on each GPU, or is no choice for them; "" when it is one."""
    gpus, per_gpu = len(crowds), max(crowds.values())
    found = incompatibilities(backend, kind, members_per_gpu=per_gpu, gpus=gpus)
    if found:
        return found[0].reason
    if rings:
        return _obstacle_to_rings(backend, crowds, item, rings)
    if kind in ("ipc", "hybrid", "nccl_multirank") and backend == "timeshare" and per_gpu > 1:
        return "its kernels wait for each other, and GMIs that take turns on a GPU never run together"
    if kind == "hybrid" and (per_gpu == 1 or gpus == 1):
        return "it joins several GMIs on each of several GPUs"
    if kind == "rp" and gpus == 1:
        return "it joins GMIs of different GPUs"
    return ""


def _obstacle_to_rings(backend: Backend, crowds: Counter[int], item: Projected, rings: int) -> str:
    if backend == "green":
        return "its rings join processes, and green GMIs of a GPU share one"
    if len(set(crowds.values())) > 1:
        return "rings need the same number of GMIs on every GPU"
    if rings > len(crowds) and rings == max(crowds.values()):
        return item.reason  # the leaders of all rings have no GPU each
    return ""


def _unasked(target: Target, item: Projected, kind: CollectiveKind, rings: int) -> str:
    """Why a composition that could work is not considered; `rp` is also what the table calls all by rings."""
    other_rings = target.rings not in ("auto", rings if kind == "hybrid" else -1)
    if other_rings or target.collective not in ("auto", kind, item.composition):
        wish = f"rings = {target.rings}" if target.rings != "auto" else f"collective = {target.collective}"
        return f"the target asks for `{wish}`"
    if kind == "nccl_multirank" and target.collective == "auto" and item.corrected_s is None:
        return _EXPERIMENTAL
    return ""


def _impossible(target: Target, options: Sequence[_Option], crowds: Counter[int]) -> Diagnostic:
    """E0503: the target asks for what cannot join these GMIs."""
    wishes = {"collective": target.collective, "rings": target.rings}
    asked = {name: value for name, value in wishes.items() if value != "auto"}
    reasons = [option.obstacle for option in options if not option.unasked]
    reason = reasons[0] if reasons else _no_such_rings(target, len(crowds), max(crowds.values()))
    able = sorted({option.kind for option in options if not option.obstacle})
    wish = ", ".join(f"{name} = {value}" for name, value in asked.items())
    return Diagnostic(
        code="E0503",
        message=f"`{wish}` cannot join the GMIs of a training here: {reason}",
        span=next((target.said[name] for name in reversed(asked) if name in target.said), target.span),
        notes=(f"{', '.join(f'`{kind}`' for kind in able)} or `auto` can",),
    )


def _no_such_rings(target: Target, gpus: int, per_gpu: int) -> str:
    if gpus == 1:
        return "rings join GPUs, and there is one"
    if target.collective not in ("auto", "hybrid", "rp"):
        return "only a `hybrid` has rings"
    if per_gpu == 1:
        return "a GPU has 1 GMI, and one for each GPU is `rp`"
    if target.collective == "rp":
        return f"`rp` takes all {per_gpu} GMIs of each GPU, which is `rings = {per_gpu}`"
    return f"a GPU has {per_gpu} GMIs, which are at most {per_gpu} rings"
