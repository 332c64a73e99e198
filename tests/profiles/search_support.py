"""Spaces, measurements and machines that exist only as formulas or tables, for the tests of the search."""

import math
from collections.abc import Callable

from gmiflow.ir.search import Point
from gmiflow.profiles.search import propose
from gmiflow.profiles.space import Space
from gmiflow.profiles.workload import Measurement, ProfileKey, WorkloadProfile

GIB = 2**30
HORIZON = 16


def cpu_space(**changes) -> Space:
    """Two cores: 1, 2 and 4 GMIs, 64 to 4,096 environments."""
    values = {
        "templates": ("dp_only",),
        "gmis": (1, 2, 4),
        "num_env": tuple(2**power for power in range(6, 13)),
        "executions": ("eager",),
        "backends": (("cpu",), ("cpu",)),
        "device": "cpu",
        "devices": 1,
        "trainings": 1,
        "cores": 2,
        "memory_bytes": 0,
        "horizon": HORIZON,
        "objective": "throughput",
        "batch_fixed": True,
        "reference": 256,
    }
    return Space(**{**values, **changes})


def gpu_space(**changes) -> Space:
    """One GPU: 1 to 10 GMIs, graphs or not, two backends."""
    values = {
        "gmis": tuple(range(1, 11)),
        "num_env": tuple(2**power for power in range(10, 17)),
        "executions": ("graph", "eager"),
        "backends": (("timeshare",), ("mps", "green")),
        "device": "cuda",
        "cores": 16,
        "memory_bytes": 140 * GIB,
        "reference": 4096,
    }
    return cpu_space(**{**values, **changes})


def measured(point: Point, steps_per_s: float, memory: float = 0.0, status: str = "ok") -> Measurement:
    """A measurement without windows; ``memory`` is of whatever the space counts."""
    on_gpu = point.backend != "cpu"
    return Measurement(
        point=point,
        status=status,
        steps_per_s=steps_per_s if status == "ok" else 0.0,
        iteration_s=point.num_env * HORIZON / steps_per_s,
        device_memory_bytes=round(memory) if on_gpu else 0,
        host_memory_bytes=round(memory),
    )


def profile(measurements) -> WorkloadProfile:
    """A profile under some key."""
    key = ProfileKey(
        device="cpu",
        processor="",
        sm_count=0,
        memory_bytes=0,
        cores=2,
        driver="",
        cuda="",
        torch="",
        simulator="",
        sources={},
        workload="",
        gmiflow="",
    )
    return WorkloadProfile(key=key, source="", date="", measurements=tuple(measurements))


def search(space: Space, machine: Callable[[Point], Measurement], algorithm: str = "improved") -> list[Measurement]:
    """Measure what `propose` asks for until it asks for nothing; fails if it asks for a point twice."""
    seen: list[Measurement] = []
    while (point := propose(space, seen, algorithm)) is not None:
        assert all(point != other.point for other in seen), f"asked twice for {point}"
        assert len(seen) < 500, "no end"
        seen.append(machine(point))
    return seen


def formula(
    latency: float, divided: float, shared: float, each: float, *, eager: float = 2.0, memory=(0.5 * GIB, 2e6), limit=0
) -> Callable[[Point], Measurement]:
    """A machine whose iteration takes latency + divided E / g + shared E + each (g - 1).

    Args:
        latency, divided, shared, each: seconds.
        eager: factor on the latency without graphs.
        memory: bytes of a GMI and of an environment.
        limit: bytes beyond which a point runs out of memory, 0 for none.
    """

    def run(point: Point) -> Measurement:
        factor = eager if point.execution == "eager" and point.backend != "cpu" else 1.0
        seconds = (
            factor * latency + divided * point.num_env / point.gmis + shared * point.num_env + each * (point.gmis - 1)
        )
        needs = memory[0] * point.gmis + memory[1] * point.num_env
        status = "out_of_memory" if limit and needs > limit else "ok"
        return measured(point, point.num_env * HORIZON / seconds, needs, status)

    return run


def best_rate(space: Space, machine: Callable[[Point], Measurement]) -> float:
    """The highest rate of all points of a space."""
    return max(machine(point).steps_per_s for point in space.points())


def doublings(first: Point, second: Point) -> float:
    """Between the environments of two points."""
    return math.log2(second.num_env / first.num_env)
