"""Which CPUs a GMI runs on: whole physical cores, near its GPU, its own as long as there are enough.

Two GMIs on the same cores can be slower than one, so the launcher pins each. The topology is read from /sys and the
affinity of this process; `assign_cpus` is a pure function of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSFS = Path("/sys")
_LOCAL_DISTANCE = 10  # what the kernel calls the distance of a NUMA node to itself
_UNKNOWN_DISTANCE = 255


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """One physical core as far as this process may use it.

    Attributes:
        cpus: logical CPUs (hardware threads), ascending.
        node: NUMA node, 0 where the machine does not say.
    """

    cpus: tuple[int, ...]
    node: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """The usable cores of a machine.

    Attributes:
        cores: in order of their first CPU.
        distances: (from node, to node) to the kernel's distance; 10 is local.
    """

    cores: tuple[Core, ...]
    distances: dict[tuple[int, int], int]

    def distance(self, start: int, end: int) -> int:
        """Distance between two nodes."""
        return _LOCAL_DISTANCE if start == end else self.distances.get((start, end), _UNKNOWN_DISTANCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CPUDemand:
    """What one GMI asks for.

    Attributes:
        cores: physical cores, at least 1.
        node: NUMA node of its GPU, or None when any node will do.
    """

    cores: int
    node: int | None = None


def assign_cpus(topology: Topology, demands: Sequence[CPUDemand]) -> tuple[tuple[int, ...], ...]:
    """Give every GMI its cores; the result holds all their logical CPUs, ascending, in the order of ``demands``.

    Cores that the fewest GMIs have are taken first, so none is shared before all are used, and then all are shared
    evenly; among those, cores of the wanted node come first, then nearer nodes. A GMI without a wanted node gets one
    where its whole demand is free, if there is one. GMIs with a wanted node choose before the others. More cores than
    the machine has are cut to all of them.
    """
    users = [0] * len(topology.cores)
    chosen: list[tuple[int, ...]] = [()] * len(demands)
    for index in sorted(range(len(demands)), key=lambda i: (demands[i].node is None, i)):
        demand = demands[index]
        wanted = min(max(1, demand.cores), len(topology.cores))
        home = _roomiest_node(topology, users, wanted) if demand.node is None else demand.node

        def preference(core: int, home: int = home) -> tuple[int, int, int]:
            return users[core], topology.distance(home, topology.cores[core].node), core

        taken = sorted(range(len(users)), key=preference)[:wanted]
        for core in taken:
            users[core] += 1
        chosen[index] = tuple(sorted(cpu for core in taken for cpu in topology.cores[core].cpus))
    return tuple(chosen)


def read_topology(allowed: Iterable[int] | None = None, sysfs: Path = _SYSFS) -> Topology:
    """The cores behind ``allowed`` logical CPUs (default: this process's affinity), from /sys.

    A CPU whose topology cannot be read counts as a core of its own on node 0.
    """
    cpus = sorted(allowed if allowed is not None else _own_cpus())
    nodes = _nodes(sysfs)
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        siblings = _text(sysfs / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(parse_cpu_list(siblings) if siblings else (cpu,), []).append(cpu)
    return Topology(
        cores=tuple(Core(cpus=tuple(group), node=nodes.get(group[0], 0)) for group in cores.values()),
        distances=_distances(sysfs),
    )


def gpu_node(pci_bus_id: str, sysfs: Path = _SYSFS) -> int | None:
    """NUMA node of a PCI device, or None where the machine does not say.

    Args:
        pci_bus_id: as NVML writes it, for example "00000000:1B:00.0"; /sys uses a four-digit domain.
        sysfs: where /sys is.
    """
    domain, _, rest = pci_bus_id.lower().partition(":")
    text = _text(sysfs / f"bus/pci/devices/{domain[-4:]}:{rest}/numa_node")
    return int(text) if text and int(text) >= 0 else None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's list notation: "0-2,8" is 0, 1, 2, 8."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def _roomiest_node(topology: Topology, users: Sequence[int], wanted: int) -> int:
    """The node with the fullest supply of least-used cores, but only as much as is wanted; the first one of equals."""
    least = sorted(users)[wanted - 1]
    supply: dict[int, int] = {}
    for core, count in zip(topology.cores, users, strict=True):
        supply[core.node] = supply.get(core.node, 0) + (count <= least)
    return max(sorted(supply), key=lambda node: min(supply[node], wanted))


def _own_cpus() -> Iterable[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _nodes(sysfs: Path) -> dict[int, int]:
    """Logical CPU to NUMA node."""
    found: dict[int, int] = {}
    for directory in sorted(sysfs.glob("devices/system/node/node[0-9]*")):
        for cpu in parse_cpu_list(_text(directory / "cpulist")):
            found[cpu] = int(directory.name.removeprefix("node"))
    return found


def _distances(sysfs: Path) -> dict[tuple[int, int], int]:
    directories = sorted(sysfs.glob("devices/system/node/node[0-9]*"), key=lambda d: int(d.name.removeprefix("node")))
    numbers = [int(directory.name.removeprefix("node")) for directory in directories]
    table: dict[tuple[int, int], int] = {}
    for directory, start in zip(directories, numbers, strict=True):
        row = _text(directory / "distance").split()
        table.update({(start, end): int(value) for end, value in zip(numbers, row, strict=False)})
    return table


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
