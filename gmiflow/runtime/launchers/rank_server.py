"""The launcher's end of the ranks: takes the place of the fork server when processes are started elsewhere.

It listens for ranks (see `agent`) and for the GMIs themselves, which it hands to the supervisor. No torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import secrets
import selectors
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, RuntimeFailure
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.launchers.contact import LAUNCH_FILE, Contact, by_node, first_line, local_addresses, split_lines
from gmiflow.runtime.launchers.rank import Node, Rank, RankOptions, rank_order
from gmiflow.runtime.leftovers import clean_stale
from gmiflow.runtime.linux import die_with_parent
from gmiflow.runtime.members import ending, was
from gmiflow.runtime.rendezvous import Rendezvous

logger = logging.getLogger(__name__)

_END_S = 5.0
_LOST = -int(signal.SIGKILL)
"""Status of a process whose rank is gone: the kernel kills it with its rank."""


class RankServer:
    """Brings ranks together, and speaks with them; leaving the context ends all of them.

    Attributes:
        what: who starts the ranks, in a sentence.
        log: what the starter and the ranks write.
        socket: readable when there are events.
    """

    def __init__(self, plan: LaunchPlan, run_dir: Path, rendezvous: Rendezvous, options: RankOptions) -> None:
        """Listen, then start the ranks if that is done from here.

        Args:
            plan: of the run.
            run_dir: of the run; on several machines, one that all of them see.
            rendezvous: the launcher's, where the stages at work are noted.
            options: how ranks are started.
        """
        self.what = options.what
        self.log = run_dir / "logs" / "ranks.log"
        self.socket = selectors.EpollSelector()
        self._bell = os.eventfd(0)
        self.socket.register(self._bell, selectors.EVENT_READ, lambda: os.eventfd_read(self._bell))
        self._plan = plan
        self._options = options
        self._processes = rank_order(plan)
        self._progress = rendezvous.progress()
        self._ranks: dict[int, Rank] = {}
        self._requests: dict[int, SpawnRequest] = {}
        self._news: list[dict[str, Any]] = []
        self._nodes: dict[str, Node] = {}
        self._ended = self._killed = False
        self._file = run_dir / LAUNCH_FILE
        self._secret = secrets.token_hex(16)
        self._listen()
        if not (run_dir / "plan.json").exists():
            (run_dir / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        self._starter = self._start(options) if options.command is not None else None

    def spawn(self, request: SpawnRequest) -> None:
        """Note what the rank of ``request.gmi`` is to do, once all ranks are there."""
        self._requests[request.gmi] = request
        self._prepare_when_complete()

    def signal(self, gmi: int, number: signal.Signals) -> None:
        """Send a signal to the process group of a process, wherever it runs."""
        rank = self._of(gmi)
        if rank is None or not rank.spawned:
            self._news.append({"event": "exited", "gmi": gmi, "status": -int(number)})
            self._wake()
        else:
            rank.ask(do="signal", gmi=gmi, signal=int(number))

    def kill(self) -> None:
        """Hang up on all ranks, which kills their processes; their starter cleans up behind MPI, or is killed later."""
        for rank in self._ranks.values():
            rank.connection.close()
        if self._starter is not None:
            self._starter.terminate()
        self._killed = True
        self._wake()

    def ending(self) -> str:
        """How the starter ended, as a predicate."""
        status = self._starter.poll() if self._starter is not None else None
        return "ended" if status is None else was(ending(status))

    def look(self, gmi: int, pid: int) -> tuple[str, int] | None:
        """What the rank of a process last told of it; a rank that says nothing more is taken as idle."""
        del pid
        rank = self._of(gmi)
        return None if rank is None or rank.exited else rank.look(time.monotonic())

    def events(self) -> list[dict[str, Any]] | None:
        """What happened since the last call; None when the starter ended before all ranks had called."""
        if self._killed:
            return None
        for key, _ in self.socket.select(0):
            key.data()
        news, self._news = self._news, []
        if self._ended and len(self._ranks) < len(self._processes):
            if not news:
                return None
            self._wake()
        return news

    def __enter__(self) -> Self:
        """The server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up, which ends the ranks, and wait for their starter."""
        self._file.unlink(missing_ok=True)
        for rank in self._ranks.values():
            rank.connection.close()
        self._listener.close()
        if self._starter is not None:
            for end in (lambda: None, self._starter.terminate, self._starter.kill):
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._starter.wait(_END_S)
                    break
            os.close(self._starter_descriptor)
        clean_stale()  # also of ranks that were killed here; others' machines do it before their next run
        self.socket.close()
        os.close(self._bell)

    # Start

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("0.0.0.0" if self._options.everywhere else "127.0.0.1", 0))
        self._listener.listen(2 * len(self._plan.gmis) + 8)
        self._listener.setblocking(False)
        self.socket.register(self._listener, selectors.EVENT_READ, self._accept)
        addresses = local_addresses() if self._options.everywhere else ("127.0.0.1",)
        port = int(self._listener.getsockname()[1])
        Contact(addresses=addresses, port=port, secret=self._secret).write(self._file)

    def _start(self, options: RankOptions) -> subprocess.Popen[bytes]:
        assert options.command is not None
        parent = os.getpid()
        with self.log.open("ab") as output:
            starter = subprocess.Popen(
                options.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=options.environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the launcher alone
                preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),  # it cleans up behind MPI then
            )
        self._starter_descriptor = os.pidfd_open(starter.pid)
        self.socket.register(self._starter_descriptor, selectors.EVENT_READ, self._starter_ended)
        return starter

    def _starter_ended(self) -> None:
        self.socket.unregister(self._starter_descriptor)
        self._ended = True

    # Calls

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.register(connection, selectors.EVENT_READ, lambda: self._introduce(connection))

    def _introduce(self, connection: socket.socket) -> None:
        """Hear who is calling."""
        try:
            first = first_line(connection)
        except (ValueError, OSError) as problem:
            logger.warning("a caller is not understood: %s", problem)
            first = {}
        if first is None:
            return
        self.socket.unregister(connection)
        if not secrets.compare_digest(str(first.get("secret", "")), self._secret):
            connection.close()
        elif first.get("gmi"):
            self._news.append({"event": "connected", "connection": connection})
        else:
            self._join(int(first["rank"]), str(first["node"]), connection)

    def _join(self, number: int, node: str, connection: socket.socket) -> None:
        if number in self._ranks or number >= len(self._processes):
            count = len(self._processes)
            self._fail(f"rank {number} of {node} is not one of the {count} that the plan needs, or called twice")
            connection.close()
            return
        per_node = self._options.ranks_per_node
        node = f"{node}.{number // per_node}" if per_node else node
        connection.setblocking(True)
        rank = Rank(number=number, first=self._processes[number], node=node, connection=connection)
        self._ranks[number] = rank
        self.socket.register(connection, selectors.EVENT_READ, lambda: self._read(rank))
        self._prepare_when_complete()

    def _prepare_when_complete(self) -> None:
        """When all ranks have called: tell the first one of each machine to make its slices."""
        if len(self._ranks) < len(self._processes) or len(self._requests) < len(self._processes) or self._nodes:
            return
        ordered = [self._ranks[number] for number in range(len(self._processes))]
        for name, numbers in by_node([rank.node for rank in ordered]).items():
            self._nodes[name] = Node(name, [self._ranks[number] for number in numbers])
        if problem := self._split_gpu():
            self._fail(problem)
            return
        processes = self._plan.processes()
        for node in self._nodes.values():
            gmis = [gmi.id for rank in node.ranks for gmi in processes[rank.first]]
            node.ranks[0].ask(do="prepare", gmis=gmis)

    def _split_gpu(self) -> str:
        """What is wrong when the GMIs of one GPU were started on several machines."""
        where: dict[int, set[str]] = {}
        processes = self._plan.processes()
        for rank in self._ranks.values():
            for gmi in processes[rank.first]:
                if gmi.backend != "cpu":
                    where.setdefault(gmi.device, set()).add(rank.node)
        for device, nodes in sorted(where.items()):
            if len(nodes) > 1:
                return f"the GMIs of GPU {device} were started on different machines: {', '.join(sorted(nodes))}"
        return ""

    # News of ranks

    def _read(self, rank: Rank) -> None:
        try:
            data = rank.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.socket.unregister(rank.connection)
            self._gone(rank)
            return
        messages, rank.buffer = split_lines(rank.buffer, data)
        for message in messages:
            self._hear(rank, message)

    def _hear(self, rank: Rank, message: dict[str, Any]) -> None:
        kind = message["event"]
        if kind == "alive":
            rank.looked, rank.told = (message["state"], message["ticks"]), time.monotonic()
            for gmi, stage in message["stages"].items():
                if self._progress is not None:
                    self._progress.note(int(gmi), stage)
        elif kind == "prepared":
            self._spawn_on(self._nodes[rank.node], message)
        elif kind == "failure":
            failure = message["failure"]
            failure = RuntimeFailure(**{**failure, "notes": (*failure["notes"], f"on {rank.node}")})
            self._news.append({"event": "failure", "failure": failure, "reason": message["reason"]})
        else:
            rank.spawned = True
            rank.exited = rank.exited or kind == "exited"
            self._news.append(message)

    def _spawn_on(self, node: Node, prepared: dict[str, Any]) -> None:
        """Start the processes of a machine whose slices are made."""
        place = ["--rendezvous", prepared["rendezvous"]]
        place += ["--mpi-node", node.name] if len(self._nodes) > 1 else []
        processes = self._plan.processes()
        for rank in node.ranks:
            request = self._requests[rank.first]
            cpus = {cpu for gmi in processes[rank.first] for cpu in prepared["cpus"][str(gmi.id)]}
            placed = dataclasses.replace(
                request,
                arguments=[*request.arguments, *place],
                environment=prepared["environment"][str(rank.first)],
                cpus=sorted(cpus),
            )
            rank.ask(**placed.to_json())

    def _gone(self, rank: Rank) -> None:
        """A rank has ended; its process ended with it."""
        if not rank.exited:
            rank.exited = True
            self._news.append({"event": "exited", "gmi": rank.first, "status": _LOST})

    def _fail(self, message: str) -> None:
        failure = RuntimeFailure(code=LAUNCH_FAILED, message=message)
        self._news.append({"event": "failure", "failure": failure, "reason": "could not start"})
        self._wake()

    def _wake(self) -> None:
        """Have the supervisor ask for events although nothing arrives."""
        os.eventfd_write(self._bell, 1)

    def _of(self, gmi: int) -> Rank | None:
        number = self._processes.index(gmi)
        return self._ranks.get(number)
