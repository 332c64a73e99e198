"""What an edge moves between two GMIs in a step, and through which memory: for channels of either kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Edge, RecordType, TensorType
from gmiflow.plan import ChannelKind
from gmiflow.profiles.volumes import DTYPE_BYTES

__all__ = ["memory_between", "step_bytes", "tensors_of", "why_host"]


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


def why_host(sized: SizedWorkflow, members: Sequence[Slice]) -> str:
    """Why slots lie in memory of the host though their members are on GPUs; "" where they do not, or are not."""
    target = sized.mapped.workflow.target
    if target.device == "cpu" or memory_between(sized, members) != "host":
        return ""
    if sized.backend not in ("mps", "timeshare"):
        return f"slices of backend `{sized.backend}` do not map each other's memory"
    if sized.gpus_here < target.devices:
        return (
            f"this machine, which compiles, has {sized.gpus_here or 'none'} of the target's {target.devices} GPUs; "
            "compiled where they are, and map each other's memory, it is `p2p`"
        )
    return "the GPUs of this machine do not map each other's memory, which `p2p` needs"
