"""A search's choice as sizes: `auto` becomes the chosen value, what the user gave stays.

In: a workflow and a `Search`. Out: the workflow without `auto`, where each value came from, and the plans that were
not taken. Not in here: searching (`profiles.search`).
"""

from __future__ import annotations

from dataclasses import replace

from gmiflow.ir.mapped import Rejected
from gmiflow.ir.search import Candidate, Search
from gmiflow.ir.workflow import Workflow
from gmiflow.plan import PredictionPlan

SHOWN_UNMEASURED = 3
"""Rejected plans that were not measured are shown up to this many; `gmiflow plan --all` lists them all."""


def with_choice(workflow: Workflow, search: Search, devices: int) -> Workflow:
    """The workflow with the chosen point in place of `auto`.

    The backend stays `auto` where a device has one GMI: then sizing knows whether trainings share a process.

    Args:
        workflow: checked.
        search: of this workflow.
        devices: of one training; the point counts the environments of one device.
    """
    point = search.chosen.point
    target = workflow.target
    backend = point.backend if target.backend == "auto" and point.gmis > 1 else target.backend
    gmi_per_gpu = point.gmis if target.gmi_per_gpu == "auto" else target.gmi_per_gpu
    return replace(
        workflow,
        num_env=point.num_env * devices if workflow.num_env == "auto" else workflow.num_env,
        execution=point.execution if workflow.execution == "auto" else workflow.execution,
        target=replace(target, backend=backend, gmi_per_gpu=gmi_per_gpu),
    )


def origins(workflow: Workflow, search: Search, sized: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Where each value came from: as ``sized`` says it, except for those that the search chose."""
    target = workflow.target
    asked = {
        "num_env": workflow.num_env,
        "gmi_per_gpu": target.gmi_per_gpu,
        "execution": workflow.execution,
        "backend": target.backend,
    }
    chosen = search.verdicts[0]
    reason = f"{chosen.candidate.steps_per_s.origin}: {chosen.reason}"
    return tuple((name, reason if asked.get(name) == "auto" else origin) for name, origin in sized)


def rejected(search: Search) -> tuple[Rejected, ...]:
    """The other points with their reasons: those that were measured or cannot run, and the best of the rest."""
    found: list[Rejected] = []
    unmeasured = 0
    for verdict in search.verdicts[1:]:
        if verdict.term in ("unmeasured", "not_visited", "saturation") and not _measured(verdict.candidate):
            unmeasured += 1
            if unmeasured > SHOWN_UNMEASURED:
                continue
        found.append(Rejected(choice=str(verdict.candidate.point), reason=f"{verdict.term}: {verdict.reason}"))
    return tuple(found)


def prediction(search: Search, iteration_steps: int) -> PredictionPlan:
    """What the plan promises.

    Args:
        search: whose chosen point runs.
        iteration_steps: environment steps of one iteration, over all devices.
    """
    chosen = search.chosen
    rate = chosen.steps_per_s
    return PredictionPlan(
        steps_per_s=rate.value,
        steps_per_s_low=rate.low,
        steps_per_s_high=rate.high,
        iteration_s=iteration_steps / rate.value,
        stage_s={part: term.value for part, term in chosen.terms.items() if part != "iteration"},
        device_memory_bytes=round(chosen.device_memory.value),
        host_memory_bytes=round(chosen.host_memory.value),
        origin=rate.origin,
    )


def _measured(candidate: Candidate) -> bool:
    return candidate.steps_per_s.origin == "measured"
