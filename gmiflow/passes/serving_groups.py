"""How many GMIs simulate and how many act, where a serve workflow is split; training is in `groups`.

One for one with `dp_mp`; with `mp_dp` a few that act for many that simulate.
"""

from __future__ import annotations

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.groups import one_per_core, share_of_cores

__all__ = ["serving_groups"]


def serving_groups(mapped: MappedWorkflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, int]:
    """GMIs that simulate and that act on one device.

    Args:
        mapped: with two groups.
        cores: CPU cores that the plan may use.
        origins: what was decided is added.

    Raises:
        DiagnosticError: E0501 when the numbers of the target do not go together.
    """
    sizes, origin = (_pairs if mapped.template == "dp_mp" else _pools)(mapped.workflow, cores)
    origins.append(("gmi_per_gpu", origin))
    return sizes


def _pairs(workflow: Workflow, cores: int) -> tuple[tuple[int, int], str]:
    """`dp_mp` in serving: every simulator GMI has an agent GMI of its own."""
    target = workflow.target
    given: dict[str, int] = {}
    if target.simulators != "auto":
        given[f"simulators = {target.simulators}"] = target.simulators
    if target.agents != "auto":
        given[f"agents = {target.agents}"] = target.agents
    if target.gmi_per_gpu != "auto":
        if target.gmi_per_gpu % 2:
            note = "an even `gmi_per_gpu`; `mapping = mp_dp` lets simulators share an agent, `dp_only` needs no pairs"
            message = f"mapping `dp_mp` pairs simulator and agent GMIs, and gmi_per_gpu = {target.gmi_per_gpu} is odd"
            raise _refused(workflow, message, note)
        given[f"gmi_per_gpu = {target.gmi_per_gpu}"] = target.gmi_per_gpu // 2
    if len(set(given.values())) > 1:
        note = "give one of `gmi_per_gpu`, `simulators` and `agents`; `mapping = mp_dp` lets simulators share an agent"
        message = f"mapping `dp_mp` has as many simulator as agent GMIs, unlike {' and '.join(given)}"
        raise _refused(workflow, message, note)
    if given:
        pairs = next(iter(given.values()))
        return (pairs, pairs), f"given by {' and '.join(given)}"
    if target.device == "cpu":
        pairs = max(1, share_of_cores(workflow, cores) // 2)
        return (pairs, pairs), one_per_core(cores)
    return (1, 1), "default: one pair until a profile says that more pay"


def _pools(workflow: Workflow, cores: int) -> tuple[tuple[int, int], str]:
    """`mp_dp`: a pool of simulator GMIs and one of agent GMIs, each of which acts for whole simulator GMIs."""
    target, note = workflow.target, "give two of `gmi_per_gpu`, `simulators` and `agents`; one agent is the default"
    if target.gmi_per_gpu != "auto":
        total, agents = target.gmi_per_gpu, target.agents
        if agents == "auto":
            agents = 1 if target.simulators == "auto" else total - target.simulators
        simulators = total - agents if target.simulators == "auto" else target.simulators
        if total < 2:
            raise _refused(workflow, _too_few(workflow, total), note)
        if simulators + agents != total or min(simulators, agents) < 1:
            found = f"{max(simulators, 0)} simulators and {max(agents, 0)} agents"
            raise _refused(workflow, f"{found} are not the {total} GMIs of a device", note)
        origin = "given"
    else:
        agents = 1 if target.agents == "auto" else target.agents
        simulators, origin = target.simulators, "given as `simulators` and `agents`"
        if simulators == "auto" and target.device == "cpu":
            simulators, origin = max(agents, share_of_cores(workflow, cores) - agents), one_per_core(cores)
        elif simulators == "auto":
            simulators, origin = max(agents, 2), "default: two simulators until a profile says that more pay"
    if agents > simulators:
        message = f"mapping `mp_dp` has {agents} agent GMIs for {simulators} simulator GMIs: some would have no work"
        raise _refused(workflow, message, "at most as many `agents` as `simulators`; `dp_mp` has as many")
    return (simulators, agents), origin


def _too_few(workflow: Workflow, total: int) -> str:
    return f"mapping `{workflow.target.mapping}` splits a workflow over two GMIs or more, and gmi_per_gpu = {total}"


def _refused(workflow: Workflow, message: str, note: str) -> DiagnosticError:
    return DiagnosticError(Diagnostic(code="E0501", message=message, span=workflow.target_span, notes=(note,)))
