"""`local`: all processes are forked on this machine, from one that has torch loaded. No torch in here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from gmiflow.plan import Backend, LaunchPlan
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.launchers.base import Launcher
from gmiflow.runtime.processes import preloaded_modules, spawn_requests
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.spawn import ForkServer


class LocalLauncher(Launcher):
    """Processes of this machine."""

    def prepare(self, plan: LaunchPlan, run_dir: Path, stack: contextlib.ExitStack) -> dict[str, GMIBackend]:
        """Make the slices of every backend that the plan uses."""
        backends: dict[str, GMIBackend] = {}
        names: list[Backend] = [gmi.backend for gmi in plan.gmis]
        for name in dict.fromkeys(names):
            backends[name] = make_backend(name)
            stack.callback(backends[name].release)
            backends[name].prepare([gmi for gmi in plan.gmis if gmi.backend == name], run_dir)
        return backends

    def server(
        self, plan: LaunchPlan, directory: RunDirectory, rendezvous: Rendezvous
    ) -> AbstractContextManager[ForkServer]:
        """The fork server."""
        return ForkServer(preloaded_modules(plan), directory.logs / "forkserver.log")

    def requests(
        self,
        plan: LaunchPlan,
        programs: Path,
        directory: RunDirectory,
        arguments: Sequence[str],
        backends: Mapping[str, GMIBackend],
    ) -> list[SpawnRequest]:
        """One request per process, with its cores and the environment of its slice."""
        return spawn_requests(plan, programs, directory, arguments, backends)
