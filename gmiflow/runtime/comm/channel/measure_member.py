"""One end of a measured channel: ``python measure_member.py TASK.json``; see `gmiflow.runtime.comm.channel.measure`."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.packer import SlotLayout, TensorMemory
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.ring import Ring, RingShape
from gmiflow.runtime.rendezvous import Rendezvous

SLOTS = 4
_TIMEOUT_S = 60.0


class Crossing(Protocol):
    """One way across, seen by either end."""

    messages: int

    def send(self, pending: int) -> None:
        """Hand over a rollout when fewer than ``pending`` are under way."""
        ...

    def receive(self) -> None:
        """Take a rollout and give its place back."""
        ...

    def drain(self) -> None:
        """On the producer: return when all that was sent has been taken."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Rings:
    """Rings of slots: one for all groups, or one for each kind."""

    def __init__(self, names: Sequence[str], layouts: Sequence[SlotLayout], member: int, *, copy: bool) -> None:
        self._rings = [
            Ring(
                RingShape(name=name, producers=(0,), consumer=1, slots=SLOTS),
                member,
                name,
                layout,
                timeout_s=_TIMEOUT_S,
            )
            for name, layout in zip(names, layouts, strict=True)
        ]
        self.messages = sum(len(layout.groups) for layout in layouts)
        self._layouts = layouts
        self._copy = copy
        device = torch.device("cpu")
        self._sources = [layout.packed(TensorMemory(layout.slot_bytes, device)) for layout in layouts]
        self._slots = [
            [layout.packed(ring, slot * layout.slot_bytes) for slot in range(SLOTS)]
            for ring, layout in zip(self._rings, layouts, strict=True)
        ]

    def send(self, pending: int) -> None:
        """See `Crossing.send`."""
        for ring, sources, slots in zip(self._rings, self._sources, self._slots, strict=True):
            self._wait(ring, pending)
            if self._copy:
                for source, target in zip(sources, slots[ring.slot_to_fill()], strict=True):
                    target.copy_(source)
            ring.publish(0)

    def receive(self) -> None:
        """See `Crossing.receive`."""
        for ring in self._rings:
            wait_for(ring.ready, ring.look)
            with ring.reading():
                pass
        for ring in self._rings:
            ring.release()

    def drain(self) -> None:
        """See `Crossing.drain`."""
        for ring in self._rings:
            self._wait(ring, 1)

    def close(self) -> None:
        """Leave."""
        self._slots.clear()
        for ring in self._rings:
            ring.close()

    @staticmethod
    def _wait(ring: Ring, pending: int) -> None:
        wait_for(lambda: ring.pending < pending, ring.watch.look)


class Socket:
    """One message per tensor, and a byte back for each rollout that was taken."""

    def __init__(self, path: Path, tensors: Sequence[Tensor], member: int) -> None:
        self.messages = len(tensors)
        arrays: list[Any] = [tensor.numpy() for tensor in tensors]  # memoryview takes arrays; their stubs do not say so
        self._buffers = [memoryview(array).cast("B") for array in arrays]
        self._under_way = 0
        self._connection = _listen(path) if member == 1 else _call(path)

    def send(self, pending: int) -> None:
        """See `Crossing.send`."""
        while self._under_way >= pending:
            self._heard()
        for buffer in self._buffers:
            self._connection.sendall(buffer)
        self._under_way += 1

    def receive(self) -> None:
        """See `Crossing.receive`."""
        for buffer in self._buffers:
            got = 0
            while got < len(buffer):
                got += self._connection.recv_into(buffer[got:])
        self._connection.sendall(b".")

    def drain(self) -> None:
        """See `Crossing.drain`."""
        while self._under_way:
            self._heard()

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def _heard(self) -> None:
        self._under_way -= len(self._connection.recv(SLOTS))


def _listen(path: Path) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(_TIMEOUT_S)
        listener.bind(str(path))
        listener.listen(1)
        connection, _ = listener.accept()
    return connection


def _call(path: Path) -> socket.socket:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            connection.connect(str(path))
            return connection
        connection.close()
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at {path}")
        time.sleep(0.001)


def open_way(way: str, plan: LaunchPlan, rendezvous: Rendezvous, member: int) -> Crossing:
    """Join one way across as GMI ``member``."""
    training, channel = plan.trainings[0], plan.channels[0]
    kinds = Dispenser(training).kinds
    size = {"horizon": training.horizon, "num_env": channel.num_env}
    if way == "socket":
        tensors = [torch.zeros(kind.shape(**size), dtype=kind.dtype).flatten().view(torch.uint8) for kind in kinds]
        return Socket(rendezvous.path / "measure.sock", tensors, member)
    if way == "per_tensor":
        names = [rendezvous.segment(f"{way}.{index}") for index in range(len(kinds))]
        layouts = [SlotLayout([kind], [[kind.name]], **size) for kind in kinds]
        return Rings(names, layouts, member, copy=True)
    layout = SlotLayout(kinds, channel.groups, **size)
    return Rings([rendezvous.segment(way)], [layout], member, copy=way == "packed")


def produce(crossing: Crossing, rollouts: int) -> dict[str, Any]:
    """Send all rollouts, first one at a time, then with several under way; the times."""
    times: list[float] = []
    warm_up = max(1, rollouts // 10)
    for index in range(warm_up + rollouts):
        start = time.perf_counter()
        crossing.send(1)
        crossing.drain()
        if index >= warm_up:
            times.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(rollouts):
        crossing.send(SLOTS)
    crossing.drain()
    times.sort()
    return {
        "lockstep_s": statistics.median(times),
        "low_s": times[len(times) // 10],
        "high_s": times[-1 - len(times) // 10],
        "pipelined_s": (time.perf_counter() - start) / rollouts,
    }


def main() -> None:
    """Measure, and write the rows from the producer."""
    file = Path(sys.argv[1])
    work: dict[str, Any] = json.loads(file.read_text())
    plan = LaunchPlan.from_json((file.parent / "plan.json").read_text())
    member, rollouts = int(work["gmi"]), int(work["rollouts"])
    training, channel = plan.trainings[0], plan.channels[0]
    size = sum(kind.size_bytes(training.horizon, channel.num_env) for kind in Dispenser(training).kinds)
    rendezvous = Rendezvous.join(Path(work["rendezvous"]))
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for way in work["ways"]:
        crossing = open_way(way, plan, rendezvous, member)
        if member == 0:
            messages = 1 if way == "direct" else crossing.messages
            rows.append({"way": way, "bytes": size, "messages": messages, **produce(crossing, rollouts)})
        else:
            for _ in range(max(1, rollouts // 10) + 2 * rollouts):
                crossing.receive()
        crossing.close()
    if member == 0:
        (file.parent / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
