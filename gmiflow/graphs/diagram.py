"""What every picture of a workflow shows: trainings, their stages, and one link per edge."""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.ir.workflow import Component, Edge, PortType, RecordType, Stage, TensorType, Workflow, devices_text
from gmiflow.plan import Role

ROLES: tuple[Role, ...] = ("simulator", "agent", "trainer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A stage.

    Attributes:
        loose: its ports that no edge uses: direction and name.
        devices: where `place` puts it, in words; "" where it says nothing.
    """

    name: str
    role: Role
    type_name: str
    loose: tuple[tuple[str, str], ...]
    devices: str = ""

    @property
    def caption(self) -> str:
        """What stands below the name."""
        return f"{self.role} {self.type_name}" + (f", {self.devices}" if self.devices else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """An edge: ``label`` is the type at its source, ``notes`` what happens on the way."""

    source: str
    source_port: str
    target: str
    target_port: str
    label: str
    notes: tuple[str, ...]

    @property
    def ports(self) -> str:
        """The port's name, or both where they differ."""
        same = self.source_port == self.target_port
        return self.source_port if same else f"{self.source_port} \N{RIGHTWARDS ARROW} {self.target_port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """A connected component; replicas of it are one, with several seeds.

    Attributes:
        records: the record types on its edges, name and fields.
    """

    title: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    records: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagram:
    """A workflow."""

    name: str
    summary: str
    trainings: tuple[Training, ...]


def diagram(workflow: Workflow) -> Diagram:
    """The picture's content, in the order of the file."""
    same: dict[tuple[str, ...], list[Component]] = {}
    for component in workflow.components:
        same.setdefault(tuple(stage.name for stage in component.stages), []).append(component)
    return Diagram(
        name=workflow.name,
        summary=_summary(workflow),
        trainings=tuple(_training(workflow, components) for components in same.values()),
    )


def _summary(workflow: Workflow) -> str:
    mode = workflow.mode if workflow.mode != "async" else f"async, at most {workflow.max_staleness} versions behind"
    parts = [mode, f"num_env {workflow.num_env}"]
    parts += [f"horizon {workflow.horizon}"] if workflow.mode != "serve" else []
    target = workflow.target
    device = f"{target.devices} x {target.gpu}" if target.device == "cuda" else "CPU"
    return " \N{MIDDLE DOT} ".join([*parts, f"target {target.name} ({device})"])


def _training(workflow: Workflow, components: list[Component]) -> Training:
    first = components[0]
    records = {
        edge.type.name: tuple((name, str(kind)) for name, kind in edge.type.fields)
        for edge in first.edges
        if isinstance(edge.type, RecordType)
    }
    seeds = f"seed {first.seed}" if len(components) == 1 else f"seeds {first.seed} to {components[-1].seed}"
    return Training(
        title=f"{first.name}, {seeds}",
        nodes=tuple(_node(stage, first) for role in ROLES for stage in first.stages if stage.role == role),
        links=tuple(_link(edge, workflow.horizon) for edge in first.edges),
        records=tuple(records.items()),
    )


def _node(stage: Stage, component: Component) -> Node:
    used = {(edge.source_stage, edge.source_port) for edge in component.edges}
    used |= {(edge.target_stage, edge.target_port) for edge in component.edges}
    loose = tuple((port.direction, port.name) for port in stage.ports if (stage.name, port.name) not in used)
    devices = devices_text(stage.place) if stage.place else ""
    return Node(name=stage.name, role=stage.role, type_name=stage.type_name, loose=loose, devices=devices)


def _link(edge: Edge, horizon: int) -> Link:
    notes = [f"{horizon} steps"] if edge.lift else []
    notes += [f"depth {edge.depth}"] if edge.depth != 1 else []
    notes += ["drops oldest"] if edge.on_full == "drop_oldest" else []
    return Link(
        source=edge.source_stage, source_port=edge.source_port, target=edge.target_stage, target_port=edge.target_port,
        label=_label(edge.type), notes=tuple(notes),
    )  # fmt: skip


def _label(kind: PortType) -> str:
    if isinstance(kind, RecordType):
        return kind.name
    return str(kind) if isinstance(kind, TensorType) else "weights"
