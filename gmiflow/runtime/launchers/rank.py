"""What the launcher knows of its ranks, and how they are started. No torch."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.linux import RUNNABLE
from gmiflow.runtime.spawn import PASSIVE_THREADS

_STALE_S = 5.0
"""A rank tells of its process twice a second, unless it is lost."""


@dataclass
class Rank:
    """What is known of a rank that has called.

    Attributes:
        first: id of the first GMI of its process.
        spawned, exited: what became of its process.
        looked: state letter and processor time of its process, as last told.
        told: when that was, of `time.monotonic`.
    """

    number: int
    first: int
    node: str
    connection: socket.socket
    buffer: bytes = b""
    spawned: bool = False
    exited: bool = False
    looked: tuple[str, int] = ("S", 0)
    told: float = 0.0

    def look(self, now: float) -> tuple[str, int]:
        """State letter and processor time of its process; that it could run is believed for a while only."""
        state, ticks = self.looked
        return "S" if state == RUNNABLE and now - self.told > _STALE_S else state, ticks

    def ask(self, **request: object) -> None:
        """Send a request; a rank that is gone shows by its silence."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(request).encode() + b"\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOptions:
    """How ranks are started.

    Attributes:
        command: starts all of them, or None when something else does.
        environment: of the command; None for this process's.
        what: name of the starter in a sentence.
        everywhere: whether ranks may be on other machines.
        ranks_per_node: how many consecutive ranks share memory; 0 for those of one host name.
    """

    command: tuple[str, ...] | None
    environment: dict[str, str] | None = None
    what: str = "mpirun"
    everywhere: bool = False
    ranks_per_node: int = 0


@dataclass
class Node:
    """A machine: its ranks in order; the first makes the slices."""

    name: str
    ranks: list[Rank] = field(default_factory=list[Rank])


def rank_order(plan: LaunchPlan) -> list[int]:
    """The processes of a plan, by the id of their first GMI, as ranks are numbered.

    Starters fill one machine after the other. So those of a device follow each other, and where simulators are apart a
    GMI that acts follows the one that it acts for: with whole devices, or whole pairs, on a machine nothing has to
    cross that cannot.
    """
    simulated = {channel.consumer: channel.producers[0] for channel in plan.channels if channel.carries == "step"}
    processes = plan.processes()
    return sorted(processes, key=lambda first: (processes[first][0].device, simulated.get(first, first), first))


def starter_environment(path_entries: Sequence[str]) -> dict[str, str]:
    """The environment of the starter: ranks find the same modules as this process."""
    paths = os.pathsep.join(entry or os.getcwd() for entry in path_entries)
    return {**PASSIVE_THREADS, **os.environ, "PYTHONPATH": paths}
