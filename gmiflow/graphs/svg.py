"""Workflows as SVG, drawn by us, so that a picture needs no other program and is the same everywhere.

The roles are layers from left to right. Every link has a lane of its own: a horizontal line between the two stages,
below the stages in between, which end above it. So no line ever crosses another or a stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from gmiflow.graphs.diagram import Diagram, Link, Node, Training
from gmiflow.graphs.page import document, text

MARGIN = 28
HEADER_HEIGHT = 62
BAND_HEIGHT = 48
LANE_HEIGHT = 38
BOX_PADDING = 2
STAGE_CLEARANCE = 0.35
"""Further lane heights between the end of a stage and the first lane below it."""
TRAINING_GAP = 40
RECORD_GAP = 20
RECORD_LINE = 18
LOOSE_HEIGHT = 20
LOOSE_PADDING = 10
CAPTION_HEIGHT = 24
CHARACTER = 7.25
"""Width of a character of the 12 px monospace font of ports and types."""
SMALL_CHARACTER = 6.7
"""Width of a character of the 11 px monospace font of types on lines."""
DOT = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class _Box:
    node: Node
    left: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lane:
    """A link and its row, counted from the top."""

    link: Link
    row: float

    def port(self, name: str) -> str | None:
        """The port at a stage, or None when the link does not touch it."""
        link = self.link
        return link.source_port if link.source == name else link.target_port if link.target == name else None


def svg(diagram: Diagram) -> str:
    """The picture as an SVG document that follows the reader's light or dark theme."""
    parts: list[str] = []
    top, width = float(MARGIN + HEADER_HEIGHT), 0.0
    for training in diagram.trainings:
        if len(diagram.trainings) > 1:
            parts.append(text(MARGIN, top + 12, training.title, "faint"))
            top += CAPTION_HEIGHT
        drawn, right, bottom = _training(training, top)
        parts += drawn
        width, top = max(width, right), bottom + RECORD_GAP
        for name, fields in training.records:
            for line in _record_lines(name, fields, max(right - MARGIN, 560)):
                parts.append(text(MARGIN, top + 8, line, "type"))
                top += RECORD_LINE
        top += TRAINING_GAP - RECORD_GAP
    title = f"workflow {diagram.name}"
    width = max(width, MARGIN + SMALL_CHARACTER * len(diagram.summary)) + MARGIN
    height = top - TRAINING_GAP + MARGIN
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="11" '
        'orient="auto-start-reverse"><path class="head" d="M0 0.5 L8 4 L0 7.5 Z"/></marker></defs>'
    )
    heading = [text(MARGIN, MARGIN + 14, title, "title"), text(MARGIN, MARGIN + 35, diagram.summary, "faint")]
    return document(title, width, height, [*heading, *parts], definitions=arrow)


def _training(training: Training, top: float) -> tuple[list[str], float, float]:
    """One training below ``top``: its elements, right end and bottom."""
    lanes = _lanes(training)
    boxes = _boxes(training, lanes)
    first_lane = top + BAND_HEIGHT + LANE_HEIGHT / 2 + 4
    parts: list[str] = []
    for lane in lanes:
        parts += _line(lane.link, boxes, first_lane + lane.row * LANE_HEIGHT)
    for box in boxes.values():
        parts += _stage(box, top)
        parts += _ports(box, lanes, boxes, first_lane)
    bottom = top + max(box.height for box in boxes.values())
    return parts, max(box.right for box in boxes.values()), bottom


def _lanes(training: Training) -> list[_Lane]:
    """The links with their rows: each below those between the same stages, a long one below what it passes."""
    layer = {node.name: index for index, node in enumerate(training.nodes)}
    lanes: list[_Lane] = []

    def gaps(link: Link) -> range:
        ends = sorted((layer[link.source], layer[link.target]))
        return range(*ends)

    for link in sorted(training.links, key=lambda link: len(gaps(link))):
        taken = [lane.row for lane in lanes if set(gaps(lane.link)) & set(gaps(link))]
        below_stage = len(gaps(link)) > 1 and all(len(gaps(lane.link)) == 1 for lane in lanes)
        lanes.append(_Lane(link=link, row=max(taken, default=-1) + (1 + STAGE_CLEARANCE if below_stage else 1)))
    return lanes


