"""Which ports a hosted simulator exchanges with its GMI, and where they lie in the shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gmiflow.plan import TrainingPlan
from gmiflow.runtime.execution.rollout import STATISTICS, Field, Routes, fields_of
from gmiflow.runtime.execution.types import DTYPES, TensorType
from gmiflow.runtime.failure import NOT_SUPPORTED, error
from gmiflow.runtime.foreign import shim

_ALIGNMENT = 256
"""Bytes: whole pairs of cache lines, and what CUDA's allocations guarantee."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class PortField:
    """One tensor of a port.

    Attributes:
        label: for messages: "sim.obs", or "sim.obs.joints" for a field of a record.
        path: names under which the class finds or returns it: the port, and the field of a record.
        type: element type and shape of one step.
        dtype: the element type by its name in the language.
        shape: with the number of environments filled in.
        offset: bytes from the start of the memory.
    """

    label: str
    path: tuple[str, ...]
    type: TensorType
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""
        return self.type.dtype.itemsize * _product(self.shape)

    def to_json(self) -> dict[str, Any]:
        """What the host is told."""
        return {
            "label": self.label,
            "path": list(self.path),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "offset": self.offset,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The ports of one simulator in its GMI.

    Attributes:
        inputs, outputs: what the host reads, and what it writes.
        first: out ports that exist before the first step: those that the agent reads.
        size: bytes, the page of words included.
    """

    inputs: tuple[PortField, ...]
    outputs: tuple[PortField, ...]
    first: tuple[str, ...]
    size: int


def lay_out(training: TrainingPlan, num_env: int) -> Layout:
    """Places for every port of the training's simulator that something reads, and for the episode statistics.

    Raises:
        GMIError: E0710 for an element type that NumPy does not have.
    """
    routes = Routes(training)
    placer = _Placer(routes.simulator, num_env)
    inputs = [
        placer.place((edge.target.partition(".")[2], *_name(field)), field.type)
        for edge in training.edges
        if edge.target.startswith(f"{routes.simulator}.")
        for field in fields_of(edge)
    ]
    read = [field for edge in training.edges for field in fields_of(edge) if field.stage == routes.simulator]
    paths = {(field.port, *_name(field)): field.type for field in read}
    paths.update({(port,): TensorType.parse(text) for port, text in STATISTICS.items() if (port,) not in paths})
    outputs = [placer.place(path, kind) for path, kind in paths.items()]
    first = dict.fromkeys(field.port for field in routes.step_simulator)
    return Layout(inputs=tuple(inputs), outputs=tuple(outputs), first=tuple(first), size=placer.end)


class _Placer:
    """Puts one tensor behind the other.

    Attributes:
        end: bytes used.
    """

    def __init__(self, stage: str, num_env: int) -> None:
        self.end = shim.HEADER_BYTES
        self._stage = stage
        self._num_env = num_env

    def place(self, path: tuple[str, ...], kind: TensorType) -> PortField:
        """The next tensor."""
        label = ".".join((self._stage, *path))
        dtype = _NAMES[kind.dtype]
        if dtype not in shim.DTYPES:
            raise error(
                NOT_SUPPORTED,
                f"{label} has elements of type {dtype}, which NumPy does not have",
                f"a simulator in an interpreter of its own may have ports of {', '.join(shim.DTYPES)}",
            )
        shape = kind.shape(self._num_env)
        field = PortField(label=label, path=path, type=kind, dtype=dtype, shape=shape, offset=self.end)
        self.end += -(-field.bytes // _ALIGNMENT) * _ALIGNMENT
        return field


def _name(field: Field) -> tuple[str, ...]:
    return () if field.field is None else (field.field,)


def _product(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
