"""Numbers of a target that the mapping has no use for: they are pointed out, and otherwise ignored."""

from __future__ import annotations

from gmiflow.ir.workflow import Workflow
from gmiflow.passes.report import Report
from gmiflow.plan import ModeKind, Template

__all__ = ["check_effect"]

_USED: dict[Template, frozenset[str]] = {
    "dp_only": frozenset(),
    "ea_t": frozenset({"agents", "trainers", "agent_share"}),
    "e_at": frozenset({"simulators", "agents", "trainers", "agent_share"}),
    "dp_mp": frozenset({"simulators", "agents", "trainers", "agent_share"}),
    "mp_dp": frozenset({"simulators", "agents", "agent_share"}),
}
"""What each mapping goes by, of the numbers that speak of one role."""
_PARTS: dict[ModeKind, Template] = {"serve": "mp_dp", "sync": "ea_t", "async": "ea_t"}
"""The mapping that gives agents GMIs of their own."""
_PARTS_SIMULATORS: dict[ModeKind, Template] = {"serve": "mp_dp", "sync": "e_at", "async": "dp_mp"}


def check_effect(workflow: Workflow, report: Report) -> None:
    """Warn (W0507) of `agents`, `trainers`, `simulators` and `agent_share` where the mapping ignores them.

    A mapping that the command line asks for is somebody's comparison: then nothing is said.
    """
    target = workflow.target
    chosen = target.said.get("mapping")
    if chosen is not None and chosen.source.name.startswith("--set"):
        return
    default: Template = "ea_t" if workflow.applies is not None else "dp_only"
    mapping = default if target.mapping == "auto" else target.mapping
    values = {
        "agents": target.agents,
        "trainers": target.trainers,
        "simulators": target.simulators,
        "agent_share": target.agent_share,
    }
    for name, value in values.items():
        if value != "auto" and name in target.said and (reason := _why_not(name, mapping, workflow.mode)):
            message, note = reason
            report.add("W0507", message, target.said[name], severity="warning", notes=[note])


def _why_not(name: str, mapping: Template, mode: ModeKind) -> tuple[str, str] | None:
    """Why a number has no effect, and what would give it one; None where it has."""
    if name == "trainers" and mode == "serve":
        return f"`{name}` has no effect: a `serve` workflow has no trainer", "it has `simulators` and `agents`"
    if name in _USED[mapping]:
        return None
    parts = _PARTS_SIMULATORS[mode] if name == "simulators" else _PARTS[mode]
    where = "every GMI has all roles" if mapping == "dp_only" else "simulators share the GMIs of their agents"
    return f"`{name}` has no effect: with mapping `{mapping}` {where}", f"`mapping = {parts}` parts them, or `place`"
