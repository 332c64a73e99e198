"""`timeshare`: plain processes on one GPU, which the driver runs in turns. Nothing limits or protects them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gmiflow.hardware import GPU, detect
from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, SLICE_UNPROVEN, RuntimeFailure, error
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.gpu import memory_failure, planned_gpus, visible_sms
from gmiflow.runtime.gmi.nvml import read_gpu, session

_NO_DAEMON = "/nonexistent/gmiflow-without-mps"
"""A pipe directory without a daemon: a client that finds none runs without MPS."""


class TimeshareBackend(GMIBackend):
    """GMIs that take turns on a whole GPU. Needs no daemon and no privileges."""

    name: ClassVar[Backend] = "timeshare"

    def __init__(self) -> None:
        """Without GPUs until `prepare`."""
        self._gpus: dict[int, GPU] = {}

    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Find the GPUs; refuse one whose compute mode lets only one process in.

        Raises:
            GMIError: E0711.
        """
        self._gpus = planned_gpus(gmis)
        for device, gpu in self._gpus.items():
            count = sum(gmi.device == device for gmi in gmis)
            refuse_compute_mode(device, gpu, exclusive_is_fine=count == 1)

    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """The GPU by UUID, and no MPS daemon that happens to run on the machine."""
        return {"CUDA_VISIBLE_DEVICES": self._gpus[gmi.device].uuid, "CUDA_MPS_PIPE_DIRECTORY": _NO_DAEMON}

    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """The process sees one GPU with all its SMs.

        Raises:
            GMIError: E0712 when it sees fewer SMs, so something else limits it.
        """
        gpus = detect().gpus
        seen = visible_sms()
        whole = gpus[0].sm_count if gpus else 0
        if whole and seen < whole and not gpus[0].mig:
            raise error(SLICE_UNPROVEN, f"GMI {gmi.id} sees {seen} of {whole} SMs, though nothing should limit it")
        return {"uuid": gpus[0].uuid if gpus else "", "sm_count": seen, "gpu_sm_count": whole}

    def explain(self, gmi: GMIPlan, output: str) -> RuntimeFailure | None:
        """Memory that ran out."""
        return memory_failure(gmi, output)

    def release(self) -> None:
        """Nothing to take away."""


def refuse_compute_mode(device: int, gpu: GPU, *, exclusive_is_fine: bool) -> None:
    """Check that the GPU's compute mode, which only an administrator changes, admits the processes.

    Raises:
        GMIError: E0711 when it does not.
    """
    with session() as present:
        mode = read_gpu(gpu.uuid).compute_mode if present else "shared"
    if mode == "prohibited" or (mode == "exclusive" and not exclusive_is_fine):
        raise error(
            LAUNCH_FAILED,
            f"GPU {device} ({gpu.name}) is in the compute mode {mode}, which does not admit these GMIs",
            "an administrator can change it: nvidia-smi -i " + gpu.uuid + " -c DEFAULT",
            "the backend mps works in the exclusive mode as well",
        )
