"""How many GMIs simulate alone and how many act, where the mapping parts the two; where it does not, see `groups`.

One for one with `dp_mp`, and with `e_at`, whose second trains too. With `mp_dp`, in serving, a few act for many that
simulate.
"""

from __future__ import annotations

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.groups import one_per_core, require_agents, share_of_cores
from gmiflow.profiles.pairs import beside_pairs, leaves_pairs, stated_pairs

__all__ = ["simulator_groups"]


def simulator_groups(mapped: MappedWorkflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, ...]:
    """GMIs of each group on one device: that simulate, that act, and with `dp_mp` in training that train.

    Args:
        mapped: with a group that has the simulator alone.
        cores: CPU cores that the plan may use.
        origins: what was decided is added.

    Raises:
        DiagnosticError: E0501 when the numbers of the target do not go together.
    """
    workflow = mapped.workflow
    if mapped.template == "mp_dp":
        sizes, origin = _pools(workflow, cores)
    else:
        pairs, origin = _pairs(workflow, cores)
        apart = beside_pairs(workflow)
        require_agents(workflow, pairs, apart)
        sizes = (pairs, pairs, apart) if apart else (pairs, pairs)
    origins.append(("gmi_per_gpu", origin))
    return sizes


def _pairs(workflow: Workflow, cores: int) -> tuple[int, str]:
    """Pairs of a simulator's GMI and its agent's, and where the number comes from."""
    target, apart = workflow.target, beside_pairs(workflow)
    if not leaves_pairs(workflow):
        assert target.gmi_per_gpu != "auto"
        raise _unpaired(workflow, target.gmi_per_gpu, apart)
    stated = stated_pairs(workflow)
    if len(set(stated.values())) > 1:
        note = f"give one of `gmi_per_gpu`, `simulators` and `agents`{_or_instead(workflow)}"
        second = "agent GMIs, which train too" if target.mapping == "e_at" else "agent GMIs"
        message = f"mapping `{target.mapping}` has as many simulator as {second}, unlike {' and '.join(stated)}"
        raise _refused(workflow, message, note)
    if stated:
        others = [text for text in stated if not text.startswith("gmi_per_gpu")]
        return next(iter(stated.values())), f"given by {' and '.join(stated)}" if others else "given"
    if workflow.applies is not None and not apart:
        return 1, "default: gradients that are applied without waiting leave room for one trainer beside an agent"
    least = apart if workflow.applies is not None else 1
    if target.device == "cpu":
        return max(least, (share_of_cores(workflow, cores) - apart) // 2), one_per_core(cores)
    return least, "default: one pair until a profile says that more pay"


def _unpaired(workflow: Workflow, total: int, apart: int) -> DiagnosticError:
    """The GMIs of a device are no pairs."""
    paired = f"mapping `{workflow.target.mapping}` pairs simulator and agent GMIs"
    note = f"{_nearest(workflow, total, apart)}{_or_instead(workflow)}, `dp_only` needs no pairs"
    if not apart:
        return _refused(workflow, f"{paired}, and gmi_per_gpu = {total} is odd", note)
    beside = f"{paired} beside {apart} that train{'s' if apart == 1 else ''}"
    return _refused(workflow, f"{beside}, and gmi_per_gpu = {total} leaves {max(0, total - apart)} for them", note)


def _nearest(workflow: Workflow, total: int, apart: int) -> str:
    """What to write instead: the number that the other numbers of the target give, or the nearest that leave pairs."""
    target = workflow.target
    stated = [(name, count) for name, count in (("simulators", target.simulators), ("agents", target.agents))]
    for name, count in stated:
        if isinstance(count, int):
            return f"`{name} = {count}` gives gmi_per_gpu = {2 * count + apart}, which need not be said"
    least = apart + 2
    below = total - 1 if total > least else None
    numbers = [number for number in (below, max(least, total + 1)) if number is not None]
    return f"nearest legal numbers: gmi_per_gpu = {' or '.join(map(str, numbers))}"


def _or_instead(workflow: Workflow) -> str:
    """The mapping that needs no pairs and is the next best."""
    if workflow.mode == "serve":
        return "; `mapping = mp_dp` lets simulators share an agent"
    return "; `mapping = ea_t` leaves simulator and agent together"


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
    span = workflow.target_at("gmi_per_gpu", "agents", "simulators", "trainers")
    return DiagnosticError(Diagnostic(code="E0501", message=message, span=span, notes=(note,)))
