"""Cycles that nothing breaks: among stages of one role, where no value waits for the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gmiflow.passes.matching import Wire


def find_cycles(wires: Iterable[Wire]) -> list[list[Wire]]:
    """The wires of each cycle that is found, from stage to stage; the last one closes it."""
    graph: dict[str, list[Wire]] = {}
    for wire in wires:
        if wire.source.role == wire.target.role:
            graph.setdefault(wire.source.name, []).append(wire)
    done: set[str] = set()
    found = [_search(start, graph, done) for start in graph]
    return [cycle for cycle in found if cycle]


def _search(start: str, graph: Mapping[str, list[Wire]], done: set[str]) -> list[Wire]:
    """Depth-first search from one stage, without recursion; stages that are finished are added to ``done``.

    Returns:
        A cycle, or no wires when none is found.
    """
    path: dict[str, int] = {start: 0}
    taken: list[Wire] = []
    stack = [(start, iter(graph.get(start, ())))] if start not in done else []
    while stack:
        name, wires = stack[-1]
        wire = next(wires, None)
        if wire is None:
            done.add(name)
            path.pop(name, None)
            taken[-1:] = []
            stack.pop()
        elif wire.target.name in path:
            done.update(path)
            return [*taken[path[wire.target.name] :], wire]
        elif wire.target.name not in done:
            taken.append(wire)
            path[wire.target.name] = len(taken)
            stack.append((wire.target.name, iter(graph.get(wire.target.name, ()))))
    return []
