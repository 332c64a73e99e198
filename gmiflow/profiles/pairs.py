"""Mappings that pair a GMI that simulates alone with one that acts for it: `e_at`, and `dp_mp`."""

from __future__ import annotations

from gmiflow.ir.workflow import Workflow

__all__ = ["are_paired", "beside_pairs", "leaves_pairs", "stated_pairs"]


def are_paired(workflow: Workflow) -> bool:
    """Whether the target's mapping makes pairs."""
    return workflow.target.mapping in ("e_at", "dp_mp")


def beside_pairs(workflow: Workflow) -> int:
    """GMIs of a device that train beside the pairs: none where the second of a pair trains, or nobody does."""
    target = workflow.target
    if workflow.mode == "serve" or target.mapping == "e_at":
        return 0
    return 1 if target.trainers == "auto" else target.trainers


def leaves_pairs(workflow: Workflow) -> bool:
    """Whether a `gmi_per_gpu` that is given leaves whole pairs, one at least, beside the GMIs that train."""
    total = workflow.target.gmi_per_gpu
    if total == "auto":
        return True
    paired = total - beside_pairs(workflow)
    return paired >= 2 and paired % 2 == 0


def stated_pairs(workflow: Workflow) -> dict[str, int]:
    """Pairs of a device by what the target says of them, for example {"agents = 2": 2}; empty where all is open.

    A `gmi_per_gpu` that leaves no whole pairs is rounded down.
    """
    target = workflow.target
    counts = {"simulators": target.simulators, "agents": target.agents}
    if target.mapping == "e_at":
        counts["trainers"] = target.trainers
    stated = {f"{name} = {count}": count for name, count in counts.items() if isinstance(count, int)}
    if target.gmi_per_gpu != "auto":
        stated[f"gmi_per_gpu = {target.gmi_per_gpu}"] = (target.gmi_per_gpu - beside_pairs(workflow)) // 2
    return stated
