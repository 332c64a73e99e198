"""The fork server: a process with torch loaded that forks one child per GMI.

Importing torch takes seconds; a fork takes milliseconds. The server stays single-threaded, runs no
tensor operation and does not touch CUDA, because none of these survive a fork. The launcher talks to
it over a socket, one JSON object per line:

    launcher -> server   {"do": "spawn", ...fields of SpawnRequest}
                         {"do": "signal", "gmi": 0, "signal": 15}
                         {"do": "leave"}
    server -> launcher   {"event": "ready", "preload_s": 1.9}
                         {"event": "spawned", "gmi": 0, "pid": 4711}
                         {"event": "exited", "gmi": 0, "status": -9}

It ends, and takes its children with it, when the launcher says so, hangs up or dies; also what a simulator started
and detached, which the kernel hands over to the server. Of a launcher that was killed it also removes the files and
the shared memory. When the server itself is killed, the kernel kills its children, and the launcher what those
started (see `leftovers`).

`ForkServer` in `gmiflow.runtime.spawn` is the launcher's end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from gmiflow.runtime.gmi.process import ProcessIdentity, wait_until
from gmiflow.runtime.leftovers import clean_stale
from gmiflow.runtime.linux import adopt_orphans, die_with_parent, kill_children

logger = logging.getLogger(__name__)

PRELOAD = ("torch", "safetensors.torch", "gmiflow.runtime.process")
_FAR_FUTURE_MS = 3_600_000
_LAUNCHER_END_S = 5.0
"""How long a launcher that is being killed may take: its sockets close before it is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpawnRequest:
    """One GMI to start.

    Attributes:
        program: file to run as `__main__`.
        arguments: its command line.
        environment: variables to set.
        cpus: CPUs to pin it to.
        log: file that receives stdout and stderr.
    """

    gmi: int
    program: str
    arguments: list[str]
    environment: dict[str, str]
    cpus: list[int]
    log: str

    def to_json(self) -> dict[str, Any]:
        """The request as the server reads it."""
        return {"do": "spawn", **dataclasses.asdict(self)}


@dataclass
class Keeper:
    """Starts and reaps processes on behalf of a launcher at the other end of a socket.

    Attributes:
        connection: the socket.
        buffer: the beginning of a request whose end has not arrived.
        children: GMI id -> process id and a descriptor that becomes readable when the process ends.
        period_ms: how often `tick` is called when nothing happens.
        dismissed: whether the launcher has said goodbye; one that was killed has not.
    """

    connection: socket.socket
    buffer: bytes = b""
    children: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    period_ms: int = _FAR_FUTURE_MS
    dismissed: bool = False

    def tell(self, **event: object) -> None:
        """Send an event to the launcher."""
        self.connection.sendall(json.dumps(event).encode() + b"\n")

    def tick(self) -> None:
        """Called when nothing has happened for a period."""

    def serve(self) -> None:
        """Answer until the launcher hangs up."""
        self._poller = select.poll()
        self._poller.register(self.connection, select.POLLIN)
        while True:
            ready = self._poller.poll(self.period_ms)
            for descriptor, _ in ready:
                if descriptor == self.connection.fileno():
                    if not self._receive() or self.dismissed:
                        return
                else:
                    self._poller.unregister(descriptor)
                    self.reap(descriptor)
            if not ready:
                self.tick()

    def _receive(self) -> bool:
        data = self.connection.recv(1 << 16)
        if not data:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            self.handle(request.pop("do"), request)
        return True

    def handle(self, do: str, request: dict[str, Any]) -> None:
        """Do what the launcher asks for."""
        if do == "leave":
            self.dismissed = True
        elif do == "spawn":
            self._poller.register(self.spawn(SpawnRequest(**request)), select.POLLIN)
        elif request["gmi"] in self.children:
            # The child is not reaped yet, so the group cannot belong to somebody else.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.children[request["gmi"]][0], request["signal"])

    def spawn(self, request: SpawnRequest) -> int:
        """Fork a process; the descriptor that becomes readable when it ends."""
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.become_child(parent)
                status = run_child(request)
            except BaseException:
                traceback.print_exc()
            finally:
                _flush()
                os._exit(status)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # the child does it too; whoever is first
            os.setpgid(child, child)
        descriptor = os.pidfd_open(child)
        self.children[request.gmi] = (child, descriptor)
        self.tell(event="spawned", gmi=request.gmi, pid=child)
        return descriptor

    def become_child(self, parent: int) -> None:
        """Let go of everything that belongs to the server."""
        die_with_parent(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        self.connection.close()
        for _, descriptor in self.children.values():
            os.close(descriptor)

    def reap(self, descriptor: int) -> int:
        """Take note of the end of the process behind a descriptor; its exit status, negative for a signal."""
        gmi, (child, _) = next(item for item in self.children.items() if item[1][1] == descriptor)
        # What the GMI itself started (a simulator's processes) ends with it. Before the child is
        # reaped, because until then its process group cannot be another's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(descriptor)
        del self.children[gmi]
        self.tell(event="exited", gmi=gmi, status=status)
        return status

    def kill_children(self) -> None:
        """Leave nothing running."""
        for child, _ in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


def run_child(request: SpawnRequest) -> int:
    """In the child: become the GMI's process and run its program; the exit status."""
    log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request.environment)
    if request.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request.cpus)
    gc.unfreeze()
    gc.enable()
    sys.argv = [request.program, *request.arguments]
    try:
        runpy.run_path(request.program, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def preload(modules: list[str]) -> None:
    """Import what all GMIs need, and make sure that forking is still safe.

    Modules of the plan that fail to import are left to the GMI, which reports it with its stage.
    """
    for name in PRELOAD:
        importlib.import_module(name)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            logger.exception("%s is not preloaded", name)
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA was initialised while modules were preloaded; it does not survive a fork")
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise RuntimeError(f"threads were started while modules were preloaded: {names}")


def serve(descriptor: int, parent: int, modules: list[str]) -> None:
    """The server's life.

    Args:
        descriptor: socket to the launcher.
        parent: process id of the launcher.
        modules: modules to import besides torch and the runtime.
    """
    die_with_parent(parent)
    adopt_orphans()  # also of a simulator's processes that detach themselves
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    start = time.perf_counter()
    preload(modules)
    # Objects that exist now are never collected: that would copy their pages in every child.
    gc.disable()
    gc.collect()
    gc.freeze()
    server = Keeper(socket.socket(fileno=descriptor))
    # From now on there are children to end before the server does.
    signal.signal(signal.SIGTERM, _leave)
    launcher = ProcessIdentity.of(parent)
    die_with_parent(parent, signal.SIGTERM)
    try:
        server.tell(event="ready", preload_s=time.perf_counter() - start)
        server.serve()
    except SystemExit:
        logger.info("ended by SIGTERM: from the system, when the launcher has ended")
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.kill_children()
        kill_children()
        if not server.dismissed and (launcher is None or wait_until(lambda: not launcher.alive, _LAUNCHER_END_S)):
            clean_stale()
        _flush()
        os._exit(0)  # taking torch down in order would take longer than a short run


def _leave(number: int, frame: FrameType | None) -> None:
    """Leave `serve` from wherever it is."""
    raise SystemExit
