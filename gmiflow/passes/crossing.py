"""What an edge moves between two GMIs in a step, and through which memory: for channels of either kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Edge, RecordType, TensorType
from gmiflow.plan import ChannelKind
from gmiflow.profiles.volumes import DTYPE_BYTES

__all__ = ["memory_between", "step_bytes", "tensors_of"]


def tensors_of(edge: Edge) -> Iterator[tuple[str, TensorType]]:
    """The tensors of an edge by label, "stage.port" or "stage.port.field"; none of an edge of weights."""
    label = f"{edge.source_stage}.{edge.source_port}"
    if isinstance(edge.type, RecordType):
        yield from ((f"{label}.{name}", field) for name, field in edge.type.fields)
    elif isinstance(edge.type, TensorType):
        yield label, edge.type


def step_bytes(kind: TensorType, num_env: int) -> int:
    """Bytes of a tensor at one step of ``num_env`` environments."""
    sizes = (num_env if dim == "env" else dim for dim in kind.shape if isinstance(dim, int) or dim == "env")
    return DTYPE_BYTES[kind.dtype] * math.prod(sizes)


def memory_between(sized: SizedWorkflow, members: Sequence[Slice]) -> ChannelKind:
    """Where slots lie: on a GPU when all members are processes that may map its memory."""
    if sized.backend not in ("mps", "timeshare"):
        return "host"
    if len({part.device for part in members}) == 1:
        return "ipc"
    return "p2p" if sized.peer_access else "host"
