"""What a profile of one processor says about another: for `gmiflow plan --what-if`.

A training step is a chain of many kernels, and a processor can be better at it in several ways. The speed is taken to
change by a factor between the smallest and the largest of these ratios of the two data sheets:

- clock: short kernels one after the other, where nothing else counts;
- SMs times clock: kernels that fill the processor with arithmetic;
- memory bandwidth: kernels that stream large tensors.

The value is the geometric mean of the two ends, and both ends get a margin of `MARGIN`. On the CPU the ratios are 1 and
that of the cores. Times of all-reduces are left alone: the communication model has those of the goal. Memory is
taken to be the same. Nothing of this replaces a measurement, and whatever passes through here is "modelled".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gmiflow.ir.search import Candidate, Estimate, Search, Verdict
from gmiflow.profiles.workload import Measurement, ProfileKey, WorkloadProfile

MARGIN = 0.1
"""By how much the ends of the error bar are pushed outwards: hosts, drivers and caches differ, too."""

UNKNOWN_MARGIN = 0.5
"""Instead, for a GPU whose data sheet is not known."""

MEMORY_MARGIN = 0.05
"""Error bar of the memory: the context of CUDA grows with the SMs, everything else does not."""

SAME_MEMORY = 1.01
"""A goal with this many times the memory, or more, may hold what ran out of it where it was profiled."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """From the vendor's data sheet: highest SM clock in MHz, memory bandwidth in GB/s."""

    clock_mhz: int
    bandwidth_gb_per_s: int


