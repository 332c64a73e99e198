"""What a launcher is: it prepares slices and starts processes; the supervisor watches them. No torch."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory


class HasDescriptor(Protocol):
    """Something that a selector can wait for."""

    def fileno(self) -> int:
        """Its file descriptor."""
        ...


class ProcessServer(Protocol):
    """Starts the processes of a run, signals them, and tells what becomes of them.

    Attributes:
        what: its name in a sentence, for example "the fork server".
        log: file with its own messages.
    """

    what: str
    log: Path

    @property
    def socket(self) -> HasDescriptor:
        """Readable when there are events."""
        ...

    def spawn(self, request: SpawnRequest) -> None:
        """Ask for a process."""
        ...

    def signal(self, gmi: int, number: Any) -> None:  # noqa: ANN401 - signal.Signals
        """Send a signal to the process group of the process whose first GMI is ``gmi``, if it still runs."""
        ...

    def look(self, gmi: int, pid: int) -> tuple[str, int] | None:
        """State letter and processor time (in clock ticks) of that process; None when it has ended."""
        ...

    def kill(self) -> None:
        """End the server itself by force, and with it its processes, when it does not answer any more."""
        ...

    def ending(self) -> str:
        """How the server ended, as a predicate; for when `events` has given None."""
        ...

    def events(self) -> list[dict[str, Any]] | None:
        """What happened; None when the server has ended and its processes with it.

        Each has "event": "spawned" (gmi, pid), "exited" (gmi, status), "connected" (connection: a socket on which
        a GMI speaks), "failure" (failure, reason: nothing can run any more).
        """
        ...


class Launcher(ABC):
    """One way of starting the processes of a plan.

    Attributes:
        restarts: whether it can start them again after a failure.
        replaces: whether it can start one again while the others go on.
        here: whether all of them run on this machine, as children of this process.
    """

    restarts = True
    replaces = True
    here = True

    @abstractmethod
    def prepare(self, plan: LaunchPlan, run_dir: Path, stack: contextlib.ExitStack) -> dict[str, GMIBackend]:
        """Make the slices as far as it is done from here; ``stack`` takes them away again.

        Raises:
            GMIError: E0711 when they cannot be had.
        """

    @abstractmethod
    def server(
        self, plan: LaunchPlan, directory: RunDirectory, rendezvous: Rendezvous
    ) -> AbstractContextManager[ProcessServer]:
        """Start whatever starts the processes; leaving the context ends all of them.

        Raises:
            GMIError: E0711 when it is not there.
        """

    @abstractmethod
    def requests(
        self,
        plan: LaunchPlan,
        programs: Path,
        directory: RunDirectory,
        arguments: Sequence[str],
        backends: Mapping[str, GMIBackend],
    ) -> list[SpawnRequest]:
        """What to ask the server for, one request per process.

        Raises:
            GMIError: E0711 when a program is missing.
        """
