"""`gmiflow explain mapping`: every template with the terms of Eq. 1 to 3 of the paper, and what decided."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gmiflow.commands.durations import seconds
from gmiflow.commands.text_table import text_table
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.workflow import Workflow
from gmiflow.passes.mapping import inputs, sharing_of
from gmiflow.passes.placement import torn
from gmiflow.passes.templates import groups_of
from gmiflow.pipeline import Compilation
from gmiflow.plan import Template
from gmiflow.profiles.model import LINKS, Projected, Roles, rank
from gmiflow.profiles.volumes import bytes_text

TABLE_WIDTH = 140


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One template of the mode.

    Attributes:
        resource: R, part of a device.
        seconds: T, of one iteration without what crosses.
        com_bytes: COM, of one iteration.
        com_s: its time, with the latency of every crossing.
        rate: TOP, iterations per second of a whole device.
        relative: to the template that was taken.
        chosen: whether it was taken.
        term: what sets it apart from the template that was taken.
        reason: why it was not taken, by the compiler.
    """

    template: Template
    resource: float
    seconds: float
    com_bytes: float
    com_s: float
    rate: float
    relative: float
    chosen: bool
    term: str
    reason: str


def explained(compilation: Compilation, form: str) -> str:
    """The templates of a compilation as text or JSON."""
    mapped = compilation.mapped
    assert mapped is not None
    roles, lines = table(mapped, compilation)
    grounds = _grounds(compilation)
    if form == "json":
        return json.dumps(_data(mapped, roles, lines, grounds), indent=1, ensure_ascii=False) + "\n"
    return _text(mapped, roles, lines, grounds)


def table(mapped: MappedWorkflow, compilation: Compilation) -> tuple[Roles, tuple[Line, ...]]:
    """The costs of the roles, and the templates of the mode by falling throughput."""
    workflow = mapped.workflow
    unsliced = compilation.evidence.unsliced if compilation.evidence is not None else None
    roles, load = inputs(workflow, unsliced)
    ranking = rank(roles, load, LINKS[workflow.target.device], sharing_of(workflow))
    own = next(item for item in ranking if item.template == mapped.template)
    reasons = {item.choice: item.reason for item in mapped.rejected}
    lines = tuple(
        Line(
            template=item.template,
            resource=item.resource,
            seconds=roles.seconds(),
            com_bytes=item.com_bytes,
            com_s=item.com_s,
            rate=item.rate,
            relative=item.rate / own.rate,
            chosen=item.template == mapped.template,
            term=_term(item, own, workflow),
            reason=reasons.get(item.template, ""),
        )
        for item in ranking
    )
    return roles, lines


def _term(item: Projected, own: Projected, workflow: Workflow) -> str:
    """What sets a template apart from the one that was taken; nothing of the latter."""
    if item is own:
        return ""
    if stages := torn(groups_of(item.template, workflow), workflow):
        return f"place: `{stages[0].name}` and `{stages[1].name}` would share GMIs"
    return deciding_term(item, own)


def deciding_term(item: Projected, own: Projected) -> str:
    """Which factor of TOP = 1 / (R (T + COM / BW)) sets a template apart from another, with the numbers."""
    by_resource = math.log(own.resource / item.resource)
    by_time = math.log(own.seconds / item.seconds)
    if max(abs(by_resource), abs(by_time)) < 1e-9:
        return "nothing: the model cannot tell them apart"
    if abs(by_resource) > abs(by_time):
        return f"R: {item.resource:.2f} of a device, {own.resource:.2f} with {own.template}"
    return f"COM: {seconds(item.com_s)} of {seconds(item.seconds)}, {seconds(own.com_s)} with {own.template}"


def _grounds(compilation: Compilation) -> str:
    """What the times of the roles rest on."""
    evidence = compilation.evidence
    if evidence is None or evidence.unsliced is None or evidence.stored is None:
        defaults = "times of the roles are defaults (T_s = 6 T_a = 3 T_t, as in the paper's example)"
        return f"{defaults}; `gmiflow profile` measures"
    profile = evidence.stored.profile
    return f"times of the roles from {evidence.unsliced.point}, measured on {profile.key.processor}, {profile.date}"


def _text(mapped: MappedWorkflow, roles: Roles, lines: Sequence[Line], grounds: str) -> str:
    workflow = mapped.workflow
    times, resources = _mark(roles.origin_of_seconds), _mark(roles.origin_of_resources)
    costs = [[role, f"{cost.resource:.2f}", resources, seconds(cost.seconds), times] for role, cost in roles.present()]
    rows = [
        [
            "*" if line.chosen else "",
            line.template,
            f"{line.resource:.2f}",
            seconds(line.seconds),
            bytes_text(line.com_bytes),
            seconds(line.com_s),
            f"{line.rate:.3g}",
            f"{line.relative:.3f}x",
            "modelled",
            "chosen" if line.chosen else line.term,
        ]
        for line in lines
    ]
    others = [[item.choice, item.reason] for item in mapped.rejected if all(item.choice != x.template for x in lines)]
    parts = [
        [f"workflow {workflow.name}", f"  mapping {mapped.template} ({mapped.origin})", f"  {grounds}"],
        ["roles", *text_table(["", "R", "", "T", ""], costs, right="lrlrl")],
        [
            "templates: TOP = 1 / (R (T + COM / BW)) iterations/s of a whole device"
            + (", where all share one: `place` decides, not these numbers" if workflow.parted else ""),
            *text_table(
                ["", "", "R", "T", "COM", "COM/BW", "TOP", "", "", "what decides"], rows,
                right="llrrrrrrll", wrap=TABLE_WIDTH,
            ),
        ],
    ]  # fmt: skip
    reasons = [[line.template, line.reason] for line in lines if line.reason]
    parts.append(["not taken", *text_table(["", ""], [*reasons, *others], wrap=TABLE_WIDTH)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _data(mapped: MappedWorkflow, roles: Roles, lines: Sequence[Line], grounds: str) -> dict[str, Any]:
    return {
        "workflow": mapped.workflow.name,
        "mapping": mapped.template,
        "origin": mapped.origin,
        "groups": mapped.groups,
        "grounds": grounds,
        "roles": {
            role: {
                "resource": cost.resource,
                "resource_mark": _mark(roles.origin_of_resources),
                "seconds": cost.seconds,
                "seconds_mark": _mark(roles.origin_of_seconds),
            }
            for role, cost in roles.present()
        },
        "templates": [{**asdict(line), "mark": "modelled"} for line in lines],
        "rejected": [asdict(item) for item in mapped.rejected],
    }


def _mark(origin: str) -> str:
    """What `explain` measured before is cached."""
    return "cached" if origin == "measured" else "modelled"
