"""The sized workflow: how many GMIs, which environments each, how it executes. Output of `passes.sizing`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gmiflow.ir.mapped import MappedWorkflow, Rejected
from gmiflow.plan import Backend, Execution, PredictionPlan, Role

if TYPE_CHECKING:
    from gmiflow.ir.search import Search


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """One GMI of one component.

    Attributes:
        component: name of the component.
        group: roles that it runs.
        device: index of the device.
        share: part of the device, 0 < share <= 1.
        cores: CPU cores, threads: torch threads.
        num_env, env_offset: range of global environment ids.
        memory_mib: memory cap on the device, 0 for none.
        host: index of the first slice of the process that this one shares; None for a process of its own.
        joint: index of the first slice of those that share one simulator; None for a simulator of its own.
    """

    component: str
    group: tuple[Role, ...]
    device: int
    share: float
    cores: int
    threads: int
    num_env: int
    env_offset: int
    memory_mib: int = 0
    host: int | None = None
    joint: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SizedWorkflow:
    """A mapped workflow with sizes.

    Attributes:
        num_env: environments of each component.
        gmi_per_gpu: GMIs of one component on one device.
        stratum: environments that are permuted together.
        origins: for each decided quantity ("num_env", "gmi_per_gpu", "execution", "backend" and, with
            several trainings, "joint"), how it was decided: "given", "default", "modelled", "measured", with a reason.
        rejected: sizes that were not taken.
        search: what a profile said; None when defaults decided.
        prediction: of each component, from the search.
        gpus_here: GPUs of this machine.
        peer_access: whether they are enough for the target, and each maps the memory of the others.
    """

    mapped: MappedWorkflow
    num_env: int
    gmi_per_gpu: int
    stratum: int
    execution: Execution
    backend: Backend
    cores: int
    slices: tuple[Slice, ...]
    origins: tuple[tuple[str, str], ...]
    rejected: tuple[Rejected, ...] = ()
    search: Search | None = None
    prediction: PredictionPlan | None = None
    gpus_here: int = 0
    peer_access: bool = False

    @property
    def joint(self) -> int:
        """Trainings that share one simulator, at most; 1 when each has its own."""
        return max(Counter(part.joint for part in self.slices if part.joint is not None).values(), default=1)
