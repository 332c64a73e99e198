"""Measures collectives on this machine: starts GMIs of a layout and has them reduce tensors. No torch.

The GMIs are slices of the same backends as in a run, and join their groups by the same code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.leftovers import temporary_folder
from gmiflow.runtime.members import ending, last_lines, was
from gmiflow.runtime.processes import assign_cpus
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.spawn import ForkServer

_SAFE = {"NCCL_NVLS_ENABLE": os.environ.get("NCCL_NVLS_ENABLE", "0")}
"""NVLink multicast can take the GPUs of a shared host out of service; who wants it measured says so."""

MeasuredKind: TypeAlias = str
"""A collective of the plan that processes can join ("hybrid:K" is one with K rings), or "gloo", the reference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """GMIs that reduce together.

    Attributes:
        gpus: GPUs that they are on; 1 for the CPU.
        gmis_per_gpu: on each of them.
    """

    backend: Backend
    gpus: int
    gmis_per_gpu: int

    @property
    def members(self) -> int:
        """How many GMIs."""
        return self.gpus * self.gmis_per_gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Time of one all-reduce (sum of f32), by the slowest member.

    Attributes:
        how: "eager", or "graph" when replayed in a CUDA graph.
        bytes: size of the tensor.
        seconds: median of the batches; low_s, high_s: the fastest and the slowest.
    """

    collective: MeasuredKind
    backend: Backend
    gpus: int
    gmis_per_gpu: int
    how: Literal["eager", "graph"]
    bytes: int
    seconds: float
    low_s: float
    high_s: float

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth as seen by the caller: size of the tensor by time."""
        return self.bytes / self.seconds


def measure(
    layout: Layout, kinds: Sequence[MeasuredKind], sizes: Sequence[int], *, batches: int = 7, timeout_s: float = 120.0
) -> tuple[Latency, ...]:
    """Start the GMIs of a layout and time every kind at every size.

    Args:
        layout: who reduces.
        kinds: what to time, in this order.
        sizes: bytes, multiples of 4.
        batches: timings of each, of which the median counts.
        timeout_s: for all of it.

    Raises:
        GMIError: E0711 when the GMIs cannot be started, fail, or take too long; with their last words.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        (folder / "logs").mkdir()
        backend = make_backend(layout.backend)
        stack.callback(backend.release)
        gmis = members_of(layout)
        backend.prepare(gmis, folder)
        rendezvous = Rendezvous.create(len(gmis))
        stack.callback(rendezvous.remove)
        server = stack.enter_context(ForkServer([], folder / "forkserver.log"))
        work = {"kinds": list(kinds), "sizes": list(sizes), "batches": batches, "rendezvous": str(rendezvous.path)}
        for request in _requests(gmis, backend, work, folder):
            server.spawn(request)
        wait_for_members(server, len(gmis), folder, time.monotonic() + timeout_s)
        rows: list[dict[str, Any]] = json.loads((folder / "rows.json").read_text())
    return tuple(Latency(**asdict(layout), **row) for row in rows)


def members_of(layout: Layout) -> list[GMIPlan]:
    """The GMIs of a layout, in rank order; those of a GPU follow each other."""
    return [
        GMIPlan(
            id=rank,
            training="measure",
            program="",
            backend=layout.backend,
            device=rank // layout.gmis_per_gpu,
            share=round(1 / layout.gmis_per_gpu, 6),
            cores=1,
            threads=1,
            stages=(),
            num_env=1,
            env_offset=rank,
        )
        for rank in range(layout.members)
    ]


def _requests(gmis: list[GMIPlan], backend: GMIBackend, work: dict[str, Any], folder: Path) -> list[SpawnRequest]:
    cpus = assign_cpus(gmis)
    program = str(Path(__file__).with_name("measure_member.py"))
    requests: list[SpawnRequest] = []
    for gmi in gmis:
        task = folder / f"task_{gmi.id}.json"
        task.write_text(
            json.dumps({**work, "gmi": asdict(gmi), "members": len(gmis), "rows": str(folder / "rows.json")})
        )
        requests.append(
            SpawnRequest(
                gmi=gmi.id,
                program=program,
                arguments=[str(task)],
                environment={**_SAFE, **backend.environment(gmi)},
                cpus=cpus[gmi.id],
                log=str(folder / "logs" / f"gmi_{gmi.id:02d}.log"),
            )
        )
    return requests


def wait_for_members(server: ForkServer, count: int, folder: Path, deadline: float) -> None:
    """Return when all members have ended well."""
    running = count
    while running:
        ready, _, _ = select.select([server.socket], [], [], max(0.0, deadline - time.monotonic()))
        events = server.events() if ready else None
        if not ready:
            raise error(LAUNCH_FAILED, "measuring collectives took too long", *_last_words(folder))
        if events is None:
            raise error(LAUNCH_FAILED, f"{server.what} {server.ending()}", *last_lines(server.log))
        for event in events:
            if event["event"] == "exited":
                running -= 1
                if event["status"] != 0:
                    message = f"member {event['gmi']} of the measurement {was(ending(event['status']))}"
                    lines = last_lines(folder / "logs" / f"gmi_{event['gmi']:02d}.log")
                    raise error(LAUNCH_FAILED, message, *without_frames(lines))


def without_frames(lines: Sequence[str]) -> list[str]:
    """The lines of a log without the frames of tracebacks, which are of gmiflow: what they end with is left."""
    found: list[str] = []
    inside = False
    for line in filter(str.strip, lines):
        inside = line.startswith("Traceback (") or (inside and line.startswith(" "))
        if not inside:
            found.append(line)
    return found


def _last_words(folder: Path) -> list[str]:
    return [f"{log.stem}: {lines[-1]}" for log in sorted((folder / "logs").glob("*.log")) if (lines := last_lines(log))]
