"""The slices of the GMIs of one process: their device, their proof, their CUDA streams."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence

import torch

from gmiflow.plan import GMIPlan
from gmiflow.runtime.gmi.green import GreenBackend, GreenPart
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.messages import Hello
from gmiflow.runtime.program import Program

logger = logging.getLogger(__name__)


class Slices:
    """What the GMIs of a process get of its one device.

    The backend has set CUDA_VISIBLE_DEVICES to one GPU (or MIG instance) by its UUID, so the GPU is
    number 0 in every process.

    Attributes:
        device: the CPU, or GPU 0 of this process.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        """Prepare for the GMIs of ``programs``, all of one backend; touches no device."""
        self._gmis = [program.gmi for program in programs]
        self._backend = make_backend(self._gmis[0].backend)
        self._parts: dict[int, GreenPart] = {}
        self.device = torch.device("cpu") if self._gmis[0].backend == "cpu" else torch.device("cuda", 0)

    def open(self) -> None:
        """Cut what is cut inside of the process: green contexts.

        Raises:
            GMIError: E0711.
        """
        if isinstance(self._backend, GreenBackend):
            self._parts = self._backend.open(self._gmis)

    def enter_thread(self) -> None:
        """Make the GPU the current one of this thread."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def prove(self, gmi: GMIPlan) -> Hello:
        """Evidence that a GMI has its slice.

        Raises:
            GMIError: E0712.
        """
        return Hello(gmi=gmi.id, slice=self._backend.prove(gmi))

    def make_stream(self, gmi: GMIPlan, priority: int) -> torch.cuda.Stream | None:
        """A new stream on a GMI's share; None on the CPU."""
        return None if self.device.type == "cpu" else self.require_stream(gmi, priority)

    def require_stream(self, gmi: GMIPlan, priority: int) -> torch.cuda.Stream:
        """A new stream on a GMI's share of the GPU; smaller priorities run first."""
        part = self._parts.get(gmi.id)
        return part.make_stream(priority) if part is not None else torch.cuda.Stream(self.device, priority)

    def close(self) -> None:
        """Take the parts away; no GMI may use the device any more."""
        if self._parts:
            gc.collect()  # graphs that were captured on the parts go first
            try:
                torch.cuda.synchronize(self.device)
            except RuntimeError as broken:  # after a fault nothing can be released; the exit of the process does it
                logger.warning("the parts of the GPU are not released in order: %s", broken)
                return
            self._parts = {}
            self._backend.release()
