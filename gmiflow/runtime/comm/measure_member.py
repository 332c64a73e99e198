"""One GMI of a measurement: ``measure_member.py TASK.json``; `measure` starts it."""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from gmiflow.plan import CollectiveKind, CollectivePlan, GMIPlan, TrainingPlan
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.rp import RingCollective
from gmiflow.runtime.connect import Switchboard
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.slices import Slices

GRAPH_CALLS = 20
BATCH_S = 0.02
"""What a batch of calls is to take at least; short ones are repeated more often."""
MOST_CALLS = 200
TIMEOUT_S = 60.0


class Member:
    """This GMI and the means to time calls together with the others."""

    def __init__(self, device: torch.device, control: Collective, batches: int) -> None:
        """Time on ``device``; ``control`` brings the members together between batches."""
        self._device = device
        self._control = control
        self._batches = batches

    def times(self, collective: Collective, count: int, *, graph: bool) -> list[float]:
        """Seconds per all-reduce of ``count`` f32, one number per batch, each that of the slowest member."""
        flat = torch.zeros(count, device=self._device)

        def call() -> None:
            collective.all_reduce(flat)

        if graph:
            captured = _capture(lambda: [call() for _ in range(GRAPH_CALLS)])
            batch, calls = captured.replay, GRAPH_CALLS
        else:
            calls = self._agreed_calls(call)
            batch = _repeated(call, calls)
        batch()
        return [self._slowest(self._timed(batch)) / calls for _ in range(self._batches)]

    def _agreed_calls(self, call: Callable[[], None]) -> int:
        """How many calls make a batch; the same on all members."""
        call()
        seconds = self._slowest(self._timed(_repeated(call, 3)) / 3)
        return max(2, min(MOST_CALLS, round(BATCH_S / seconds)))

    def _timed(self, work: Callable[[], object]) -> float:
        self._settle()
        self._control.barrier()
        start = time.perf_counter()
        work()
        self._settle()
        return time.perf_counter() - start

    def _slowest(self, seconds: float) -> float:
        token = torch.tensor([seconds], dtype=torch.float64)
        self._control.all_reduce(token, "max")
        return float(token)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class GlooOnHost(Collective):
    """gloo, as one uses it for tensors of any device: through host memory."""

    def __init__(self, ring: RingCollective) -> None:
        """Use a gloo group of the CPU."""
        super().__init__("gloo", ring.members, ring.rank)
        self._ring = ring
        self._staged = torch.empty(0)

    def close(self) -> None:
        """Leave the group."""
        self._ring.close()

    def _all_reduce(self, flat: torch.Tensor, op: str) -> None:
        if flat.device.type == "cpu":
            self._ring.all_reduce(flat, op)
            return
        if self._staged.numel() != flat.numel():
            self._staged = torch.empty(flat.numel(), dtype=flat.dtype, pin_memory=True)
        self._staged.copy_(flat)
        self._ring.all_reduce(self._staged, op)
        flat.copy_(self._staged)

    def _broadcast(self, flat: torch.Tensor, root: int) -> None:
        self._ring.broadcast(flat, root)

    def _barrier(self) -> None:
        self._ring.barrier()


def main() -> None:
    """Time what the task names; rank 0 writes the rows."""
    task = json.loads(Path(sys.argv[1]).read_text())
    gmi = GMIPlan(**{**task["gmi"], "stages": ()})
    torch.set_num_threads(1)
    everybody = tuple(range(task["members"]))
    plans = [_plan(kind, everybody) for kind in task["kinds"] if kind != "gloo"]
    program = Program(gmis=task["members"], gmi=gmi, training=_training(), collectives=tuple(plans))
    slices = Slices([program])
    slices.enter_thread()
    rendezvous = Rendezvous.join(Path(task["rendezvous"]))
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        switchboard = Switchboard([program], rendezvous, slices.device, TIMEOUT_S)
        collectives, control = switchboard.connect(program, stack)
        member = Member(slices.device, control, task["batches"])
        for kind in task["kinds"]:
            collective = collectives.get(f"measure.{kind}") or _gloo(everybody, gmi.id, rendezvous, stack)
            for how in ("eager", "graph") if collective.capturable else ("eager",):
                rows += [_row(kind, how, size, member, collective) for size in task["sizes"]]
            collective.check()
        control.barrier()
    if gmi.id == 0:
        Path(task["rows"]).write_text(json.dumps(rows))


def _plan(measured: str, members: tuple[int, ...]) -> CollectivePlan:
    """The group of a `measure.MeasuredKind`."""
    kind, _, rings = measured.partition(":")
    return CollectivePlan(
        name=f"measure.{measured}",
        training="measure",
        kind=cast("CollectiveKind", kind),
        members=members,
        rings=int(rings or 0),
    )


def _row(kind: str, how: str, size: int, member: Member, collective: Collective) -> dict[str, Any]:
    times = member.times(collective, size // 4, graph=how == "graph")
    return {
        "collective": kind,
        "how": how,
        "bytes": size,
        "seconds": statistics.median(times),
        "low_s": min(times),
        "high_s": max(times),
    }


def _gloo(members: tuple[int, ...], rank: int, rendezvous: Rendezvous, stack: contextlib.ExitStack) -> Collective:
    store = rendezvous.path / "gloo.store"
    group = GlooOnHost(RingCollective("gloo", members, rank, torch.device("cpu"), store, timeout_s=TIMEOUT_S))
    stack.callback(group.close)
    return group


def _training() -> TrainingPlan:
    """A training of that name without stages: groups belong to one."""
    return TrainingPlan(
        name="measure",
        mode="sync",
        max_staleness=0,
        seed=0,
        num_env=1,
        horizon=1,
        stratum=1,
        iterations=0,
        checkpoint_every=0,
        precision="f32",
        execution="eager",
        mapping="dp_only",
        on_failure="stop",
        gmi=None,
        stages=(),
        edges=(),
    )


def _repeated(call: Callable[[], None], times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            call()

    return work


def _capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


if __name__ == "__main__":
    main()
