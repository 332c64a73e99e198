"""Cycles that nothing breaks: among stages of one role, where no value waits for the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gmiflow.passes.matching import Wire


def find_cycles(wires: Iterable[Wire]) -> list[Wire]:
    """Wires that close a cycle, one for each cycle that is found."""
    graph: dict[str, list[Wire]] = {}
    for wire in wires:
        if wire.source.role == wire.target.role:
            graph.setdefault(wire.source.name, []).append(wire)
    done: set[str] = set()
    found = [_search(start, graph, done) for start in graph]
    return [wire for wire in found if wire is not None]


def _search(start: str, graph: Mapping[str, list[Wire]], done: set[str]) -> Wire | None:
    """Depth-first search from one stage, without recursion; stages that are finished are added to ``done``."""
    path = {start}
    stack = [(start, iter(graph.get(start, ())))] if start not in done else []
    while stack:
        name, wires = stack[-1]
        wire = next(wires, None)
        if wire is None:
            done.add(name)
            path.discard(name)
            stack.pop()
        elif wire.target.name in path:
            done |= path
            return wire
        elif wire.target.name not in done:
            path.add(wire.target.name)
            stack.append((wire.target.name, iter(graph.get(wire.target.name, ()))))
    return None