def _boxes(training: Training, lanes: list[_Lane]) -> dict[str, _Box]:
    boxes: dict[str, _Box] = {}
    left = float(MARGIN)
    for index, node in enumerate(training.nodes):
        names = [port for lane in lanes if (port := lane.port(node.name))]
        names += [f"{name} unused" for _, name in node.loose]
        widest = max((len(name) for name in names), default=0)
        # Ports may face each other on the two sides of one stage.
        both = 2 if 0 < index < len(training.nodes) - 1 else 1
        text = max(
            both * widest * CHARACTER + 60,
            8.2 * len(node.name) + 50,
            CHARACTER * (len(node.caption) - len(node.role)) + 44,
        )
        loose = len(node.loose) * LOOSE_HEIGHT + LOOSE_PADDING if node.loose else 0
        height = BAND_HEIGHT + _rows(node, lanes) * LANE_HEIGHT + loose + BOX_PADDING
        boxes[node.name] = _Box(node=node, left=left, width=max(150.0, text), height=height)
        left = boxes[node.name].right + _gap(training, lanes, index)
    return boxes


def _gap(training: Training, lanes: list[_Lane], index: int) -> float:
    """Room right of a stage: the longest label between it and the next one."""
    pair = {node.name for node in training.nodes[index : index + 2]}
    labels = [_label(lane.link) for lane in lanes if {lane.link.source, lane.link.target} == pair]
    return max((len(label) for label in labels), default=8) * SMALL_CHARACTER + 56


def _line(link: Link, boxes: dict[str, _Box], y: float) -> list[str]:
    source, target = boxes[link.source], boxes[link.target]
    forward = source.left < target.left
    start = source.right + DOT if forward else source.left - DOT
    end = target.left - DOT - 2 if forward else target.right + DOT + 2
    middle = (start + end) / 2
    kind = "step" if link.notes else "plain"
    name = f"{link.source}.{link.source_port} -> {link.target}.{link.target_port}"
    return [
        f"<g><title>{escape(name)}: {escape(_label(link))}</title>",
        f'<path class="line {kind}" d="M{start:g} {y:g} H{end:g}" marker-end="url(#arrow)"/>',
        text(middle, y - 7, _label(link), "type", anchor="middle") + "</g>",
    ]


def _stage(box: _Box, top: float) -> list[str]:
    node = box.node
    left, right = f"{box.left:g}", f"{box.right:g}"
    middle = box.left + box.width / 2
    band = (
        f"M{left} {top + BAND_HEIGHT:g} V{top + 10:g} q0 -10 10 -10 H{box.right - 10:g} q10 0 10 10 "
        f"V{top + BAND_HEIGHT:g} Z"
    )
    frame = f'x="{left}" y="{top:g}" width="{box.width:g}" height="{box.height:g}" rx="10"'
    return [
        f'<rect class="{node.role} box" {frame}/>',
        f'<path class="{node.role} band" d="{band}"/>',
        f'<path class="{node.role} rule" d="M{left} {top + BAND_HEIGHT:g} H{right}"/>',
        f'<rect class="{node.role} frame" {frame}/>',
        text(middle, top + 21, node.name, "name", anchor="middle"),
        text(middle, top + 38, node.caption, "faint small", anchor="middle"),
    ]


def _ports(box: _Box, lanes: list[_Lane], boxes: dict[str, _Box], first_lane: float) -> list[str]:
    parts: list[str] = []
    for lane in lanes:
        name = lane.port(box.node.name)
        if name is not None:
            other = boxes[lane.link.target if lane.link.source == box.node.name else lane.link.source]
            parts += _port(box, name, first_lane + lane.row * LANE_HEIGHT, on_right=other.left > box.left)
    for number, (_, name) in enumerate(box.node.loose):
        y = first_lane + _rows(box.node, lanes) * LANE_HEIGHT + number * LOOSE_HEIGHT - 8
        parts.append(text(box.left + box.width / 2, y + 4, f"{name} unused", "faint small", anchor="middle"))
    return parts


def _rows(node: Node, lanes: list[_Lane]) -> float:
    """Rows that a stage needs for its links."""
    return max((lane.row for lane in lanes if lane.port(node.name)), default=-1) + 1


def _port(box: _Box, name: str, y: float, *, on_right: bool) -> list[str]:
    x = box.right if on_right else box.left
    label = text(x - 12, y + 4, name, "port", anchor="end") if on_right else text(x + 12, y + 4, name, "port")
    return [f'<circle class="{box.node.role} dot" cx="{x:g}" cy="{y:g}" r="{DOT}"/>', label]


def _label(link: Link) -> str:
    return " \N{MIDDLE DOT} ".join((link.label, *link.notes))


def _record_lines(name: str, fields: tuple[tuple[str, str], ...], width: float) -> list[str]:
    """`Name { field: type, ... }` in lines of at most ``width`` pixels."""
    limit = int(width / SMALL_CHARACTER)
    pieces = [f"{field}: {kind}" for field, kind in fields]
    lines, current = [], f"{name} {{ "
    for index, piece in enumerate(pieces):
        text = piece + (", " if index < len(pieces) - 1 else " }")
        if len(current) + len(text) > limit:
            lines.append(current.rstrip())
            current = " " * (len(name) + 3)
        current += text
    return [*lines, current.rstrip()]
