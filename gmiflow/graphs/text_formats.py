"""Workflows as Mermaid and DOT text, for pages and tools that draw those."""

from __future__ import annotations

from html import escape

from gmiflow.graphs.colors import DARK, LIGHT
from gmiflow.graphs.diagram import Diagram, Link, Node, Training


def mermaid(diagram: Diagram) -> str:
    """A Mermaid flowchart. Node names carry the training's number, so that they are never Mermaid's own words."""
    lines = ["flowchart LR"]
    for index, training in enumerate(diagram.trainings):
        several = len(diagram.trainings) > 1
        pad = "    " if several else "  "
        lines += [f'  subgraph training_{index}["{_quoted(training.title)}"]'] if several else []
        for node in training.nodes:
            text = f"<b>{_quoted(node.name)}</b><br/>{_quoted(node.caption)}"
            lines.append(f'{pad}{_id(index, node.name)}["{text}"]:::{node.role}')
        lines += ["  end"] if several else []
        for link in training.links:
            arrow = f'-->|"{_quoted(_text(link))}"|'
            lines.append(f"  {_id(index, link.source)} {arrow} {_id(index, link.target)}")
    for role, colors in LIGHT.roles.items():
        lines.append(f"  classDef {role} fill:{colors.fill},stroke:{colors.stroke},color:{LIGHT.text}")
    return "\n".join(lines) + "\n"


def dot(diagram: Diagram) -> str:
    """A Graphviz digraph; every stage is a table whose rows are its ports."""
    lines = [
        f'digraph "{_dot_quoted(diagram.name)}" {{',
        "  rankdir = LR",
        f'  label = "{_dot_quoted(f"workflow {diagram.name}: {diagram.summary}")}"',
        '  labelloc = t; bgcolor = "transparent"; nodesep = 0.4; ranksep = 1.6',
        '  node [shape = plain, fontname = "Helvetica"]',
        f'  edge [fontname = "Courier", fontsize = 9, color = "{LIGHT.line}"]',
    ]
    for index, training in enumerate(diagram.trainings):
        lines += [
            f"  subgraph cluster_{index} {{",
            f'    label = "{_dot_quoted(training.title)}"; color = "{DARK.line}"',
        ]
        lines += [f"    {_id(index, node.name)} [label = <{_table(node, training)}>]" for node in training.nodes]
        lines.append("  }")
        for link in training.links:
            source = f'{_id(index, link.source)}:"out {link.source_port}"'
            target = f'{_id(index, link.target)}:"in {link.target_port}"'
            label = ", ".join((link.label, *link.notes))
            lines.append(f'  {source} -> {target} [label = "{_dot_quoted(label)}"]')
    return "\n".join([*lines, "}"]) + "\n"


def _table(node: Node, training: Training) -> str:
    colors = LIGHT.roles[node.role]
    ports = [("in", link.target_port) for link in training.links if link.target == node.name]
    ports += [("out", link.source_port) for link in training.links if link.source == node.name]
    ports += node.loose
    sides = {"in": "left", "out": "right"}
    rows = "".join(
        f'<tr><td port="{direction} {escape(name)}" align="{sides[direction]}">{escape(name)}</td></tr>'
        for direction, name in dict.fromkeys(ports)
    )
    title = f'<b>{escape(node.name)}</b><br/><font point-size="9">{escape(node.caption)}</font>'
    return (
        f'<table border="1" cellborder="0" cellspacing="2" color="{colors.stroke}" bgcolor="{colors.fill}">'
        f"<tr><td>{title}</td></tr>{rows}</table>"
    )


def _text(link: Link) -> str:
    return f"{link.ports}: {', '.join((link.label, *link.notes))}"


def _id(index: int, name: str) -> str:
    return f"stage_{index}_{name}"


def _quoted(text: str) -> str:
    """Text inside Mermaid's double quotes."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _dot_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
