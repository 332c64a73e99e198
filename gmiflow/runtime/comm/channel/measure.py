"""Measures how rollouts cross from one process to another: starts a producer and a consumer. No torch.

They are slices of the same backend as in a run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.measure import wait_for_members
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.leftovers import temporary_folder
from gmiflow.runtime.processes import assign_cpus
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.spawn import ForkServer

__all__ = ["ACROSS", "WAYS", "Crossing", "Way", "measure_channel"]

Way: TypeAlias = Literal["direct", "packed", "host", "per_tensor", "socket"]
WAYS: tuple[Way, ...] = ("direct", "packed", "per_tensor", "socket")
"""How a rollout crosses:

- "direct": it was collected in the slot; only the slot's number is published, as a run does where all members use the
  same memory, that of the host or of one GPU;
- "packed": one copy into the slot for each group, and one number for all;
- "host": the same through slots in shared memory of the host, copied out of them by the other side;
- "per_tensor": a ring for each tensor: a copy, a number and a wait for each;
- "socket": one message for each tensor over a Unix socket, as between processes that share no memory; on a GPU through
  the host at both ends.
"""

ACROSS: tuple[Way, ...] = ("packed", "host", "per_tensor", "socket")
"""Between two GPUs, where nothing is collected in the slot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """One way for the rollouts of one task.

    Attributes:
        device: where the rollouts are.
        bytes: of a rollout.
        messages: that a rollout takes.
        lockstep_s: from handing over to being told that it was taken, median; one rollout at a time.
        low_s, high_s: the fastest and the slowest tenth of those.
        pipelined_s: per rollout when four may be under way, over all of them.
    """

    task: str
    device: Literal["cpu", "cuda"]
    way: Way
    bytes: int
    messages: int
    lockstep_s: float
    low_s: float
    high_s: float
    pipelined_s: float

    @property
    def bytes_per_s(self) -> float:
        """Throughput when four may be under way."""
        return self.bytes / self.pipelined_s


def measure_channel(
    task: str, plan: LaunchPlan, *, rollouts: int, ways: Sequence[Way] = WAYS, timeout_s: float = 120.0
) -> tuple[Crossing, ...]:
    """Time every way for the experience of a plan with one GMI that collects and one that trains.

    Args:
        task: name for the rows.
        plan: with one channel between GMIs 0 and 1.
        rollouts: timed of each way, after a tenth as many that are not.
        ways: what to time.
        timeout_s: for all of it.

    Raises:
        GMIError: E0711 when the processes cannot be started, fail, or take too long; with their last words.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        (folder / "logs").mkdir()
        (folder / "plan.json").write_text(plan.to_json())
        backend = make_backend(plan.gmis[0].backend)
        stack.callback(backend.release)
        backend.prepare(plan.gmis, folder)
        rendezvous = Rendezvous.create(len(plan.gmis))
        stack.callback(rendezvous.remove)
        server = stack.enter_context(ForkServer([], folder / "forkserver.log"))
        cpus = assign_cpus(plan.gmis)
        for gmi in plan.gmis:
            task_file = folder / f"task_{gmi.id}.json"
            work = {"gmi": gmi.id, "ways": list(ways), "rollouts": rollouts, "rendezvous": str(rendezvous.path)}
            task_file.write_text(json.dumps(work))
            server.spawn(
                SpawnRequest(
                    gmi=gmi.id,
                    program=str(Path(__file__).with_name("measure_member.py")),
                    arguments=[str(task_file)],
                    environment=backend.environment(gmi),
                    cpus=cpus[gmi.id],
                    log=str(folder / "logs" / f"gmi_{gmi.id:02d}.log"),
                )
            )
        wait_for_members(server, len(plan.gmis), folder, time.monotonic() + timeout_s)
        rows: list[dict[str, Any]] = json.loads((folder / "rows.json").read_text())
    return tuple(Crossing(task=task, device=plan.target.device, **row) for row in rows)
