"""Everything that `gmiflow plan` says, as data: the text, the JSON and the picture are made from it.

Numbers are marked "cached", from a stored profile that was measured under the key of what would run, or "modelled".
Nothing is measured here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gmiflow.commands.durations import seconds
from gmiflow.commands.plan_changes import Change
from gmiflow.graphs.devices import Device, devices
from gmiflow.ir.mapped import Rejected
from gmiflow.ir.search import Candidate, Estimate, Search, Verdict
from gmiflow.ir.workflow import Target
from gmiflow.passes.placement import takes_turns
from gmiflow.pipeline import Compilation
from gmiflow.plan import Backend, Execution, LaunchPlan, Template

STAGES = {
    "simulate": "the simulation",
    "collect": "the rollout",
    "infer": "the policy",
    "update": "the update",
    "communicate": "the update's communication",
}
"""Terms of an iteration in words."""

WORTH_MEASURING = 1.02
"""Speed in relation to the chosen plan from which a plan that was not measured is pointed out."""

CANNOT = ("memory", "failed", "illegal", "not_visited")
"""Terms of plans whose speed decided nothing."""

Mark: TypeAlias = Literal["cached", "modelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A number with its error bar and where it comes from; the unit is that of the field that holds it."""

    value: float
    low: float
    high: float
    mark: Mark


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One plan that was considered.

    Attributes:
        num_env: environments of one training on one device.
        gmis: GMIs of one training on one device.
        steps_per_s: of one training over all devices.
        device_memory_bytes: of one device, None on the CPU.
        relative: its speed as a part of the chosen plan's; None for one that cannot run.
        chosen: whether it is the plan.
        unsliced: whether it is what slicing is compared with.
        term: what decided, a word.
        reason: what decided, a sentence.
        slowest: what it loses most of its time to, "" where that is not known or did not decide.
        iteration_s: seconds of one iteration, rollout and update.
        terms: what they are spent on, in seconds; see `ir.search.Candidate`.
    """

    num_env: int
    gmis: int
    mapping: Template
    execution: Execution
    backend: Backend
    steps_per_s: Figure
    device_memory_bytes: Figure | None
    host_memory_bytes: Figure
    relative: float | None
    chosen: bool
    unsliced: bool
    term: str
    reason: str
    slowest: str
    iteration_s: Figure
    terms: dict[str, Figure]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A value of the plan and how it was decided."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Grounds:
    """What the numbers rest on.

    Attributes:
        source: file and workflow that were profiled.
        date: of the last measurement.
        processor: that it ran on.
        measurements: how many points were measured.
        basis: how they were carried over to another processor, "" where they were not.
    """

    source: str
    date: str
    processor: str
    measurements: int
    basis: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Against another plan: ``predicted`` is how many times as fast, None when either is not predicted."""

    against: str
    changes: tuple[Change, ...]
    predicted: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A plan with what it rests on.

    Attributes:
        what_if: questions that were asked, "" for the plan itself.
        rows: plans that were considered, the chosen one first; empty when nothing was searched.
        rejected_mappings: templates that were not taken.
        notes: sentences that a reader should know.
        difference: against the last plan, None without one.
    """

    file: str
    workflow: str
    target: Target
    what_if: str
    grounds: Grounds | None
    algorithm: str
    objective: str
    decisions: tuple[Decision, ...]
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    mapping: str
    rejected_mappings: tuple[Rejected, ...]
    notes: tuple[str, ...]
    difference: Difference | None
    plan: LaunchPlan

    @property
    def chosen(self) -> Row | None:
        """The row of the plan, None when nothing was searched."""
        return next((row for row in self.rows if row.chosen), None)

    def data(self) -> dict[str, Any]:
        """For JSON, in a fixed order; without the places in files where the target was written."""
        target = dataclasses.replace(self.target, said={}, span=None)
        found = dataclasses.asdict(dataclasses.replace(self, target=target))
        del found["target"]["said"], found["target"]["span"]
        return found


def report(
    compilation: Compilation,
    *,
    search: Search | None,
    grounds: Grounds | None = None,
    what_if: str = "",
    difference: Difference | None = None,
    notes: tuple[str, ...] = (),
) -> Report:
    """Put a compilation that reached its plan together with its search.

    Args:
        compilation: with a plan.
        search: what the sizing looked at, None when it had nothing to choose.
        grounds: the profile behind the numbers.
        what_if: the questions, as text.
        difference: against the last plan.
        notes: besides those of the search.
    """
    workflow, sized, plan = compilation.workflow, compilation.sized, compilation.plan
    assert workflow is not None and sized is not None and plan is not None
    values = {
        "num_env": sized.num_env,
        "gmi_per_gpu": sized.gmi_per_gpu,
        "execution": sized.execution,
        "backend": sized.backend,
    }
    origins = dict(sized.origins)
    if "joint" in origins:
        values["joint"] = sized.joint
    found = rows(search) if search else ()
    decisions = [Decision(name="mapping", value=sized.mapped.template, origin=sized.mapped.origin)]
    decisions += [Decision(name=name, value=str(value), origin=origins.get(name, "")) for name, value in values.items()]
    return Report(
        file=workflow.file,
        workflow=workflow.name,
        target=workflow.target,
        what_if=what_if,
        grounds=grounds,
        algorithm=search.algorithm if search else "",
        objective=search.objective if search else workflow.sizing.objective,
        decisions=tuple(decisions),
        devices=devices(plan, workflow.target.gpu, workflow.target.sm_count),
        rows=found,
        mapping=sized.mapped.template,
        rejected_mappings=sized.mapped.rejected,
        notes=(*notes, *(search.notes if search else ()), *_unmeasured(found), *_apart(compilation)),
        difference=difference,
        plan=plan,
    )


def rows(search: Search) -> tuple[Row, ...]:
    """The plans of a search in its order; the unsliced one is among them even where the search left it out."""
    found = [_row(verdict, search) for verdict in search.verdicts]
    unsliced = search.unsliced
    if unsliced is not None and not any(row.unsliced for row in found):
        verdict = Verdict(candidate=unsliced, chosen=False, term="throughput", reason="the plan without slicing")
        found.insert(1, _row(verdict, search))
    return tuple(found)


def _unmeasured(found: Sequence[Row]) -> tuple[str, ...]:
    """A sentence about plans that may be faster than the chosen one, when something was measured."""
    speeds = [row.relative or 0.0 for row in found if row.term == "unmeasured"]
    better = [speed for speed in speeds if speed > WORTH_MEASURING]
    if not better or all(row.steps_per_s.mark == "modelled" for row in found):
        return ()
    count = f"{len(better)} plan{'s' if len(better) > 1 else ''} that nobody measured"
    return (f"{count} may be up to {max(better):.2f} times as fast by the model: `gmiflow profile` goes on measuring",)


def _apart(compilation: Compilation) -> tuple[str, ...]:
    """What a reader should know of roles that are apart: devices that wait, and why the host is between GPUs."""
    mapped, comm = compilation.mapped, compilation.comm
    waiting = takes_turns(mapped) if mapped is not None else ""
    reasons = (
        {channel.reason: channel.carries for channel in comm.channels if channel.reason} if comm is not None else {}
    )
    crossing = (f"{carries}s cross by the host: {reason}" for reason, carries in reasons.items())
    return (*([waiting] if waiting else []), *crossing)


def _row(verdict: Verdict, search: Search) -> Row:
    candidate, chosen = verdict.candidate, search.chosen
    speed, best = candidate.steps_per_s.value, chosen.steps_per_s.value
    why = "" if verdict.chosen or verdict.term in CANNOT else slowest_term(candidate, chosen)
    point = candidate.point
    return Row(
        num_env=point.num_env,
        gmis=point.gmis,
        mapping=point.template,
        execution=point.execution,
        backend=point.backend,
        steps_per_s=figure(candidate.steps_per_s),
        device_memory_bytes=figure(candidate.device_memory) if candidate.device_memory.value else None,
        host_memory_bytes=figure(candidate.host_memory),
        relative=speed / best if speed > 0 and best > 0 else None,
        chosen=verdict.chosen,
        unsliced=_same(candidate, search.unsliced),
        term=verdict.term,
        reason=verdict.reason,
        slowest=why,
        iteration_s=figure(candidate.iteration),
        terms={name: figure(value) for name, value in candidate.terms.items()},
    )


def slowest_term(candidate: Candidate, chosen: Candidate) -> str:
    """What a slower plan loses most of its time to, with the numbers; "" where the parts are not known."""
    own, other = _parts(candidate, chosen), _parts(chosen, candidate)
    if candidate.score >= chosen.score or not own or not other:
        return ""
    here, there = candidate.point.num_env, chosen.point.num_env

    def lost(name: str) -> float:
        """Seconds per environment and iteration more than in the chosen plan."""
        return own[name] / here - other.get(name, 0.0) / there

    worst = max(own, key=lambda name: (lost(name), name))
    if lost(worst) <= 0:
        return ""
    if here == there:
        takes, total, before = own[worst], candidate.iteration.value, other.get(worst, 0.0)
        return f"{STAGES[worst]} takes {seconds(takes)} of {seconds(total)} (chosen: {seconds(before)})"
    each, before = own[worst] / here, other.get(worst, 0.0) / there
    return f"{STAGES[worst]} takes {seconds(each)} per environment (chosen: {seconds(before)})"


def _parts(candidate: Candidate, other: Candidate) -> dict[str, float]:
    """Seconds of an iteration by `STAGES`; a rollout whose parts are hidden in one of the two is one part in both."""
    parts = {name: term.value for name, term in candidate.terms.items() if name in STAGES}
    if "collect" in other.terms and "collect" not in parts and "simulate" in parts:
        parts["collect"] = parts.pop("simulate") + parts.pop("infer", 0.0)
    return parts


def _same(candidate: Candidate, other: Candidate | None) -> bool:
    return other is not None and candidate.point == other.point


def figure(estimate: Estimate) -> Figure:
    """An estimate with its mark."""
    mark: Mark = "cached" if estimate.origin == "measured" else "modelled"
    return Figure(value=estimate.value, low=estimate.low, high=estimate.high, mark=mark)
