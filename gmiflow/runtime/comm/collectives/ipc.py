"""`ipc`: collectives among GMIs that share one GPU, through device memory.

Every member has one slab, allocated once, exported once (CUDA IPC) and mapped once by each peer of another
process; peers of the same process have its address.
A call is one kernel per member on the caller's stream; how the kernels meet is told in
``ipc_kernels.cu``. Two handshakes:

- "device": the kernels meet through flags in the slabs. Needs the members' kernels on the GPU at the
  same time, so all members must be clients of one MPS server, or streams of one process. Can be captured in
  a CUDA graph.
- "host": without MPS the driver gives the GPU to one process at a time, and a kernel that waits for
  another process would burn its whole time slice. So each phase is a kernel of its own and the
  processes meet on the host in between. Cannot be captured.

Failures: a kernel that waits too long reports and ends. The report is in host memory, so that
`check` sees it without a device synchronisation; every call checks on entry. After a failure the
group is of no further use.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from gmiflow.runtime.comm.collectives import ipc_layout as layout
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.exchange import HostExchange
from gmiflow.runtime.failure import LAUNCH_FAILED, NOT_SUPPORTED, GMIError, error

CAPACITY_BYTES = 16 << 20
"""Bytes of one launch; a slab holds twice as much. Longer tensors go in several launches."""
ONE_SHOT_BYTES = 256 << 10
"""Tensors up to this size are reduced by every member whole: one meeting fewer, more bytes read."""
MAX_CTAS = 32
TIMEOUT_S = 300.0

log = logging.getLogger(__name__)


def load_driver() -> ModuleType:
    """The module that talks to CUDA.

    Raises:
        GMIError: E0710 when cuda-bindings is not installed.
    """
    try:
        from gmiflow.runtime.comm.collectives import cuda_driver
    except ImportError as missing:
        raise error(NOT_SUPPORTED, 'the collective `ipc` needs cuda-bindings: install "gmiflow[gpu]"') from missing
    return cuda_driver


class SlabCollective(Collective):
    """A member of a group of processes on one GPU.

    Calls must be ordered by one stream (or by events between streams), as all members make them in
    the same order.

    Attributes:
        handshake: "device" or "host".
        ctas: thread blocks of a launch at most.
    """

    def __init__(
        self,
        name: str,
        members: tuple[int, ...],
        exchange: HostExchange,
        device: torch.device,
        *,
        handshake: Literal["auto", "device", "host"] = "auto",
        capacity_bytes: int = CAPACITY_BYTES,
        one_shot_bytes: int = ONE_SHOT_BYTES,
        max_ctas: int = MAX_CTAS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Allocate, exchange and map the slabs, load the kernels, and reduce once to prove it all.

        Collective over the exchange. Options must be the same on all members.

        Args:
            name: name in the plan.
            members: GMI ids in rank order.
            exchange: the same members on the host.
            device: the GPU.
            handshake: "auto" takes "device" where all members run under MPS, or in one process.
            capacity_bytes: see `CAPACITY_BYTES`.
            one_shot_bytes: see `ONE_SHOT_BYTES`.
            max_ctas: thread blocks at most; fewer where the shares are small.
            timeout_s: how long a kernel waits for the peers' kernels.

        Raises:
            GMIError: E0710 when the members are not on one GPU, or a device handshake is asked for
                among processes without MPS; E0711 when a mapped slab is not the peer's; E0705 when a member is late.
        """
        super().__init__(name, members, exchange.rank)
        if not 2 <= self.size <= layout.MEMBERS_LIMIT:
            raise ValueError(f"a group of `ipc` has 2 to {layout.MEMBERS_LIMIT} members, not {self.size}")
        self._cuda = load_driver()
        self._exchange = exchange
        self._device = device
        self._half_bytes = -(-capacity_bytes // layout.PACK_BYTES) * layout.PACK_BYTES
        self._one_shot_bytes = one_shot_bytes
        self._timeout_ns = int(timeout_s * 1e9)
        self._schedules: dict[tuple[int, int, int], tuple[layout.Step, ...]] = {}
        self._closed = False
        self._load(max_ctas)
        peers = self._attach()
        self.handshake = self._choose_handshake(handshake, peers)
        self.capturable = self.handshake == "device"
        self.ctas = min(int(peer["ctas"]) for peer in peers)
        self._prove()

    def reduce(self, flat: Tensor, root: int, op: str = "sum") -> None:
        """As `all_reduce`, but only rank ``root`` gets the result; the others' tensors keep their values or not."""
        self._validate(flat, op)
        if flat.numel() > 0:
            with self._timed():
                self._reduce(flat, op, root)

    def check(self) -> None:
        """Look for a failure of work that the GPU has done; does not wait for the GPU.

        Raises:
            GMIError: E0705 that names the missing member.
        """
        if self._report[0]:
            failure = layout.report_failure(self.name, self.members, self.rank, self._report.tolist())
            if failure is not None:
                raise failure

    def lost_peer(self) -> int | None:
        """As the base class; a process that ends takes its slab along, and who uses the slab then gets a fault."""
        return self._exchange.lost_peer()

    def abort(self, missing: int) -> None:
        """End this member's waiting kernels at once, because rank ``missing`` will not come. Any thread may call."""
        verdict = (missing + 1) << 32 | (self.rank + 1)
        self._cuda.write(self._slab.address + layout.ABORT_OFFSET, verdict.to_bytes(8, "little"))

    def close(self) -> None:
        """Unmap the peers' slabs, then free the own one; after a failure without waiting for the peers."""
        if self._closed:
            return
        self._closed = True
        try:
            self._cuda.synchronize(self._device)
        except RuntimeError as broken:
            # A fault has ended this process's use of the GPU; the driver frees everything when it exits.
            log.warning("%s is not closed in order: %s", self.name, str(broken).partition("\n")[0])
            return
        whole = not self._failed() and self._meet_to_close()
        for slab in self._imported:
            slab.close()
        if whole:
            self._meet_to_close()
        self._slab.close()
        self._module.close()

    # ---- starting ---------------------------------------------------------------------------------------------

    def _load(self, max_ctas: int) -> None:
        """Compile and load the kernels; allocate the slab and the private words."""
        cuda = self._cuda
        self._about = cuda.describe(self._device)
        names = [*layout.KERNELS.values(), layout.BROADCAST_KERNEL]
        constants = layout.kernel_constants(self.size)
        self._module = cuda.Module(layout.kernel_source(), constants, self._about.capability, names)
        resident = self._module.ctas_per_sm(layout.THREADS)
        self._own_ctas = layout.resident_ctas(self._about.sm_count, resident, self.size, max_ctas)
        if self._own_ctas == 0:
            raise error(
                NOT_SUPPORTED,
                f"{self.size} members with {self._about.sm_count} multiprocessors each are too many for `ipc`",
            )
        self._slab = cuda.Slab(layout.slab_bytes(self._half_bytes))
        self._state = cuda.device_words(layout.STATE_WORDS, self._device)
        self._report_words = cuda.host_words(layout.REPORT_WORDS)
        self._report = self._report_words.numpy()

    def _attach(self) -> list[dict[str, Any]]:
        """Map all slabs and verify that each is the one that its owner means."""
        page = secrets.token_bytes(layout.PAGE_BYTES)
        self._cuda.write(self._slab.address, page)
        peers = self._exchange.gather(
            {
                "handle": self._slab.export().hex(),
                "uuid": self._about.uuid,
                "mps": self._about.mps,
                "process": self._about.process,
                "address": self._slab.address,
                "ctas": self._own_ctas,
                "half": self._half_bytes,
                "one_shot": self._one_shot_bytes,
                "checksum": zlib.crc32(page),
            }
        )
        self._require_equal(peers, "uuid", "are not on one GPU (or not in one MIG instance)")
        self._require_equal(peers, "half", "have slabs of different size")
        self._require_equal(peers, "one_shot", "have different thresholds")
        self._imported: list[Any] = []
        addresses = [self._address_of(peer) for peer in peers]
        for gmi, peer, address in zip(self.members, peers, addresses, strict=True):
            if zlib.crc32(self._cuda.read(address, layout.PAGE_BYTES)) != peer["checksum"]:
                raise error(LAUNCH_FAILED, f"the slab of GMI {gmi} in {self.name} has a wrong checksum")
        self._state[layout.SLABS : layout.SLABS + self.size] = torch.tensor(addresses)
        self._cuda.synchronize(self._device)
        return peers

    def _address_of(self, peer: dict[str, Any]) -> int:
        """Where this process sees the slab of a member: its own, or one of the same process, is there already."""
        if peer["process"] == self._about.process:
            return int(peer["address"])
        slab = self._cuda.ImportedSlab(bytes.fromhex(peer["handle"]))
        self._imported.append(slab)
        return slab.address

    def _require_equal(self, peers: list[dict[str, Any]], key: str, text: str) -> None:
        if any(peer[key] != peers[0][key] for peer in peers):
            values = ", ".join(f"GMI {gmi}: {peer[key]}" for gmi, peer in zip(self.members, peers, strict=True))
            raise error(NOT_SUPPORTED, f"the members of {self.name} {text}", values)

    def _choose_handshake(self, wanted: str, peers: list[dict[str, Any]]) -> Literal["device", "host"]:
        concurrent = all(peer["mps"] for peer in peers) or len({peer["process"] for peer in peers}) == 1
        if wanted == "device" and not concurrent:
            raise error(
                NOT_SUPPORTED,
                f"the members of {self.name} are not all under MPS, so their kernels cannot wait for each other",
                "the host handshake works there, outside of CUDA graphs",
            )
        return "device" if concurrent and wanted != "host" else "host"

    def _prove(self) -> None:
        """Reductions with a known result: flags, epochs and kernels work before anything depends on them.

        The first meets on the host, so that all that is loaded at first use is there before a kernel waits on the GPU
        for one that this process has yet to start.
        """
        handshake, self.handshake = self.handshake, "host"
        self._prove_once(0)
        self.handshake = handshake
        for one_shot_bytes in (0, 1 << 30):
            self._prove_once(one_shot_bytes)
        self._exchange.barrier()

    def _prove_once(self, one_shot_bytes: int) -> None:
        count = layout.PACK_BYTES * layout.THREADS  # enough for all members to own a shard
        expected = self.size * (self.size + 1) // 2
        probe = torch.full((count + 1,), self.rank + 1, dtype=torch.int64, device=self._device)
        self._launch_all(probe, layout.KERNELS[probe.dtype], "sum", layout.EVERYBODY, one_shot_bytes)
        self._cuda.synchronize(self._device)
        self.check()
        if not bool((probe == expected).all()):
            raise error(LAUNCH_FAILED, f"the trial reduction of {self.name} gave a wrong sum")

    # ---- calls ------------------------------------------------------------------------------------------------

    def _all_reduce(self, flat: Tensor, op: str) -> None:
        self._reduce(flat, op, layout.EVERYBODY)

    def _reduce(self, flat: Tensor, op: str, root: int) -> None:
        aligned = self._aligned(flat)
        self._launch_all(aligned, layout.KERNELS[flat.dtype], op, root, self._one_shot_bytes)
        if aligned is not flat:
            flat.copy_(aligned)

    def _broadcast(self, flat: Tensor, root: int) -> None:
        aligned = self._aligned(flat)
        self._launch_all(aligned.view(torch.uint8), layout.BROADCAST_KERNEL, "sum", root, self._half_bytes)
        if aligned is not flat:
            flat.copy_(aligned)

    def _barrier(self) -> None:
        """In a captured graph only the streams meet; otherwise the host waits too."""
        self._launch(0, layout.Step(0, 0, 1, layout.ONE_SHOT), layout.BROADCAST_KERNEL, "sum", 0)
        if not self._cuda.capturing():
            self._cuda.synchronize(self._device)
            self.check()

    @staticmethod
    def _aligned(flat: Tensor) -> Tensor:
        """The tensor, or a copy that starts at a multiple of 16 bytes, which the kernels need."""
        return flat if flat.data_ptr() % layout.PACK_BYTES == 0 else flat.clone()

    def _launch_all(self, flat: Tensor, kernel: str, op: str, root: int, one_shot_bytes: int) -> None:
        self.check()
        key = (flat.numel(), flat.element_size(), one_shot_bytes)
        steps = self._schedules.get(key)
        if steps is None:
            steps = self._schedules[key] = layout.schedule(
                flat.numel(), flat.element_size(), self.size, self._half_bytes, self.ctas, one_shot_bytes
            )
        for step in steps:
            self._launch(flat.data_ptr() + step.first * flat.element_size(), step, kernel, op, root)

    def _launch(self, address: int, step: layout.Step, kernel: str, op: str, root: int) -> None:
        """Enqueue one step: one kernel, or with the host handshake one per phase."""
        stream = self._cuda.current_stream(self._device)
        arguments = layout.Arguments(
            user=address,
            elements=step.elements,
            state=self._state.data_ptr(),
            report=self._report_words.data_ptr(),
            timeout_ns=self._timeout_ns,
            half_bytes=self._half_bytes,
            rank=self.rank,
            root=root,
            op=layout.OPERATION_CODES[op],
            algorithm=step.algorithm,
            phases=layout.ALL_PHASES,
        )
        if self.handshake == "device":
            self._module.launch(kernel, step.ctas, layout.THREADS, stream, arguments)
            return
        if self._cuda.capturing():
            raise error(NOT_SUPPORTED, f"{self.name} cannot be captured in a CUDA graph: its members are not under MPS")
        for phases in layout.host_phases(step.algorithm):
            if phases != layout.COPY_IN:
                self._cuda.synchronize(self._device)
                self._exchange.barrier()
            arguments.phases = phases
            self._module.launch(kernel, step.ctas, layout.THREADS, stream, arguments)

    def _failed(self) -> bool:
        """Whether this member failed, or its peers gave it up."""
        verdict = self._cuda.read(self._slab.address + layout.ABORT_OFFSET, 8)
        return bool(self._report[0]) or any(verdict)

    def _meet_to_close(self) -> bool:
        """Wait until nobody uses this member's slab any more; a lost peer does not."""
        try:
            self._exchange.barrier()
        except GMIError as failure:
            log.warning("closing %s without its peers: %s", self.name, failure)
            return False
        return True
