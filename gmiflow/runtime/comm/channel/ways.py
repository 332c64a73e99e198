"""The ways in which a rollout may cross from one process to another, for `measure_member` to time.

On a GPU "direct" and "packed" use slots in its memory as a run does, "per_tensor" a ring of such slots for each tensor;
"host" goes through slots of the host, and "socket" brings every tensor to the host, through the socket, and back.
Between two GPUs the slots are in the memory of the consumer's.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.packer import Memory, SlotLayout, TensorMemory
from gmiflow.runtime.comm.channel.presence import wait_for
from gmiflow.runtime.comm.channel.ring import Ring, RingShape
from gmiflow.runtime.rendezvous import Rendezvous

__all__ = ["SLOTS", "Crossing", "open_way"]

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


def open_way(way: str, plan: LaunchPlan, rendezvous: Rendezvous, member: int, device: torch.device) -> Crossing:
    """Join one way across as GMI ``member``, 0 for the one that sends."""
    training, channel = plan.trainings[0], plan.channels[0]
    kinds = Dispenser(training).kinds
    size = {"horizon": training.horizon, "num_env": channel.num_env}
    if way == "socket":
        tensors = [
            torch.zeros(kind.shape(**size), dtype=kind.dtype, device=device).flatten().view(torch.uint8)
            for kind in kinds
        ]
        return _Socket(rendezvous.path / "measure.sock", tensors, member)
    if way == "per_tensor":
        names = [rendezvous.segment(f"{way}.{index}") for index in range(len(kinds))]
        layouts = [SlotLayout([kind], [[kind.name]], **size) for kind in kinds]
        return _Rings(names, layouts, member, device, copy=True)
    layout = SlotLayout(kinds, channel.groups, **size)
    through_host = way == "host"
    return _Rings([rendezvous.segment(way)], [layout], member, device, copy=way != "direct", through_host=through_host)


class _Rings:
    """Rings of slots: one for all groups, or one for each kind."""

    def __init__(
        self,
        names: Sequence[str],
        layouts: Sequence[SlotLayout],
        member: int,
        device: torch.device,
        *,
        copy: bool,
        through_host: bool = False,
    ) -> None:
        self.messages = sum(len(layout.groups) for layout in layouts)
        self._copy = copy
        self._device = device
        self._through_host = through_host
        self._to_slot: Callable[[Tensor, Tensor], object] = _copied
        self._leaving = contextlib.ExitStack()
        self._rings: list[Ring] = []
        self._slots: list[list[list[Tensor]]] = []
        for name, layout in zip(names, layouts, strict=True):
            ring, memory = self._join(name, layout, member)
            self._rings.append(ring)
            self._slots.append([layout.packed(memory, slot * layout.slot_bytes) for slot in range(SLOTS)])
        self._sources = [layout.packed(TensorMemory(layout.slot_bytes, device)) for layout in layouts]

    def _join(self, name: str, layout: SlotLayout, member: int) -> tuple[Ring, Memory]:
        on_host = self._through_host or self._device.type == "cpu"
        shape = RingShape(name=name, producers=(0,), consumer=1, slots=SLOTS, where="host" if on_host else "device")
        ring = Ring(shape, member, name, layout, timeout_s=_TIMEOUT_S)
        self._leaving.callback(ring.close)
        if on_host:
            return ring, ring
        from gmiflow.runtime.comm.channel.device import DeviceSlots

        slots = DeviceSlots(ring, SLOTS * layout.slot_bytes, self._device, consumer=member == 1)
        self._leaving.callback(slots.close)
        if not slots.near:
            self._to_slot = slots.copy
        return ring, slots

    def send(self, pending: int) -> None:
        """See `Crossing.send`."""
        for ring, sources, slots in zip(self._rings, self._sources, self._slots, strict=True):
            self._wait(ring, pending)
            if self._copy:
                for source, target in zip(sources, slots[ring.slot_to_fill()], strict=True):
                    self._to_slot(source, target)
            _settle(self._device)  # the reader is another process
            ring.publish(0)

    def receive(self) -> None:
        """See `Crossing.receive`."""
        for ring in self._rings:
            wait_for(ring.ready, ring.look)
            with ring.reading() as slot:
                if self._through_host and slot is not None:
                    for source, target in zip(self._slots[0][slot], self._sources[0], strict=True):
                        target.copy_(source)
                    _settle(self._device)
        for ring in self._rings:
            ring.release()

    def drain(self) -> None:
        """See `Crossing.drain`."""
        for ring in self._rings:
            self._wait(ring, 1)

    def close(self) -> None:
        """Leave."""
        self._slots.clear()
        self._leaving.close()

    @staticmethod
    def _wait(ring: Ring, pending: int) -> None:
        wait_for(lambda: ring.pending < pending, ring.watch.look)


class _Socket:
    """One message per tensor, and a byte back for each rollout that was taken."""

    def __init__(self, path: Path, tensors: Sequence[Tensor], member: int) -> None:
        self.messages = len(tensors)
        self._tensors = tensors
        self._on_device = tensors[0].device.type == "cuda"
        # What is sent: the tensors themselves, or their copies in host memory.
        self._staged = [_pinned(tensor) for tensor in tensors] if self._on_device else tensors
        arrays: list[Any] = [staged.numpy() for staged in self._staged]  # memoryview takes them; stubs do not say so
        self._buffers = [memoryview(array).cast("B") for array in arrays]
        self._under_way = 0
        self._connection = _listen(path) if member == 1 else _call(path)

    def send(self, pending: int) -> None:
        """See `Crossing.send`."""
        while self._under_way >= pending:
            self._heard()
        for tensor, staged, buffer in zip(self._tensors, self._staged, self._buffers, strict=True):
            if self._on_device:
                staged.copy_(tensor)
            self._connection.sendall(buffer)
        self._under_way += 1

    def receive(self) -> None:
        """See `Crossing.receive`."""
        for tensor, staged, buffer in zip(self._tensors, self._staged, self._buffers, strict=True):
            got = 0
            while got < len(buffer):
                read = self._connection.recv_into(buffer[got:])
                if not read:
                    raise ConnectionError("the sender has closed the socket")
                got += read
            if self._on_device:
                tensor.copy_(staged)
        self._connection.sendall(b".")

    def drain(self) -> None:
        """See `Crossing.drain`."""
        while self._under_way:
            self._heard()

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def _heard(self) -> None:
        answers = len(self._connection.recv(SLOTS))
        if not answers:
            raise ConnectionError("the receiver has closed the socket")
        self._under_way -= answers


def _pinned(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def _copied(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


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
