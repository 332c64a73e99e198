"""What cannot work together on a GPU: facts about backends and collectives, for the compiler to report.

A leaf of pure functions, so that the compiler says at compile time what the hardware would say at run time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gmiflow.plan import Backend, CollectiveKind

MPS_CLIENTS = 48
"""Client contexts that MPS admits per GPU whatever the driver; 60 from CUDA 13.1."""

MIG_INSTANCES = 7
"""The most instances that any GPU splits into."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incompatibility:
    """One reason why a combination cannot work, and what would.

    Attributes:
        reason: a clause without a full stop.
        mend: an imperative clause.
    """

    reason: str
    mend: str


def incompatibilities(
    backend: Backend,
    collective: CollectiveKind | None = None,
    *,
    members_per_gpu: int = 1,
    gpus: int = 1,
    process_isolation: bool = False,
    memory_cap: bool = False,
    foreign_simulator: bool = False,
) -> tuple[Incompatibility, ...]:
    """Everything that is wrong with a combination; empty when it can work.

    Args:
        backend: of all GMIs in question.
        collective: primitive of a group of them, or None without a group.
        members_per_gpu: GMIs of the group on one GPU, or GMIs per GPU without a group.
        gpus: GPUs that the group spans.
        process_isolation: whether a GMI must outlive the failure of another (`on_failure = restart`).
        memory_cap: whether each GMI's memory is capped by the device.
        foreign_simulator: whether a simulator runs in an interpreter of its own (`python = ...`).
    """
    found = [
        *_of_backend(backend, members_per_gpu),
        *(_of_green(process_isolation, memory_cap, foreign_simulator) if backend == "green" else ()),
    ]
    if collective is not None and members_per_gpu * gpus > 1:
        found += _of_collective(backend, collective, members_per_gpu, gpus)
    return tuple(found)


def _of_backend(backend: Backend, gmis_per_gpu: int) -> list[Incompatibility]:
    limits: dict[Backend, int] = {"mps": MPS_CLIENTS, "mig": MIG_INSTANCES}
    if gmis_per_gpu <= limits.get(backend, gmis_per_gpu):
        return []
    return [
        Incompatibility(
            reason=f"{backend} admits {limits[backend]} GMIs per GPU, not {gmis_per_gpu}",
            mend=f"use at most {limits[backend]} GMIs per GPU",
        )
    ]


def _of_green(process_isolation: bool, memory_cap: bool, foreign_simulator: bool) -> list[Incompatibility]:
    """Green contexts live in one process: they share its memory, its faults and its end."""
    checks = (
        (process_isolation, "green GMIs share one process, so none survives another's failure", "use `backend = mps`"),
        (memory_cap, "green contexts share one memory, so none can be capped", "use `backend = mps` or drop the cap"),
        (
            foreign_simulator,
            "a simulator in an interpreter of its own runs outside of the green context",
            "use `backend = mps` or `timeshare`",
        ),
    )
    return [Incompatibility(reason=reason, mend=mend) for applies, reason, mend in checks if applies]


def _of_collective(
    backend: Backend, collective: CollectiveKind, members_per_gpu: int, gpus: int
) -> list[Incompatibility]:
    """What the group's primitive needs of its members; the first thing that it lacks."""
    in_process = backend == "green"
    problem: tuple[str, str] | None = None
    if backend == "cpu" and collective in ("rp", "ipc", "hybrid", "nccl_multirank"):
        problem = f"`{collective}` moves device memory, and the GMIs have no GPU", "use `ip`"
    elif backend == "mig" and collective in ("ipc", "hybrid", "nccl_multirank") and members_per_gpu > 1:
        problem = "MIG instances cannot open each other's memory (no CUDA IPC, no peer access)", "use `ip`"
    elif collective == "rp" and members_per_gpu > 1:
        problem = "NCCL takes one member per GPU", "use `hybrid`, or one GMI per GPU"
    elif collective == "nccl_multirank" and members_per_gpu == 1:
        problem = "with one GMI per GPU it is `rp`", "use `rp`"
    elif in_process and collective == "nccl_multirank":
        problem = "NCCL's members need a process each, and green GMIs of a GPU share one", "use `backend = mps`"
    elif in_process and collective == "ipc":
        problem = "CUDA IPC does not work inside one process, and green GMIs of a GPU share one", "use `local`"
    elif collective == "ipc" and gpus > 1:
        problem = "`ipc` works inside one GPU", "use `hybrid`"
    elif collective == "local" and not (in_process and gpus == 1):
        problem = "`local` joins GMIs of one process, and these have a process each", "use `ip` or `ipc`"
    return [Incompatibility(reason=problem[0], mend=problem[1])] if problem else []
