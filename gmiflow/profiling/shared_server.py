"""A launcher that keeps one fork server over many runs, so that only the first one waits for torch. No torch."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.launchers.local import LocalLauncher
from gmiflow.runtime.processes import preloaded_modules
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.spawn import ForkServer

_FIRST_TO_DIE = "1000"
"""Score at which the kernel, out of memory, kills a process before every other that does not have it."""


class TrialServer(ForkServer):
    """A fork server whose GMIs give way when the machine runs out of memory.

    Attributes:
        running: GMIs whose end was not told yet.
    """

    def __init__(self, modules: list[str], log: Path) -> None:
        """Start it; see `ForkServer`."""
        super().__init__(modules, log)
        self.running: set[int] = set()
        self.ended = False

    def events(self) -> list[dict[str, Any]] | None:
        """What arrived; takes note of who runs."""
        events = super().events()
        self.ended = events is None
        for event in events or ():
            if event["event"] == "spawned":
                self.running.add(event["gmi"])
                _yield_memory(event["pid"])
            elif event["event"] == "exited":
                self.running.discard(event["gmi"])
        return events


class SharedServer(LocalLauncher):
    """Processes of this machine, all from the same fork server; leaving the context ends it."""

    restarts = False

    def __init__(self, folder: Path) -> None:
        """Start nothing yet; the server's log goes to ``folder``."""
        self._log = folder / "forkserver.log"
        self._server: TrialServer | None = None

    def __enter__(self) -> Self:
        """The launcher itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server, and with it every GMI that still runs."""
        self._end()

    @contextlib.contextmanager
    def server(self, plan: LaunchPlan, directory: RunDirectory, rendezvous: Rendezvous) -> Generator[TrialServer]:
        """The server, which lives on unless it is unfit for another run."""
        del directory, rendezvous
        server = self._server or TrialServer(preloaded_modules(plan), self._log)
        self._server = server
        try:
            yield server
        except BaseException:
            self._end()
            raise
        if server.ended or server.running:
            self._end()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.__exit__(None, None, None)


def _yield_memory(pid: int) -> None:
    """Let the kernel kill this process first: a point that needs too much must not take others with it."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write(_FIRST_TO_DIE)
