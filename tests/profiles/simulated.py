"""A machine that exists only as a formula: noisy, drifting, with a clock of its own, and profiled by the real loop."""

import dataclasses
import math
import random
from collections.abc import Callable

from search_support import GIB, HORIZON, measured

from gmiflow.ir.search import Point
from gmiflow.profiles.compare import combined
from gmiflow.profiles.search import choose, next_round
from gmiflow.profiles.space import Space
from gmiflow.profiles.workload import Look, Measurement
from gmiflow.profiling.campaign import conduct

BUDGET_S = 120.0
START_S = 0.7
WINDOW_S = 0.8


@dataclasses.dataclass
class Machine:
    """A `campaign.Bench` on a simulated machine.

    Attributes:
        truth: steps per second of a point at the machine's usual speed, or a failed measurement.
        noise: relative standard deviation of a look.
        drift: how far its speed goes up and down, relative; 0.5 is from two thirds to one and a half.
        bursts: part of the looks that fall into somebody else's burst of work, and are slower by 10 to 60 %.
        seed: of the noise, the drift and the bursts.
        speeds: time and speed of the machine at each look.
    """

    truth: Callable[[Point], Measurement]
    noise: float = 0.05
    drift: float = 0.5
    bursts: float = 0.03
    seed: int = 0
    speeds: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._phases = [(period, self._random.uniform(0, 2 * math.pi)) for period in (47.0, 131.0)]
        self._now = 2.0  # the fork server starts
        self._known: dict[Point, Measurement] = {}

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(self._known.values())

    def elapsed(self) -> float:
        return self._now

    def speed(self) -> float:
        """Of the machine now; 1 is its usual one."""
        wave = sum(math.sin(2 * math.pi * self._now / period + phase) for period, phase in self._phases) / 2
        return (1 + self.drift) ** wave

    def measure(self, point: Point) -> bool:
        true = self.truth(point)
        found = true
        if true.status == "ok":
            self.speeds.append((self._now, self.speed()))
            rate = true.steps_per_s * self.speed() * math.exp(self._random.gauss(0, self.noise))
            if self._random.random() < self.bursts:
                rate *= self._random.uniform(0.4, 0.9)
            found = measured(point, rate, max(true.device_memory_bytes, true.host_memory_bytes))
            iteration_s = point.num_env * HORIZON / rate
            self._now += START_S + iteration_s + max(WINDOW_S, math.ceil(WINDOW_S / iteration_s) * iteration_s)
        else:
            self._now += START_S
        found = dataclasses.replace(found, looks=(Look(at_s=self._now, steps_per_s=found.steps_per_s),))
        before = self._known.get(point)
        self._known[point] = found if before is None else combined(before, found)
        return self._now <= BUDGET_S


def profiled(space: Space, machine: Machine, algorithm: str = "improved") -> Machine:
    """The machine after a session of two minutes."""
    conduct(machine, lambda known, late: next_round(space, known, algorithm, late=late), BUDGET_S)
    return machine


def share_of_best(space: Space, machine: Machine, profile, algorithm: str = "improved") -> float:
    """True rate of what is chosen after a session, over the best true rate of the space."""
    chosen = choose(space, profile, algorithm).chosen.point
    best = max(m.steps_per_s for point in space.points() if (m := machine.truth(point)).status == "ok")
    return machine.truth(chosen).steps_per_s / best


def surface(
    latency: float = 0.0, divided: float = 0.0, shared: float = 0.0, each: float = 0.0, limit: float = math.inf
) -> Callable[[Point], Measurement]:
    """Iterations of latency + divided E / min(g, 2 cores) + shared E + each (g - 1) seconds; see `Surface`.

    A GMI needs 0.3 GiB and an environment 2 MB; a point that needs more than ``limit`` bytes cannot run.
    """

    def run(point: Point) -> Measurement:
        seconds = latency + divided * point.num_env / min(point.gmis, 2) + shared * point.num_env
        seconds += each * (point.gmis - 1)
        needs = 0.3 * GIB * point.gmis + 2e6 * point.num_env
        status = "ok" if needs <= limit else "out_of_memory"
        return measured(point, point.num_env * HORIZON / seconds, needs, status)

    return run


SURFACES = {
    "saturating": surface(latency=0.03, shared=1.6e-4, each=0.02),
    "pays": surface(latency=0.03, divided=3e-4, shared=2e-5, each=0.01),
    "hurts": surface(latency=0.02, divided=1e-5, shared=2e-4, each=0.05),
    "wall": surface(latency=0.05, divided=2e-4, shared=2e-5, each=0.01, limit=3 * GIB),
    "flat": surface(shared=3.2e-4),
}
"""True speeds: more environments add ever less; slicing pays; slicing hurts; memory ends; nothing matters."""
