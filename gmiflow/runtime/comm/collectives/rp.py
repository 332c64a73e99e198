"""`rp`: a ring over GMIs on different GPUs, by NCCL (gloo on the CPU, where it is the reference of the tests).

Process groups are made directly on a store of their own, never through torch.distributed's global
state: one process can be a member of several groups, and nothing else in it notices.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.cuda import nccl

from gmiflow.hardware import MULTI_RANK_NCCL
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, NOT_SUPPORTED, PEER_LOST, GMIError, error

logger = logging.getLogger(__name__)

TIMEOUT_S = 300.0
CLOSE_S = 10.0
"""How long the end of a run waits for NCCL to let go."""

_OPERATIONS = {
    "sum": distributed.ReduceOp.SUM,
    "max": distributed.ReduceOp.MAX,
    "min": distributed.ReduceOp.MIN,
}


class RingCollective(Collective):
    """A member of a group with one GMI per GPU. Calls on the GPU are enqueued and can be captured.

    NCCL names no culprit: a member that does not come is reported as a time-out of the group, and
    by torch's watchdog, which ends the process when a GPU collective hangs longer than the time-out.
    """

    def __init__(
        self,
        name: str,
        members: tuple[int, ...],
        rank: int,
        device: torch.device,
        store_path: Path,
        *,
        uuids: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        several_per_gpu: bool = False,
    ) -> None:
        """Connect and reduce once; all members do so at the same time.

        Args:
            name: name in the plan.
            members: GMI ids in rank order.
            rank: index of this member.
            device: a GPU for NCCL, the CPU for gloo.
            store_path: file by which the members find each other; new, and the same for all.
            uuids: `gpu_uuid` of every member, so that two on one GPU are refused with their names.
            timeout_s: how long a call may take.
            several_per_gpu: have NCCL admit several members on one GPU (`nccl_multirank`); the first group of NCCL that
                the process joins.

        Raises:
            GMIError: E0710 when two members share a GPU and NCCL does not admit it; E0705.
        """
        super().__init__(name, members, rank)
        self._device = device
        self._timeout_s = timeout_s
        self.capturable = device.type == "cuda"
        if several_per_gpu:
            self._admit_several()
        if len(set(uuids)) < len(uuids) and not multi_rank_enabled(nccl_version(), os.environ):
            raise self._shared_gpu(uuids)
        store = distributed.FileStore(str(store_path), self.size)
        store.set_timeout(timedelta(seconds=timeout_s))
        self._group: Any = self._connect(store)
        trial = torch.ones(1, device=device)
        self._all_reduce(trial, "sum")  # NCCL connects at the first call, which must not be a captured one
        if float(trial) != self.size:
            raise error(NOT_SUPPORTED, f"the trial reduction of {name} gave {float(trial)} instead of {self.size}")

    def close(self) -> None:
        """Leave the group; the peers must not wait for this member any more."""
        if self._group is not None:
            if self._device.type == "cuda":
                try:
                    torch.cuda.synchronize(self._device)
                except RuntimeError as broken:
                    logger.warning("%s is not closed in order: %s", self.name, str(broken).partition("\n")[0])
                else:
                    self._shut_down()
            self._group = None

    def _shut_down(self) -> None:
        """Destroy NCCL's communicator, which waits for every graph that holds its kernels; not for ever.

        Whoever captured them releases them first. A graph that something still refers to must not keep a run that
        has ended from ending.
        """
        gc.collect()
        thread = threading.Thread(target=self._group.shutdown, name=f"close {self.name}", daemon=True)
        thread.start()
        thread.join(CLOSE_S)
        if thread.is_alive():
            logger.warning("%s is not closed within %g s: a CUDA graph still holds its kernels", self.name, CLOSE_S)

    def _connect(self, store: distributed.Store) -> object:
        timeout = timedelta(seconds=self._timeout_s)
        if self._device.type != "cuda":
            return distributed.ProcessGroupGloo(
                distributed.PrefixStore(self.name, store), self.rank, self.size, timeout
            )
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = timeout
        torch.cuda.set_device(self._device)
        return distributed.ProcessGroupNCCL(distributed.PrefixStore(self.name, store), self.rank, self.size, options)

    def _admit_several(self) -> None:
        """Set the variables that NCCL reads when the process joins its first group; what is set already stays."""
        version = nccl_version()
        variables = multi_rank_environment(version)
        if variables is None:
            shown, needed = (".".join(map(str, numbers)) for numbers in (version, MULTI_RANK_NCCL))
            raise error(
                NOT_SUPPORTED,
                f"{self.name} puts several members on a GPU, and NCCL {shown} takes one; NCCL {needed} and newer can",
                "leave `collective = auto`, or install a torch that carries a newer NCCL",
            )
        for name, value in variables.items():
            os.environ.setdefault(name, value)

    def _shared_gpu(self, uuids: Sequence[str]) -> GMIError:
        shared = next(uuid for uuid in uuids if uuids.count(uuid) > 1)
        names = ", ".join(f"GMI {gmi}" for gmi, uuid in zip(self.members, uuids, strict=True) if uuid == shared)
        return error(NOT_SUPPORTED, f"{names} of {self.name} share a GPU, and NCCL takes one member per GPU")

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        options = distributed.AllreduceOptions()
        options.reduceOp = _OPERATIONS[op]  # pyright: ignore[reportAttributeAccessIssue] - the stub is too narrow
        self._wait(lambda: self._group.allreduce([flat], options))

    def _broadcast(self, flat: Tensor, root: int) -> None:
        options = distributed.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        self._wait(lambda: self._group.broadcast([flat], options))

    def _barrier(self) -> None:
        token = torch.zeros(1, device=self._device)
        self._all_reduce(token, "sum")
        if self._device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(self._device)

    def _wait(self, start: Any) -> None:  # noqa: ANN401 - a callable that gives torch's Work
        """Enqueue (NCCL) or finish (gloo) an operation, turning torch's errors into ours."""
        try:
            start().wait()
        except RuntimeError as failure:  # torch.distributed.DistBackendError is one
            raise self._translated(failure) from failure

    def _translated(self, failure: RuntimeError) -> GMIError:
        late = "timed out" in str(failure).lower() or "timeout" in str(failure).lower()
        others = ", ".join(f"GMI {gmi}" for gmi in self.members if gmi != self.members[self.rank])
        if late:
            text = f"one of {others} did not come to the collective {self.name} within {self._timeout_s:g} s"
            return error(COLLECTIVE_TIMED_OUT, text, str(failure))
        return error(PEER_LOST, f"the collective {self.name} with {others} broke", str(failure))


def gpu_uuid(device: torch.device) -> str:
    """Name of a GPU that is the same in every process; "cpu" for the CPU."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else "cpu"


def nccl_version() -> tuple[int, ...]:
    """Version of the NCCL that torch carries."""
    return tuple(int(part) for part in nccl.version()[:3])


def multi_rank_environment(version: tuple[int, ...]) -> dict[str, str] | None:
    """Variables with which NCCL of ``version`` admits several ranks on one GPU; None when it cannot.

    They must be set before the process joins its first group of NCCL. NVLink multicast does not work with it, and the
    ranks' kernels must fit the GPU together.
    """
    if version[:2] < MULTI_RANK_NCCL:
        return None
    return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "8"}


def multi_rank_enabled(version: tuple[int, ...], environment: Mapping[str, str]) -> bool:
    """Whether this process may share its GPU with another rank of the same NCCL group."""
    return multi_rank_environment(version) is not None and environment.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
