"""`mps`: processes that share a GPU through a private MPS daemon, each with a share of the SMs and a memory cap.

The share is a ceiling, not a reservation, except where the driver has static partitions: then each GMI gets SMs of its
own. A client that does not find its daemon would silently run without MPS, so every GMI proves that it is attached.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from gmiflow.hardware import GPU, detect
from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import GMI_DIED, GPU_FAULT, LAUNCH_FAILED, SLICE_UNPROVEN, RuntimeFailure, error
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.gpu import memory_failure, planned_gpus, visible_sms
from gmiflow.runtime.gmi.mps_client import (
    PARTITION,
    PERCENTAGE,
    client_environment,
    max_clients,
    most_sms,
    own_server,
    static_partitions_available,
    static_partitions_fit,
)
from gmiflow.runtime.gmi.mps_control import BINARY, MPSControlError, StaticPartition, find_binary
from gmiflow.runtime.gmi.mps_daemon import OPEN_FILES_WANTED, MPSDaemon, raise_open_file_limit, reap_stale
from gmiflow.runtime.gmi.mps_logs import LogTail, client_error
from gmiflow.runtime.gmi.nvml import cuda_driver_version
from gmiflow.runtime.gmi.probe import PROBE_TIMEOUT_S, CUDAView, probe_cuda
from gmiflow.runtime.gmi.process import wait_until
from gmiflow.runtime.gmi.timeshare import refuse_compute_mode

logger = logging.getLogger(__name__)

RECOVER_TIMEOUT_S: Final = 30.0
_RECOVER_ATTEMPTS: Final = 3
_CHUNK_SMS: Final = 8  # SMs in one chunk of a static partition
_ROUNDING: Final = 1e-3  # of a chunk: plans give shares six digits


@dataclass(kw_only=True)
class _Served:
    """One GPU and the daemon that serves it."""

    gpu: GPU
    daemon: MPSDaemon
    log: LogTail
    gmis: tuple[GMIPlan, ...]
    partitions: dict[int, StaticPartition] = field(default_factory=dict[int, StaticPartition])


class MPSBackend(GMIBackend):
    """GMIs as clients of one private daemon per GPU."""

    name: ClassVar[Backend] = "mps"

    def __init__(self, *, static_partitions: bool | None = None) -> None:
        """Without daemons until `prepare`.

        Args:
            static_partitions: give each GMI SMs of its own; None tries it where the driver has it and the shares fit.
        """
        self._static = static_partitions
        self._served: dict[int, _Served] = {}
        self._binary = ""
        self._logs = Path()

    @property
    def daemons(self) -> dict[int, MPSDaemon]:
        """The running daemons by device."""
        return {device: served.daemon for device, served in self._served.items()}

    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Start a daemon per GPU, after cleaning up behind jobs that died.

        Raises:
            GMIError: E0711; what was started is taken away by `release`.
        """
        gpus = planned_gpus(gmis)
        binary = find_binary()
        if binary is None:
            raise error(
                LAUNCH_FAILED,
                f"{BINARY} is not installed, so there is no MPS",
                "it is part of the NVIDIA driver's tools (package nvidia-compute-utils or the driver's own installer)",
                "the backend timeshare needs nothing",
            )
        self._binary, self._logs = binary, run_dir.resolve() / "logs"
        if raise_open_file_limit() < OPEN_FILES_WANTED:
            logger.warning("the limit of open files is below %d: many MPS clients may not fit", OPEN_FILES_WANTED)
        try:
            for uuid in reap_stale():
                logger.info("stopped the MPS daemon that a job which died had left on %s", uuid)
            for device, gpu in gpus.items():
                members = tuple(gmi for gmi in gmis if gmi.device == device)
                check_gpu(device, gpu, len(members))
                self._serve(device, gpu, members)
        except MPSControlError as reason:
            raise error(LAUNCH_FAILED, f"MPS does not start: {reason}", f"its logs are in {self._logs}") from reason

    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """The GPU, its daemon, the share of the SMs and the memory cap."""
        served = self._served[gmi.device]
        return client_environment(gmi, served.gpu.uuid, served.daemon.control, served.partitions.get(gmi.id))

    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """The process is a client of its daemon and sees its share of the SMs.

        Raises:
            GMIError: E0712 when it runs outside of MPS, or sees more than its share.
        """
        gpus = detect().gpus
        total = gpus[0].sm_count if gpus else 0
        seen = visible_sms()
        server, why = own_server()
        limited = total > 0 and gmi.share < 1 and seen < total
        if server is None and not limited:
            raise error(SLICE_UNPROVEN, f"GMI {gmi.id} runs without MPS: it is not a client of its daemon", why)
        most = most_sms(gmi.share, total)
        if total and seen > most:
            percent = os.environ.get(PERCENTAGE, "no")
            raise error(
                SLICE_UNPROVEN,
                f"GMI {gmi.id} sees {seen} of {total} SMs, more than the {most} of its share {gmi.share:g}",
                f"it was started with {percent} active thread percentage",
            )
        return {
            "uuid": gpus[0].uuid if gpus else "",
            "sm_count": seen,
            "gpu_sm_count": total,
            "mps_server": server,
            "memory_cap_mib": gmi.memory_mib,
            "static_partition": os.environ.get(PARTITION),
        }

    def check(self) -> RuntimeFailure | None:
        """A fault that the server handles, or a daemon that ended; both stand for all GMIs of that GPU."""
        for device, served in self._served.items():
            events = served.log.events()
            cohort = ", ".join(str(gmi.id) for gmi in served.gmis)
            if any(event.kind == "fatal_fault" for event in events):
                guilty = sorted({event.subject for event in events if event.kind == "client_faulted"})
                return RuntimeFailure(
                    code=GPU_FAULT,
                    message=f"a fault on GPU {device} hit every GMI there ({cohort})",
                    notes=(
                        *(f"the MPS server blames process {pid}" for pid in guilty),
                        "all of them have to end before the MPS server takes new ones",
                        f"the server's log is {served.daemon.control.log_directory / 'server.log'}",
                    ),
                )
            if not served.daemon.alive:
                return RuntimeFailure(
                    code=GPU_FAULT,
                    message=f"the MPS daemon of GPU {device} ended under its GMIs ({cohort})",
                    notes=(f"its log is {served.daemon.control.log_directory / 'control.log'}",),
                )
        return None

    def explain(self, gmi: GMIPlan, output: str) -> RuntimeFailure | None:
        """Memory that ran out, and the errors that only clients of MPS see."""
        if failure := memory_failure(gmi, output):
            return failure
        known = client_error(output)
        if known is None:
            return None
        code = GPU_FAULT if known.fault else GMI_DIED if known.code == 810 else LAUNCH_FAILED
        count = sum(other.device == gmi.device for served in self._served.values() for other in served.gmis)
        hints = {
            808: f"{count} GMIs are planned on this GPU",
            809: f"{count} GMIs are planned on this GPU",
            807: "every GMI of the GPU has to end first",
        }
        notes = [f"CUDA error {known.code}, {known.name}", *filter(None, [hints.get(known.code)])]
        return RuntimeFailure(
            code=code, message=f"GMI {gmi.id} on GPU {gmi.device}: {known.meaning}", notes=tuple(notes)
        )

    def quiesce(self, pid: int) -> None:
        """Have the server take the client off the GPU: a SIGKILL with work in flight would be undefined behaviour."""
        for served in self._served.values():
            try:
                server = served.daemon.control.attached(pid)
                if server is not None:
                    served.daemon.control.terminate_client(server, pid)
            except MPSControlError as reason:
                logger.warning("MPS does not take process %d off GPU %s: %s", pid, served.gpu.uuid, reason)

    def recover(self) -> None:
        """Wait until every server is free of clients and active, restart the daemons that are not, and probe CUDA.

        A server may learn of a fault only with its next client, which then fails with it: the probe tries again
        on a new daemon.

        Raises:
            GMIError: E0711 when CUDA does not start on a GPU.
        """
        for device in list(self._served):
            view = self._probe_after_fault(device, restart=False)
            for _ in range(_RECOVER_ATTEMPTS):
                if view.ok:
                    break
                logger.warning("GPU %d does not work yet: %s", device, view.error)
                view = self._probe_after_fault(device, restart=True)
            if not view.ok:
                raise error(LAUNCH_FAILED, f"GPU {device} does not recover: {view.error}")

    def _probe_after_fault(self, device: int, *, restart: bool) -> CUDAView:
        """Try CUDA as the next GMI will see it, on a new daemon if need be."""
        served = self._served[device]
        if restart or not wait_until(lambda: _is_idle(served.daemon), RECOVER_TIMEOUT_S):
            self._restart(device, served)
        served = self._served[device]
        served.log.events()  # the fault that is over is not reported again
        probed = client_environment(served.gmis[0], served.gpu.uuid, served.daemon.control, None)
        view = probe_cuda(probed, PROBE_TIMEOUT_S)
        served.log.events()  # nor what the probe met
        return view

    def release(self) -> None:
        """Stop the daemons."""
        for served in self._served.values():
            served.daemon.stop()
        self._served.clear()

    def _restart(self, device: int, served: _Served) -> None:
        served.daemon.stop()
        try:
            self._serve(device, served.gpu, served.gmis)
        except MPSControlError as reason:
            raise error(LAUNCH_FAILED, f"MPS does not start again on GPU {device}: {reason}") from reason

    def _serve(self, device: int, gpu: GPU, gmis: tuple[GMIPlan, ...]) -> None:
        """Start the daemon of one GPU, with static partitions where they work."""
        wanted = self._static
        if wanted is None:
            wanted = static_partitions_fit(gmis) and static_partitions_available(self._binary)
        if wanted and self._serve_static(device, gpu, gmis):
            return
        if self._static:
            raise error(LAUNCH_FAILED, f"the driver has no static SM partitions for GPU {device}")
        self._served[device] = self._started(device, gpu, gmis, static=False)

    def _serve_static(self, device: int, gpu: GPU, gmis: tuple[GMIPlan, ...]) -> bool:
        """Try static partitions; a process that runs in the first one is the proof. Leaves nothing when it fails."""
        try:
            served = self._started(device, gpu, gmis, static=True)
        except MPSControlError as reason:
            logger.info("no static SM partitions on GPU %d: %s", device, reason)
            return False
        self._served[device] = served  # from here on `release` stops the daemon
        try:
            for gmi in gmis:
                chunks = max(1, math.floor(gmi.share * gpu.sm_count / _CHUNK_SMS + _ROUNDING))
                served.partitions[gmi.id] = served.daemon.control.add_static_partition(gpu.uuid, chunks)
            first = gmis[0]
            view = probe_cuda(client_environment(first, gpu.uuid, served.daemon.control, served.partitions[first.id]))
            if view.ok and 0 < view.sm_count <= most_sms(first.share, gpu.sm_count):
                return True
            logger.info("static SM partitions on GPU %d do not hold: %s", device, view)
        except MPSControlError as reason:
            logger.info("no static SM partitions on GPU %d: %s", device, reason)
        served.daemon.stop()
        del self._served[device]
        return False

    def _started(self, device: int, gpu: GPU, gmis: tuple[GMIPlan, ...], *, static: bool) -> _Served:
        daemon = MPSDaemon.start(
            gpu.uuid, self._binary, log_directory=self._logs / f"mps_gpu_{device}", static_partitions=static
        )
        try:
            daemon.control.start_server(os.getuid())  # else the first GMI waits for it
        except MPSControlError as reason:
            logger.debug("the MPS server starts with its first client: %s", reason)
        log = LogTail(daemon.control.log_directory / "server.log")
        log.events()  # what an earlier daemon of this run wrote is history
        return _Served(gpu=gpu, daemon=daemon, log=log, gmis=gmis)


def check_gpu(device: int, gpu: GPU, clients: int) -> None:
    """Refuse a GPU that cannot serve so many clients through MPS.

    Raises:
        GMIError: E0711.
    """
    if gpu.mig:
        raise error(
            LAUNCH_FAILED,
            f"GPU {device} ({gpu.name}) is in MIG mode, which the backend mps does not use",
            "`backend = mig` uses its instances",
        )
    limit = max_clients(cuda_driver_version())
    if clients > limit:
        raise error(LAUNCH_FAILED, f"{clients} GMIs on GPU {device}, but MPS admits {limit} per GPU")
    refuse_compute_mode(device, gpu, exclusive_is_fine=True)


def _is_idle(daemon: MPSDaemon) -> bool:
    """Whether every server of the daemon is active and has no client."""
    try:
        servers = daemon.control.servers()
        return all(
            not daemon.control.clients(server) and "FAULT" not in daemon.control.server_status(server)
            for server in servers
        )
    except MPSControlError:
        return False
