"""Mapping pass: which roles share a GMI.

In: a checked `Workflow`. Out: a `MappedWorkflow` with one template and every other template with
the reason why it was not taken. Not in here: how many GMIs and where (`sizing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmiflow.diagnostics import Diagnostic, DiagnosticError, Label
from gmiflow.ir.mapped import MappedWorkflow, Rejected
from gmiflow.ir.workflow import Stage, Workflow, devices_text
from gmiflow.passes.placement import parting, torn
from gmiflow.passes.templates import SUPPORTED, TEMPLATES, groups_of
from gmiflow.plan import Role, Template
from gmiflow.profiles.defaults import PRIOR, REFERENCE
from gmiflow.profiles.model import (
    LINKS,
    Load,
    Projected,
    Roles,
    Sharing,
    default_roles,
    group_shares,
    rank,
    roles_from,
    templates_of,
)
from gmiflow.profiles.volumes import bytes_text, volumes_of

if TYPE_CHECKING:
    from gmiflow.profiles.workload import Measurement

LEAST_SHARE = 0.1
"""A group of GMIs gets at least about this part of a device: with less its latency counts, which R x T ignores."""

_WHY_NOT: dict[Template, str] = {
    "e_at": "agent and trainer of one GMI take turns there, and the simulator waits for actions meanwhile: "
    "experience and updates do not run side by side, which is what `async` is for (the paper decouples as `ea_t`)",
}
"""Why an `async` workflow is not split like this."""


def map_workflow(workflow: Workflow, unsliced: Measurement | None = None) -> MappedWorkflow:
    """Choose the mapping template.

    `auto` is `dp_only`: the model compares the others with it, but does not know enough to decide against it (R of
    a single role is not measured), and the runtime has to support them. Trainers that apply their gradients
    asynchronously share their parameters in `ea_t` alone, so for them `auto` is that. What `auto` is for stages on
    different devices has been decided before (`placement.part`).

    Args:
        workflow: checked.
        unsliced: measurement of the workflow with one GMI, for the times of the roles; else they are modelled.

    Raises:
        DiagnosticError: E0501 when the template asked for is not supported, does not fit the mode, or joins stages
            that `place` puts on different devices.
    """
    wished = workflow.target.mapping
    default: Template = "ea_t" if workflow.applies is not None else "dp_only"
    template = default if wished == "auto" else wished
    if template not in SUPPORTED[workflow.mode] or not _fits(template, workflow):
        raise DiagnosticError(_refusal(template, workflow))
    groups = groups_of(template, workflow)
    if stages := torn(groups, workflow):
        raise DiagnosticError(_tearing(template, workflow, stages))
    return MappedWorkflow(
        workflow=workflow,
        template=template,
        groups=groups,
        origin=_origin(workflow),
        rejected=_rejected(template, workflow, unsliced),
        shares=_shares(groups, workflow, unsliced),
    )


def _origin(workflow: Workflow) -> str:
    """Whether the template was given or chosen, and by what where the model had no say."""
    if workflow.parted:
        return f"chosen: the first that keeps apart what `place` puts apart: {parting(workflow)}"
    if workflow.target.mapping != "auto":
        return "given"
    if workflow.applies is not None:
        return "chosen: trainers that apply gradients one by one share their parameters in `ea_t`"
    return "chosen"


def _fits(template: Template, workflow: Workflow) -> bool:
    return template in templates_of(workflow.mode)


def _rejected(chosen: Template, workflow: Workflow, unsliced: Measurement | None) -> tuple[Rejected, ...]:
    """The other templates: those of the mode by falling throughput, then those of other modes."""
    roles, load = inputs(workflow, unsliced)
    ranking = rank(roles, load, LINKS[workflow.target.device], sharing_of(workflow))
    own = next(item for item in ranking if item.template == chosen)
    found = [
        Rejected(choice=item.template, reason=_reason(item, own, workflow, roles))
        for item in ranking
        if item.template != chosen
    ]
    others = [template for template in TEMPLATES if not _fits(template, workflow)]
    return *found, *(Rejected(choice=t, reason=f"`{t}` is not a template of {workflow.mode} workflows") for t in others)


def _shares(groups: Sequence[Sequence[Role]], workflow: Workflow, unsliced: Measurement | None) -> tuple[float, ...]:
    """Parts of a device for the groups of a split mapping: as given, or by their measured work.

    What is measured gives no group less than `LEAST_SHARE`.
    """
    if len(groups) == 1:
        return ()
    given = workflow.target.agent_share
    if given != "auto":
        return tuple(given if "agent" in group else (1 - given) / (len(groups) - 1) for group in groups)
    roles, _ = inputs(workflow, unsliced)
    if roles.origin_of_seconds != "measured":
        return ()
    wide = [max(LEAST_SHARE, share) for share in group_shares(groups, roles, sharing_of(workflow))]
    return tuple(share / sum(wide) for share in wide)


def inputs(workflow: Workflow, unsliced: Measurement | None) -> tuple[Roles, Load]:
    """What the model is given: measured times where there are any."""
    target, component = workflow.target, workflow.components[0]
    trainer = component.stage("trainer") is not None
    num_env = REFERENCE[target.device] if workflow.num_env == "auto" else workflow.num_env
    roles = None
    if unsliced is not None:
        roles = roles_from(unsliced, trainer=trainer, memory_bytes=target.memory_bytes)
        num_env = unsliced.point.num_env
    if roles is None:
        latency, alone, shared, _ = PRIOR[target.device]
        roles = default_roles(workflow.horizon * (latency + (alone + shared) * num_env), trainer=trainer)
    gmis = target.gmi_per_gpu if isinstance(target.gmi_per_gpu, int) else 1
    load = Load(
        mode=workflow.mode,
        volumes=volumes_of(component),
        steps=workflow.horizon,
        num_env=num_env,
        trainers=max(1, gmis * target.devices),
    )
    return roles, load


def sharing_of(workflow: Workflow) -> Sharing:
    """The alpha of `mp_dp`: agents for each simulator, as the target says; 1 where it does not, and in training."""
    target = workflow.target
    if workflow.mode != "serve" or target.simulators == "auto":
        return Sharing()
    agents = 1 if target.agents == "auto" else target.agents
    return Sharing(alpha=min(1.0, agents / target.simulators))


def _reason(item: Projected, own: Projected, workflow: Workflow, roles: Roles) -> str:
    """Why a template of the mode was not taken: the modelled number, what crosses, and whether it can run."""
    times = "measured" if roles.origin_of_seconds == "measured" else "default"
    clause = f"modelled at {item.rate / own.rate:.3f} times `{own.template}` from {times} times of the roles"
    more = item.com_bytes - own.com_bytes
    if more > 0:
        crossing = f"{bytes_text(more)} more cross between GMIs in an iteration"
        spent_s = item.com_s - own.com_s
        clause += f": {crossing}"
        clause += f", which takes {1e3 * spent_s:.2g} ms" if spent_s > 0 else ", but at fewer times"
    elif more < 0:
        clause += f": {bytes_text(-more)} less cross between GMIs in an iteration"
    clauses = [clause]
    if workflow.target.mapping != "auto" and not workflow.parted and own.template != "dp_only":
        clauses.insert(0, f"the target asks for `{own.template}`")
    if stages := torn(groups_of(item.template, workflow), workflow):
        clauses.insert(0, f"it joins {_apart(stages)}")
    elif workflow.parted and item.template in SUPPORTED[workflow.mode]:
        clauses.insert(0, f"it keeps to `place`, too, and `{own.template}` comes first")
    if item.template not in SUPPORTED[workflow.mode]:
        clauses.append(_WHY_NOT[item.template])
    return "; ".join(clauses)


def _apart(stages: tuple[Stage, Stage]) -> str:
    one, other = stages
    places = f"{devices_text(one.place or ())} and {devices_text(other.place or ())}"
    return f"`{one.name}` and `{other.name}`, and `place` puts them on {places}"


def _tearing(template: Template, workflow: Workflow, stages: tuple[Stage, Stage]) -> Diagnostic:
    one, other = stages
    able = SUPPORTED[workflow.mode]
    apart = [name for name in TEMPLATES if name in able and not torn(groups_of(name, workflow), workflow)]
    kept = f"{', '.join(f'`{name}`' for name in apart)} or `auto` {'keeps' if len(apart) < 2 else 'keep'} them apart"
    return Diagnostic(
        code="E0501",
        message=f"mapping `{template}` joins {_apart(stages)}",
        span=other.place_span or other.span,
        secondary=(
            Label(span=one.place_span or one.span, text="placed elsewhere"),
            *(
                (Label(span=workflow.target.said["mapping"], text="joined here"),)
                if "mapping" in workflow.target.said
                else ()
            ),
        ),
        notes=(kept,) if apart else (),
    )


def _refusal(template: Template, workflow: Workflow) -> Diagnostic:
    if not _fits(template, workflow):
        article = "an" if workflow.mode == "async" else "a"
        message = f"mapping `{template}` does not fit {article} {workflow.mode} workflow"
    else:
        message = f"mapping `{template}` is for sync workflows"
    reason = (_WHY_NOT[template],) if workflow.mode == "async" and template in _WHY_NOT else ()
    able = [name for name in templates_of(workflow.mode) if name in SUPPORTED[workflow.mode]]
    return Diagnostic(
        code="E0501",
        message=message,
        span=workflow.target_at("mapping"),
        notes=(
            *reason,
            f"{workflow.mode} workflows take {', '.join(f'`{name}`' for name in able)} or `auto`",
        ),
    )
