"""One fork server for the runs of a test file, which otherwise would each spend seconds on loading torch.

That every run has one of its own, and what becomes of it, is seen by the tests of the command line and of signals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import leftovers
import pytest

from gmiflow.plan import LaunchPlan
from gmiflow.profiling.shared_server import SharedServer, TrialServer
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.processes import preloaded_modules
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory

OF_A_TEST = (leftovers.MARK, "POINT_MASS_DIED")
"""Variables that each test sets anew: not for the server, but for what it forks."""


class SharedForkServer(SharedServer):
    """Starts the processes of every run as `LocalLauncher` does, restarts included."""

    restarts = True

    def server(
        self, plan: LaunchPlan, directory: RunDirectory, rendezvous: Rendezvous
    ) -> contextlib.AbstractContextManager[TrialServer]:
        """The server; a new one where there is none, or the last one did not survive a run."""
        if self._server is None:
            with pytest.MonkeyPatch.context() as patched:
                for name in OF_A_TEST:
                    patched.delenv(name, raising=False)
                self._server = TrialServer(preloaded_modules(plan), self._log)
        return super().server(plan, directory, rendezvous)

    def requests(
        self,
        plan: LaunchPlan,
        programs: Path,
        directory: RunDirectory,
        arguments: Sequence[str],
        backends: Mapping[str, GMIBackend],
    ) -> list[SpawnRequest]:
        """As of the base class, with the variables of the test."""
        own = {name: os.environ[name] for name in OF_A_TEST if name in os.environ}
        made = super().requests(plan, programs, directory, arguments, backends)
        return [dataclasses.replace(request, environment={**request.environment, **own}) for request in made]

    def children(self) -> list[str]:
        """Process ids of what it forked, or what was left to it, and has not ended."""
        if self._server is None:
            return []
        pid = self._server._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
