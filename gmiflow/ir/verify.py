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
        reduced = any(group.component == component.name for group in comm.collectives)
        _require(len(trainers) < 2 or reduced, f"{component.name} has trainers that do not reduce")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise VerificationError(message)
