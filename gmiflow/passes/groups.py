"""How many GMIs collect and how many train, where the mapping splits agent and trainer."""

from __future__ import annotations

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.workflow import Target, Workflow
from gmiflow.profiles.defaults import MAX_GMIS

__all__ = ["split_groups", "stated_groups"]


def stated_groups(target: Target) -> tuple[int, int] | None:
    """GMIs that collect and that train on one device, as the target states them; None where it leaves that open."""
    total, agents, trainers = target.gmi_per_gpu, target.agents, target.trainers
    if total == "auto":
        return None if agents == "auto" else (agents, 1 if trainers == "auto" else trainers)
    if trainers == "auto":
        trainers = 1 if agents == "auto" else total - agents
    return total - trainers if agents == "auto" else agents, trainers


def split_groups(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, int]:
    """GMIs that collect and that train on one device.

    Args:
        workflow: with its target.
        cores: CPU cores that the plan may use.
        origins: what was decided is added.

    Raises:
        DiagnosticError: E0501 when the numbers that are given do not add up.
    """
    target = workflow.target
    stated = stated_groups(target)
    if stated is None:
        return _default_groups(workflow, cores, origins)
    if target.gmi_per_gpu == "auto":
        origins.append(("gmi_per_gpu", "given as `agents` and `trainers`"))
        return stated
    origins.append(("gmi_per_gpu", "given"))
    if sum(stated) != target.gmi_per_gpu or min(stated) < 1:
        raise DiagnosticError(_uneven(workflow, target.gmi_per_gpu, *stated))
    return stated


def _default_groups(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, int]:
    """When neither the number of all nor that of the agents is given."""
    target = workflow.target
    trainers = 1 if target.trainers == "auto" else target.trainers
    if target.device == "cpu":
        share = min(cores, MAX_GMIS) // len(workflow.components)
        origins.append(("gmi_per_gpu", f"default: one GMI per core ({cores} cores), two at least"))
        return max(1, share - trainers), trainers
    origins.append(("gmi_per_gpu", "default: one GMI that collects until a profile says that more pay"))
    return 1, trainers


def _uneven(workflow: Workflow, total: int, agents: int, trainers: int) -> Diagnostic:
    """The groups of a split mapping do not add up."""
    if total < 2:
        message = (
            f"mapping `{workflow.target.mapping}` splits a training over two GMIs or more, and gmi_per_gpu = {total}"
        )
    else:
        message = f"{max(agents, 0)} agents and {max(trainers, 0)} trainers are not the {total} GMIs of a device"
    note = "give two of `gmi_per_gpu`, `agents` and `trainers`; the third follows, and one trainer is the default"
    return Diagnostic(code="E0501", message=message, span=workflow.span, notes=(note,))
