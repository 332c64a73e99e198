"""How many GMIs collect and how many train, where the mapping splits agent and trainer."""

from __future__ import annotations

from collections.abc import Sequence

from gmiflow.diagnostics import Diagnostic, DiagnosticError
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Component, Target, Workflow
from gmiflow.profiles.defaults import MAX_SEARCHED_GMIS

__all__ = [
    "one_per_core",
    "require_agents",
    "require_one_policy",
    "share_of_cores",
    "split_groups",
    "stated_groups",
]


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
        DiagnosticError: E0501 when the numbers that are given do not add up, or trainers that apply their gradients
            by themselves are more than the agents.
    """
    agents, trainers = _split_groups(workflow, cores, origins)
    require_agents(workflow, agents, trainers)
    return agents, trainers


def require_agents(workflow: Workflow, agents: int, trainers: int) -> None:
    """Raise E0501 when trainers that apply their gradients by themselves are more than the GMIs that collect."""
    applying = workflow.applies
    if applying is not None and agents < trainers:
        raise DiagnosticError(_without_agents(applying, agents, trainers))


def _split_groups(workflow: Workflow, cores: int, origins: list[tuple[str, str]]) -> tuple[int, int]:
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
        origins.append(("gmi_per_gpu", one_per_core(cores)))
        least = trainers if workflow.applies is not None else 1
        return max(least, share_of_cores(workflow, cores) - trainers), trainers
    if workflow.applies is not None:
        origins.append(("gmi_per_gpu", "default: one GMI that collects for each that trains"))
        return trainers, trainers
    origins.append(("gmi_per_gpu", "default: one GMI that collects until a profile says that more pay"))
    return 1, trainers


def share_of_cores(workflow: Workflow, cores: int) -> int:
    """GMIs of one training when every core gets one."""
    return min(cores, MAX_SEARCHED_GMIS) // len(workflow.components)


def one_per_core(cores: int) -> str:
    """The origin of a number of GMIs that `share_of_cores` gives."""
    return f"default: one GMI per core ({cores} cores), two at least"


def _uneven(workflow: Workflow, total: int, agents: int, trainers: int) -> Diagnostic:
    """The groups of a split mapping do not add up."""
    if total < 2:
        message = (
            f"mapping `{workflow.target.mapping}` splits a training over two GMIs or more, and gmi_per_gpu = {total}"
        )
    else:
        message = f"{max(agents, 0)} agents and {max(trainers, 0)} trainers are not the {total} GMIs of a device"
    notes = ["give two of `gmi_per_gpu`, `agents` and `trainers`; the third follows, and one trainer is the default"]
    if workflow.parted:
        notes.insert(0, "`place` parts agents and trainers: `gmi_per_gpu` counts those of a device of either together")
    span = workflow.target_at("gmi_per_gpu")
    return Diagnostic(code="E0501", message=message, span=span, notes=tuple(notes))


def _without_agents(component: Component, agents: int, trainers: int) -> Diagnostic:
    """Some trainer would have no agent of its own."""
    trainer = component.stage("trainer")
    assert trainer is not None
    return Diagnostic(
        code="E0501",
        message=f"{trainers} trainers that each apply gradients of their own agents need as many, not {agents}",
        span=trainer.span,
        notes=(
            f"`{trainer.type_name}` has `update = apply`: a trainer takes the rollouts of its agents alone",
            f"give `agents = {trainers}` or more, or fewer trainers",
        ),
    )


def require_one_policy(
    mapped: MappedWorkflow, component: Component, sizes: Sequence[int], devices: Sequence[Sequence[int]]
) -> None:
    """Trainers that share their GMIs with the agent have a policy of their own each, unless gradients are reduced.

    Args:
        mapped: of the component.
        component: to look at.
        sizes: GMIs of each group on one of its devices.
        devices: of each group.

    Raises:
        DiagnosticError: E0501 when several GMIs act and train, and apply their gradients by themselves.
    """
    trainer = component.stage("trainer")
    if trainer is None or component.update != "apply":
        return
    index = next(number for number, group in enumerate(mapped.groups) if "trainer" in group)
    count = sizes[index] * len(devices[index])
    if "agent" not in mapped.groups[index] or count == 1:
        return
    what, one = ("with all roles", "one GMI") if len(mapped.groups) == 1 else ("that act and train", "one pair of GMIs")
    problem = Diagnostic(
        code="E0501",
        message=f"{count} GMIs {what} would each train a policy of its own",
        span=trainer.span,
        notes=(
            f"`{trainer.type_name}` has `update = apply`: its gradients are not reduced",
            f"`mapping = ea_t` shares the policy among trainers; `{mapped.template}` takes {one}",
        ),
    )
    raise DiagnosticError(problem)