SHEETS: dict[str, Sheet] = {
    "H200": Sheet(1980, 4800),
    "H100 80GB HBM3": Sheet(1980, 3350),
    "H100 PCIe": Sheet(1755, 2000),
    "A100-SXM4-80GB": Sheet(1410, 2039),
    "A100-SXM4-40GB": Sheet(1410, 1555),
    "B200": Sheet(1965, 8000),
    "L40S": Sheet(2520, 864),
    "A10": Sheet(1695, 600),
    "L4": Sheet(2040, 300),
    "RTX 4090": Sheet(2520, 1008),
    "RTX 5090": Sheet(2407, 1792),
}
"""By the end of the model's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """How many times as fast the goal is.

    Attributes:
        low: the pessimist's factor.
        high: the optimist's factor.
        basis: one phrase with the numbers that it rests on.
        more_memory: whether points that ran out of memory say nothing about the goal.
    """

    value: float
    low: float
    high: float
    basis: str
    more_memory: bool = False


def projection(profiled: ProfileKey, goal: ProfileKey) -> Projection | None:
    """From the processor of one key to that of another; None between a CPU and a GPU: they are too different."""
    if profiled.device != goal.device:
        return None
    if profiled.device == "cpu":
        return _cores(profiled.cores, goal.cores)
    if _model(profiled.processor) == _model(goal.processor):
        return Projection(value=1.0, low=1.0, high=1.0, basis=f"measured on the same GPU, {profiled.processor}")
    more_memory = goal.memory_bytes > SAME_MEMORY * profiled.memory_bytes
    before, after = _sheet(profiled.processor), _sheet(goal.processor)
    if before is None or after is None or not profiled.sm_count or not goal.sm_count:
        sms = goal.sm_count / profiled.sm_count if goal.sm_count and profiled.sm_count else 1.0
        unknown = goal.processor if after is None else profiled.processor
        basis = f"carried over to {goal.processor} by SMs alone ({sms:.2f}x): {unknown} is not in the table of GPUs"
        return _between((sms, 1.0), basis, UNKNOWN_MARGIN, more_memory=more_memory)
    ratios = {
        "clock": after.clock_mhz / before.clock_mhz,
        "SMs x clock": goal.sm_count * after.clock_mhz / (profiled.sm_count * before.clock_mhz),
        "bandwidth": after.bandwidth_gb_per_s / before.bandwidth_gb_per_s,
    }
    words = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    basis = f"carried over to {goal.processor} by its data sheet: {words}"
    return _between(tuple(ratios.values()), basis, MARGIN, more_memory=more_memory)


def project_profile(profile: WorkloadProfile, goal: ProfileKey, factor: Projection) -> WorkloadProfile:
    """The profile as the goal would have given it, without error bars of the projection; see `project_search`."""
    kept = (m for m in profile.measurements if not (factor.more_memory and m.status == "out_of_memory"))
    return replace(profile, key=goal, measurements=tuple(_measurement(m, factor.value) for m in kept))


def project_search(search: Search, factor: Projection) -> Search:
    """A search on a projected profile with the error bars of the projection, all of it "modelled"."""
    done: dict[int, Candidate] = {}

    def projected(candidate: Candidate) -> Candidate:
        if id(candidate) not in done:
            done[id(candidate)] = _candidate(candidate, factor)
        return done[id(candidate)]

    return replace(
        search,
        chosen=projected(search.chosen),
        unsliced=projected(search.unsliced) if search.unsliced is not None else None,
        verdicts=tuple(
            replace(verdict, candidate=projected(verdict.candidate), reason=_reason(verdict))
            for verdict in search.verdicts
        ),
    )


def _reason(verdict: Verdict) -> str:
    """What is left of a reason whose measurements are of another processor."""
    return f"{verdict.reason}, carried over" if verdict.chosen else verdict.reason


def _cores(before: int, after: int) -> Projection:
    if before == after:
        return Projection(value=1.0, low=1.0, high=1.0, basis=f"measured with as many cores, {after}")
    basis = f"carried over from {before} to {after} cores: between no change and {after / before:.2f}x"
    return _between((1.0, after / before), basis, MARGIN)


def _between(ratios: tuple[float, ...], basis: str, margin: float, *, more_memory: bool = False) -> Projection:
    low, high = min(ratios), max(ratios)
    return Projection(
        value=math.sqrt(low * high),
        low=low / (1 + margin),
        high=high * (1 + margin),
        basis=basis,
        more_memory=more_memory,
    )


def _measurement(measured: Measurement, factor: float) -> Measurement:
    stages = {name: t if name == "communicate" else t / factor for name, t in measured.stage_s.items()}
    return replace(
        measured,
        steps_per_s=measured.steps_per_s * factor,
        steps_per_s_low=measured.steps_per_s_low * factor,
        steps_per_s_high=measured.steps_per_s_high * factor,
        iteration_s=measured.iteration_s / factor,
        stage_s=stages,
        looks=tuple(replace(look, steps_per_s=look.steps_per_s * factor) for look in measured.looks),
    )


def _candidate(candidate: Candidate, factor: Projection) -> Candidate:
    slow, fast = factor.low / factor.value, factor.high / factor.value
    return replace(
        candidate,
        steps_per_s=_wider(candidate.steps_per_s, slow, fast),
        device_memory=_wider(candidate.device_memory, 1 - MEMORY_MARGIN, 1 + MEMORY_MARGIN),
        host_memory=_wider(candidate.host_memory, 1 - MEMORY_MARGIN, 1 + MEMORY_MARGIN),
        iteration=_wider(candidate.iteration, 1 / fast, 1 / slow),
        terms={
            name: replace(term, origin="modelled") if name == "communicate" else _wider(term, 1 / fast, 1 / slow)
            for name, term in candidate.terms.items()
        },
    )


def _wider(estimate: Estimate, low: float, high: float) -> Estimate:
    return Estimate(value=estimate.value, low=estimate.low * low, high=estimate.high * high, origin="modelled")


def _model(processor: str) -> str:
    return processor.lower().removeprefix("nvidia ").strip()


def _sheet(processor: str) -> Sheet | None:
    """The sheet whose name the processor's ends with; the longest, where several do."""
    fitting = [name for name in SHEETS if processor.lower().endswith(name.lower())]
    return SHEETS[max(fitting, key=len)] if fitting else None
