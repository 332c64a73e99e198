"""What a GMI backend does: make the slices of a plan, prove them, take them away.

A backend lives in two processes. `prove` runs in the GMI, after its environment is set; everything else
runs in the launcher, which has neither torch nor CUDA.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import RuntimeFailure


class GMIBackend(ABC):
    """Slices of one kind, over one run.

    The launcher calls `prepare` once, `environment` per GMI, and `release` once when all processes
    of the run have ended, however they ended; `release` must also work after a failed `prepare`.
    """

    name: ClassVar[Backend]
    """The backend's name in the plan."""

    @abstractmethod
    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Make what the slices ``gmis`` need, for example a daemon; its logs go below ``run_dir``.

        Raises:
            GMIError: E0711 when this machine cannot give the slices.
        """

    @abstractmethod
    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """Variables that are set in the GMI's process before anything of CUDA is loaded."""

    @abstractmethod
    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """In the GMI: evidence that the slice is what the plan says, as JSON values for the report.

        Raises:
            GMIError: E0712 when it is not.
        """

    @abstractmethod
    def release(self) -> None:
        """Take away what `prepare` made."""

    def check(self) -> RuntimeFailure | None:
        """A failure of the device under the GMIs that none of them can report well, or None.

        The supervisor asks a few times a second. The failure stands for all GMIs of the device.
        """
        return None

    def explain(self, gmi: GMIPlan, output: str) -> RuntimeFailure | None:
        """What the last lines of a GMI that failed mean on this backend, or None when it has nothing to add."""
        del gmi, output
        return None

    def quiesce(self, pid: int) -> None:
        """Take the work of a process off the device, before the supervisor kills it.

        Called when the process ignored SIGTERM. Never raises; a process without work there is fine.
        """
        del pid

    def recover(self) -> None:  # noqa: B027 - most backends need nothing
        """Wait until the device works again; called when all processes have ended and before they are started again.

        Environments may differ afterwards.

        Raises:
            GMIError: E0711 when the device stays unusable.
        """
