"""`cpu`: a slice of the machine's cores. The launcher pins them; nothing outlives the process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.gmi.base import GMIBackend

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class CPUBackend(GMIBackend):
    """GMIs without a GPU."""

    name: ClassVar[Backend] = "cpu"

    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Nothing to make."""

    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """Thread counts for the libraries that read them from here, and no GPU."""
        return {"CUDA_VISIBLE_DEVICES": "", **dict.fromkeys(_THREAD_VARIABLES, str(gmi.threads))}

    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """The CPUs that the process may run on; fewer than planned are shared, not an error."""
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return {"cpus": cpus, "planned_cores": gmi.cores}

    def release(self) -> None:
        """Nothing to take away."""
