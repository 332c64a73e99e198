"""What a sizing search found: the chosen point, every other with the term that decided, and how sure it is.

The vocabulary between the search (`profiles.search`), the sized workflow and whoever shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gmiflow.plan import Backend, Execution, Template

Origin: TypeAlias = Literal["measured", "modelled"]
Algorithm: TypeAlias = Literal["improved", "paper"]
Objective: TypeAlias = Literal["throughput", "time_to_reward"]
Term: TypeAlias = Literal[
    "throughput",
    "time_to_reward",
    "tie",
    "saturation",
    "memory",
    "failed",
    "illegal",
    "unmeasured",
    "first_of_row",
    "not_visited",
]
"""What decided about a candidate:

- "throughput", "time_to_reward": its number under that objective (of the chosen one: the highest);
- "tie": as good as the chosen one within `profiles.search.TIE`, which has fewer GMIs, fewer environments or
  the simpler lowering;
- "saturation": more environments in this row add nothing;
- "memory": it ran out of memory, or does not fit by projection, or lies behind a point that ran out of it;
- "failed": it ended with an error or timed out;
- "illegal": it cannot be run, for example less than a stratum for each GMI;
- "unmeasured": modelled only, and not promising enough to be measured (or the budget was spent);
- "first_of_row": Algorithm 1 only remembers it, and never compares it;
- "not_visited": Algorithm 1 ended its row before it got there.
"""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Point:
    """One configuration of a training on one device: what the sizing search varies.

    Attributes:
        template: which roles share a GMI.
        gmis: GMIs of the training on the device (with split templates: of the simulator's group).
        num_env: environments of the training on the device, over all its GMIs.
    """

    template: Template
    gmis: int
    num_env: int
    execution: Execution
    backend: Backend

    def __str__(self) -> str:
        gmis = f"{self.gmis} GMI{'s' if self.gmis > 1 else ''}"
        return f"{self.num_env} environments, {gmis}, {self.template}, {self.execution}, {self.backend}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with its error bar, low <= value <= high; its unit is that of the field that holds it.

    Attributes:
        low, high: of something measured, its lowest and highest window; else where the model expects it.
        origin: "measured" when this very quantity of this very point was measured.
    """

    value: float
    low: float
    high: float
    origin: Origin

    def times(self, factor: float) -> Estimate:
        """The same in another unit, or of several devices."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor, origin=self.origin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A point with all that is known about it.

    Attributes:
        steps_per_s: environment steps per second of the whole training, over all devices of the target.
        device_memory: peak bytes of one device over all its GMIs; 0 on the CPU.
        host_memory: peak resident bytes of all its GMI processes.
        iteration: seconds of one iteration, rollout and update.
        terms: seconds of one iteration by what they are spent on: "simulate", "infer", "update", "communicate", with
            "collect" in place of the first two where a CUDA graph hides them. Their sum falls short of the iteration
            by what the host does in between, and exceeds it where rollout and update overlap. Only "iteration" where
            nobody measured the parts.
        score: what the objective compares: steps per second, or those that count (`time_to_reward`).
    """

    point: Point
    steps_per_s: Estimate
    device_memory: Estimate
    host_memory: Estimate
    iteration: Estimate
    terms: dict[str, Estimate]
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of a candidate.

    Attributes:
        term: what decided.
        reason: one sentence with the numbers, no full stop.
    """

    candidate: Candidate
    chosen: bool
    term: Term
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """The outcome of a search.

    Attributes:
        chosen: what to run.
        verdicts: of every point of the space, the chosen one first, then by falling score, then those that
            cannot run.
        unsliced: one GMI per device with as many environments as the chosen point, in its best lowering: what
            slicing is worth at an equal batch (with `batch = free`: the best unsliced plan). The chosen one itself
            when it is not sliced; None when the user ruled it out.
        notes: what a reader of the choice should know, one sentence each (nothing measured, critical batch, ...).
    """

    algorithm: Algorithm
    objective: Objective
    chosen: Candidate
    verdicts: tuple[Verdict, ...]
    unsliced: Candidate | None
    notes: tuple[str, ...] = ()
