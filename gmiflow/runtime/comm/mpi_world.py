"""The processes of a run on all machines, by MPI: who is where, and communicators of some of them.

MPI is started by hand here and not when mpi4py is imported, so that a process decides when it joins, and a
process that fails never waits in MPI's own ending for peers that are gone.
"""

# mpi4py is optional, and its objects are untyped here.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import secrets
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gmiflow.runtime.failure import LAUNCH_FAILED, NOT_SUPPORTED, error

_TAGS = 32767
"""MPI promises tags up to this number."""


class MPIWorld:
    """This process among all of the run.

    Attributes:
        mpi: the module `mpi4py.MPI`.
        lock: held during calls of MPI: the GMIs of one process take turns.
    """

    def __init__(self, gmis: Sequence[int], node: str, run_dir: Path | None) -> None:
        """Join; returns when all processes of the run have joined.

        Args:
            gmis: GMI ids of this process.
            node: name of its machine; processes with the same name share memory.
            run_dir: a folder that all machines see, or None.

        Raises:
            GMIError: E0711 without mpi4py or an MPI library.
        """
        self.mpi = _start()
        self.lock = threading.Lock()
        self._comm: Any = self.mpi.COMM_WORLD
        self._run_dir = run_dir
        told = self._comm.allgather((list(gmis), node, secrets.token_hex(4)))
        self._rank = {gmi: rank for rank, (ids, _, _) in enumerate(told) for gmi in ids}
        self._node = {gmi: name for ids, name, _ in told for gmi in ids}
        self._token = told[0][2]

    def node(self, gmi: int) -> str:
        """Name of the machine of a GMI."""
        return self._node[gmi]

    def spans_nodes(self, gmis: Sequence[int]) -> bool:
        """Whether the GMIs are on more than one machine."""
        return len({self._node[gmi] for gmi in gmis}) > 1

    def group(self, name: str, gmis: Sequence[int]) -> Any:  # noqa: ANN401 - mpi4py's communicator
        """A new communicator of the processes of ``gmis``, in that order; exactly these call it together."""
        with self.lock:
            processes = self._comm.Get_group().Incl([self._rank[gmi] for gmi in gmis])
            return self._comm.Create_group(processes, tag=zlib.crc32(name.encode()) % _TAGS)

    def require_threads(self) -> None:
        """Raise `GMIError` E0711 when this MPI library may be called by one thread only."""
        if self.mpi.Query_thread() < self.mpi.THREAD_SERIALIZED:
            raise error(
                LAUNCH_FAILED,
                "experience between machines needs an MPI library that several threads may call in turn",
                "use one that was built with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE",
            )

    def send(self, gmi: int, tag: int, data: memoryview) -> Any:  # noqa: ANN401 - mpi4py's request
        """Begin to send bytes to the process of a GMI; they must stay until `complete`."""
        with self.lock:
            return self._comm.Isend([data, self.mpi.BYTE], dest=self._rank[gmi], tag=tag)

    def receive(self, gmi: int, tag: int, data: memoryview) -> Any:  # noqa: ANN401 - mpi4py's request
        """Begin to receive bytes from the process of a GMI; they are there when `complete`."""
        with self.lock:
            return self._comm.Irecv([data, self.mpi.BYTE], source=self._rank[gmi], tag=tag)

    def complete(self, request: Any) -> bool:  # noqa: ANN401 - mpi4py's request
        """Whether a transfer is done; MPI goes on only while somebody asks."""
        with self.lock:
            return bool(request.Test())

    def store(self, name: str) -> Path:
        """A new file that all machines see, the same in all processes.

        Raises:
            GMIError: E0710 without a run directory.
        """
        if self._run_dir is None:
            raise error(NOT_SUPPORTED, f"{name} spans machines and needs a run directory that all of them see")
        return self._run_dir / "logs" / f"{name}-{self._token}.store"

    def close(self) -> None:
        """Leave; waits for the others to leave too, so only a process that has done its work may."""
        self.mpi.Finalize()


def _start() -> Any:  # noqa: ANN401 - a module without types
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as problem:
        raise error(
            LAUNCH_FAILED,
            f"a run on several machines needs mpi4py and an MPI library: {problem}",
            "`pip install 'gmiflow[mpi]'` installs both on every machine",
        ) from problem
    MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return MPI
