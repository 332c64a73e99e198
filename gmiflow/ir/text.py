"""Deterministic text of every intermediate representation, for `--emit` and the golden tests."""

from __future__ import annotations

from gmiflow.ir.comm import Applied, Candidate, Channel, CommWorkflow
from gmiflow.ir.mapped import MappedWorkflow, Rejected
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Component, PortType, RecordType, Value, Workflow


def workflow_text(workflow: Workflow) -> str:
    """The checked workflow: settings, target, and each component's stages and edges."""
    mode: str = workflow.mode
    mode += f" {{ max_staleness = {workflow.max_staleness} }}" if mode == "async" else ""
    mode += " { deterministic = true }" if workflow.deterministic else ""
    target = workflow.target
    lines = [
        f"workflow {workflow.name}",
        f"  mode = {mode}",
        f"  num_env = {workflow.num_env}, horizon = {workflow.horizon}, iterations = {workflow.iterations}",
        f"  seed = {workflow.seed}, precision = {workflow.precision}, execution = {workflow.execution}",
        f"  sizing = {workflow.sizing.objective}, batch {workflow.sizing.batch}; on_failure = {workflow.on_failure}",
        f"  target {target.name}: {target.devices} x {target.gpu or target.device}, backend = {target.backend}, "
        f"gmi_per_gpu = {target.gmi_per_gpu}, mapping = {target.mapping}",
    ]
    lines += [f"  param {name} = {_value(value)} ({origin})" for name, value, origin in workflow.params]
    for component in workflow.components:
        lines += _component(component)
    return _join(lines)


def mapping_text(mapped: MappedWorkflow) -> str:
    """The mapping template, the roles of each GMI, and the rejected templates with their reasons."""
    lines = [f"workflow {mapped.workflow.name}", f"  mapping {mapped.template} ({mapped.origin})"]
    parts = [f" ({100 * share:.0f} % of a device)" for share in mapped.shares] or [""] * len(mapped.groups)
    lines += [f"    gmi: {', '.join(group)}{part}" for group, part in zip(mapped.groups, parts, strict=True)]
    return _join(lines + _rejected(mapped.rejected))


def sizing_text(sized: SizedWorkflow) -> str:
    """The sizes, where each came from, and the slice of every GMI."""
    origins = dict(sized.origins)
    lines = [
        f"workflow {sized.mapped.workflow.name}",
        f"  num_env {sized.num_env} ({origins['num_env']}), strata of {sized.stratum}",
        f"  gmi_per_gpu {sized.gmi_per_gpu} ({origins['gmi_per_gpu']})",
        f"  execution {sized.execution} ({origins['execution']})",
        f"  backend {sized.backend} ({origins['backend']})",
    ]
    lines += [f"  joint {sized.joint} ({origins['joint']})"] if "joint" in origins else []
    if (found := sized.prediction) is not None:
        between = f"{found.steps_per_s_low:,.0f} to {found.steps_per_s_high:,.0f}"
        lines.append(f"  expected {found.steps_per_s:,.0f} steps/s ({found.origin}, {between})")
    lines += [
        f"  gmi {index}: {part.component} [{', '.join(part.group)}] "
        f"env {part.env_offset}..{part.env_offset + part.num_env} "
        f"device {part.device} share {part.share:.4g} cores {part.cores} threads {part.threads}"
        + (f" in the process of gmi {part.host}" if part.host is not None else "")
        + (f" with the simulator of gmi {part.joint}" if part.joint is not None else "")
        for index, part in enumerate(sized.slices)
    ]
    return _join(lines + _rejected(sized.rejected))


def comm_text(comm: CommWorkflow) -> str:
    """Every collective: its members, and all compositions with projected times and why they were not taken."""
    lines = [f"workflow {comm.sized.mapped.workflow.name}"]
    for group in comm.collectives:
        lines.append(f"  collective {group.name}: {group.kind} among GMIs {', '.join(map(str, group.members))}")
        lines.append(f"    about {group.bytes:,} bytes per call ({group.bytes_origin}); times {group.profile}")
        lines.append(f"    {'microseconds':<14} {'published':>11} {'corrected':>11}")
        lines += [_candidate(candidate) for candidate in group.candidates]
    for shared in comm.applied:
        lines += _applied(shared)
    for channel in comm.channels:
        lines += _steps(channel) if channel.carries == "step" else _channel(channel)
    if not comm.collectives:
        reason = "gradients are applied one by one, not reduced" if comm.applied else "no trainer has replicas"
        lines.append(f"  no collective: {reason}")
    return _join(lines)


