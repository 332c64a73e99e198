"""The launcher's end of the fork server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.leftovers import MARK, end_marked, new_token
from gmiflow.runtime.linux import processor_ticks
from gmiflow.runtime.members import ending, was

# One thread per library while the server lives: OpenBLAS and OpenMP start their threads when they
# are loaded, and threads do not survive a fork. GMIs set their own number afterwards.
PASSIVE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""For OpenMP, which reads it once when torch is loaded: its threads are to sleep while they wait. Spinning ones
take the cores from the physics' own threads, and on a machine that others use they wait for threads that cannot run."""

_SINGLE_THREADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_END_S = 3.0
# The server sees the launcher's module path, whatever made it, before anything is imported.
_BOOT = """\
import json, sys
options = json.loads(sys.argv[1])
sys.path[:] = options.pop("path")
from gmiflow.runtime.forkserver import serve
serve(**options)
"""


class ForkServer:
    """Starts the fork server; leaving the context ends it and every GMI that still runs.

    Attributes:
        socket: readable when there are events.
        log: what the server itself writes.
    """

    what = "the fork server"

    def __init__(self, modules: Sequence[str], log: Path) -> None:
        """Start it; does not wait until it is ready.

        Args:
            modules: modules to load besides torch, free of side effects.
            log: file for its output.
        """
        self.log = log
        self.socket, theirs = socket.socketpair()
        self._buffer = b""
        self._token = new_token()
        options = {
            "descriptor": theirs.fileno(),
            "parent": os.getpid(),
            "path": [entry or os.getcwd() for entry in sys.path],
            "modules": list(modules),
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={**PASSIVE_THREADS, **os.environ, **dict.fromkeys(_SINGLE_THREADED, "1"), MARK: self._token},
                start_new_session=True,  # Ctrl-C in the terminal is for the launcher alone
            )
        theirs.close()

    def spawn(self, request: SpawnRequest) -> None:
        """Ask for a GMI; "spawned" and later "exited" tell what became of it."""
        self._send(request.to_json())

    def signal(self, gmi: int, number: signal.Signals) -> None:
        """Send a signal to the process group of a GMI, if it still runs."""
        self._send({"do": "signal", "gmi": gmi, "signal": int(number)})

    def kill(self) -> None:
        """End the server by force; the kernel ends its children, and `__exit__` what those started."""
        self._process.kill()

    def ending(self) -> str:
        """How the server ended, as a predicate; for when `events` has given None."""
        try:
            return was(ending(self._process.wait(_END_S)))
        except subprocess.TimeoutExpired:
            return "hung up"

    def look(self, gmi: int, pid: int) -> tuple[str, int] | None:
        """State letter and processor time (in clock ticks) of a GMI's process; None when it has ended."""
        del gmi
        return processor_ticks(pid)

    def events(self) -> list[dict[str, Any]] | None:
        """What arrived; call when the socket is readable. None when the server has ended."""
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            return None
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [cast("dict[str, Any]", json.loads(line)) for line in lines]

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server; its children end with it, also when it was killed."""
        with contextlib.suppress(OSError):  # it ended before
            self._send({"do": "leave"})
        self.socket.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            end_marked(lambda token: token == self._token)

    def _send(self, request: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended: `events` tells
            self.socket.sendall(json.dumps(request).encode() + b"\n")
