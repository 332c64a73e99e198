"""Invariants of each intermediate representation, checked after every pass.

A failure here is a defect of the compiler, never of the user's file, so these are assertions with a text.
"""

from __future__ import annotations

from gmiflow.ir.comm import CommWorkflow
from gmiflow.ir.mapped import MappedWorkflow
from gmiflow.ir.sized import SizedWorkflow
from gmiflow.ir.workflow import Workflow


class VerificationError(AssertionError):
    """A pass broke an invariant of the representation that it returned."""


def verify_workflow(workflow: Workflow) -> None:
    """Every edge joins existing ports, out to in, and every required input has exactly one driver."""
    for component in workflow.components:
        stages = {stage.name: stage for stage in component.stages}
        ports = {(stage.name, port.name): port for stage in component.stages for port in stage.ports}
        driven: set[tuple[str, str]] = set()
        for edge in component.edges:
            source, target = (edge.source_stage, edge.source_port), (edge.target_stage, edge.target_port)
            _require(source in ports and ports[source].direction == "out", f"edge from {source}")
            _require(target in ports and ports[target].direction == "in", f"edge to {target}")
            _require(target not in driven, f"{target} is driven twice")
            driven.add(target)
        required = {key for key, port in ports.items() if port.direction == "in" and not port.optional}
        _require(required <= driven, f"undriven inputs {sorted(required - driven)}")
        roles = [stage.role for stage in stages.values()]
        _require(len(roles) == len(set(roles)), f"component {component.name} has a role twice")


def verify_mapped(mapped: MappedWorkflow) -> None:
    """Every role of the workflow stands in exactly one group."""
    placed = [role for group in mapped.groups for role in group]
    present = {stage.role for component in mapped.workflow.components for stage in component.stages}
    _require(len(placed) == len(set(placed)) and set(placed) == present, f"groups {mapped.groups}")


def verify_sized(sized: SizedWorkflow) -> None:
    """The slices of every component cover its environments once, in order, in whole strata."""
    for component in sized.mapped.workflow.components:
        for group in sized.mapped.groups:
            parts = [s for s in sized.slices if s.component == component.name and s.group == group]
            expected = 0
            for part in parts:
                _require(part.env_offset == expected, f"{component.name}: gap at environment {expected}")
                _require(part.num_env > 0 and part.num_env % sized.stratum == 0, f"{component.name}: broken stratum")
                expected += part.num_env
            _require(expected == sized.num_env, f"{component.name}: {expected} of {sized.num_env} environments")


def verify_comm(comm: CommWorkflow) -> None:
    """Members exist and hold the trainer, and every component with several trainers has a collective."""
    slices = comm.sized.slices
    for group in comm.collectives:
        _require(len(set(group.members)) == len(group.members) > 1, f"members of {group.name}")
        _require(all("trainer" in slices[m].group for m in group.members), f"{group.name} without trainer")
    for component in comm.sized.mapped.workflow.components:
        trainers = [s for s in slices if s.component == component.name and "trainer" in s.group]
        joined = any(group.component == component.name for group in (*comm.collectives, *comm.applied))
        _require(len(trainers) < 2 or joined, f"{component.name} has trainers that neither reduce nor share")
    for index, part in enumerate(slices):
        if "trainer" in part.group and "agent" not in part.group:
            _verify_channels(comm, index)
        elif "simulator" in part.group and "agent" not in part.group:
            _verify_steps(comm, index)


def _verify_channels(comm: CommWorkflow, consumer: int) -> None:
    """The channels into a trainer without an agent bring every environment once, from the slices that run it."""
    slices = comm.sized.slices
    whole = slices[consumer]
    covered: list[int] = []
    for channel in comm.channels:
        if channel.consumer != consumer:
            continue
        _require(len(channel.producers) > 0, f"{channel.name} has no producer")
        first, last = channel.env_offset, channel.env_offset + channel.num_env
        for producer in channel.producers:
            part = slices[producer]
            _require(part.component == whole.component and "agent" in part.group, f"producers of {channel.name}")
            covered += range(max(part.env_offset, first), min(part.env_offset + part.num_env, last))
    wanted = list(range(whole.env_offset, whole.env_offset + whole.num_env))
    _require(sorted(covered) == wanted, f"the channels into slice {consumer} do not bring its environments")


def _verify_steps(comm: CommWorkflow, producer: int) -> None:
    """A slice that simulates alone has one channel, to a slice that acts for all of its environments."""
    part = comm.sized.slices[producer]
    found = [channel for channel in comm.channels if producer in channel.producers]
    _require(len(found) == 1, f"slice {producer} has {len(found)} channels")
    channel, agent = found[0], comm.sized.slices[found[0].consumer]
    _require(channel.producers == (producer,) and "agent" in agent.group, f"members of {channel.name}")
    _require((channel.env_offset, channel.num_env) == (part.env_offset, part.num_env), f"range of {channel.name}")
    inside = agent.env_offset <= part.env_offset and part.env_offset + part.num_env <= agent.env_offset + agent.num_env
    _require(inside and agent.component == part.component, f"{channel.name} leads to an agent for others")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise VerificationError(message)