def _applied(shared: Applied) -> list[str]:
    """Who shares parameters, and how many rollouts the bound on staleness leaves room for."""
    trainers = len(shared.members)
    room = f"at most {shared.at_once} under way at once"
    tight = " (fewer than trainers: some wait)" if shared.at_once < trainers else ""
    noun = f"GMIs {', '.join(map(str, shared.members))}" if trainers > 1 else f"GMI {shared.members[0]}"
    return [
        f"  parameters {shared.name}: host memory shared by {noun}; each applies its own gradients, one at a time",
        f"    about {shared.bytes:,} bytes per gradient ({shared.bytes_origin}); rollouts: {room}{tight}",
    ]


def _channel(channel: Channel) -> list[str]:
    """A channel: who feeds whom with what, and what moves together."""
    producers = ", ".join(map(str, channel.producers))
    last = channel.env_offset + channel.num_env
    return [
        f"  channel {channel.name}: {channel.kind} from GMI{'s' if len(channel.producers) > 1 else ''} {producers} to "
        f"GMI {channel.consumer}, depth {channel.depth}, on_full {channel.on_full}",
        f"    {channel.bytes:,} bytes per rollout of env {channel.env_offset}..{last}, in {len(channel.groups)} groups "
        f"(TOP_mov {channel.top_mov:,.0f} bytes)",
        *(f"      {', '.join(group)}" for group in channel.groups),
        *_by_host(channel),
    ]


def _steps(channel: Channel) -> list[str]:
    """A channel that carries steps: who simulates for whom, and what goes there and back in every step."""
    there, back = channel.groups
    last = channel.env_offset + channel.num_env
    return [
        f"  channel {channel.name}: {channel.kind} between GMI {channel.producers[0]} and GMI {channel.consumer}",
        f"    {channel.bytes:,} bytes per step of env {channel.env_offset}..{last}: "
        f"{', '.join(there)} there, {', '.join(back)} back",
        *_by_host(channel),
    ]


def _by_host(channel: Channel) -> list[str]:
    return [f"    by the host: {channel.reason}"] if channel.reason else []


def _candidate(candidate: Candidate) -> str:
    """One line of the table of a collective."""
    times = [
        f"{t * 1e6:>11.1f}" if t is not None else f"{'-':>11}" for t in (candidate.published_s, candidate.corrected_s)
    ]
    mark = candidate.origin if candidate.corrected_s is not None else "-"
    verdict = f"not taken: {candidate.reason}" if candidate.reason else "chosen"
    return f"    {candidate.name:<14} {times[0]} {times[1]}  {mark:<8}  {verdict}"


def type_text(kind: PortType) -> str:
    """A port type on one line."""
    if isinstance(kind, RecordType):
        return f"{kind.name} {{ {', '.join(f'{name}: {field}' for name, field in kind.fields)} }}"
    return str(kind)


def _component(component: Component) -> list[str]:
    lines = [f"  component {component.name}, seed {component.seed}"]
    for stage in component.stages:
        lines.append(f"    {stage.role} {stage.name} = {stage.type_name}  entry {stage.entry}")
        lines += [f"      {name} = {_value(value)}" for name, value in stage.params]
        lines += [f"      needs {name} = {_value(value)}" for name, value in stage.needs]
        lines += [f"      placed on devices {', '.join(map(str, stage.place))}"] if stage.place else []
        lines += [f"      python {stage.python}"] if stage.python else []
        lines += [f"      update {stage.update}"] if stage.update != "reduce" else []
        lines += [
            f"      {port.direction} {port.name}: {type_text(port.type)}"
            + (f" range {port.range[0]:g} .. {port.range[1]:g}" if port.range else "")
            + (" optional" if port.optional else "")
            for port in stage.ports
        ]
    for edge in component.edges:
        lift = ", stacked over time" if edge.lift else ""
        channel = f", depth {edge.depth}, on_full {edge.on_full}" if (edge.depth, edge.on_full) != (1, "block") else ""
        lines.append(
            f"    {edge.source_stage}.{edge.source_port} -> {edge.target_stage}.{edge.target_port}: "
            f"{type_text(edge.type)}{lift}{channel}"
        )
    return lines


def _rejected(rejected: tuple[Rejected, ...]) -> list[str]:
    return [f"  not {item.choice}: {item.reason}" for item in rejected]


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
