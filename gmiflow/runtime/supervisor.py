"""The supervisor: watches the GMIs of a run, merges what they report, and stops all when one fails.

One thread and one event loop over four kinds of input: the process server (who started, who ended), one
connection per GMI (messages), signals to the launcher, and time. GMIs never wait for it.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gmiflow.plan import LaunchPlan
from gmiflow.runtime import events
from gmiflow.runtime.connections import Connections
from gmiflow.runtime.events import Checkpoint, Event, Failure, Replacing, Started, Status
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.judgement import Judgement
from gmiflow.runtime.launchers.base import ProcessServer
from gmiflow.runtime.members import Limits, Member, ending, integers
from gmiflow.runtime.merge import TrainingMerger
from gmiflow.runtime.messages import Done, Failed, Heartbeat, Hello, Message, Progress, Ready, Saved
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.stopping import Stopping

__all__ = ["Limits", "Supervisor"]

TICK_S = 0.1
STOP = b"stop\n"
ECHO_S = 0.25
"""A second signal this soon is the first once more: `timeout` signals its child and then its process group."""
MAX_REPLACEMENTS = 3
"""How often a GMI that only collects is started again before its end counts as a failure."""


class Supervisor:
    """Watches one run until no process of it is left.

    Attributes:
        mergers: the state of each training.
        stopped_by: number of the signal that ended the run early, or None.
        start_again: starts the process of a GMI in place of a lost one; None where that cannot be.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        rendezvous: Rendezvous,
        server: ProcessServer,
        run_dir: RunDirectory,
        backends: Mapping[str, GMIBackend],
        limits: Limits,
        on_event: Callable[[Event], None],
    ) -> None:
        """Listen in the rendezvous; GMIs may be spawned from now on."""
        self.mergers = {t.name: TrainingMerger(t, plan.members(t.name)) for t in plan.trainings}
        self.stopped_by: int | None = None
        self._interrupted = 0.0
        self._limits = limits
        self.start_again: Callable[[int], None] | None = None
        self._plan = plan
        self._server = server
        self._backends = backends
        self._on_event = on_event
        self._members = {gmi.id: Member(gmi) for gmi in plan.gmis}
        self._processes = {
            first: tuple(self._members[gmi.id] for gmi in gmis) for first, gmis in plan.processes().items()
        }
        self._start = time.monotonic()
        self._all_ready = False
        restarted = {t.name for t in plan.trainings if t.on_failure == "restart"}
        restarted -= {c.training for c in plan.channels if c.carries == "step"}  # they meet in every step
        self._replaceable = {gmi for c in plan.channels if c.training in restarted for gmi in c.producers}
        self._server_alive = True
        progress = rendezvous.progress()
        assert progress is not None, "the launcher's rendezvous has a page of stages at work"
        self._stopping = Stopping(self._processes, server, backends, limits)
        self._judgement = Judgement(
            plan, self._members, server, run_dir, backends, limits, progress, self._stopping, on_event, self._put_aside
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(server.socket, selectors.EVENT_READ, self._read_server)
        self._connections = Connections(rendezvous.socket, self._members, self._selector, self._handle)

    @property
    def failures(self) -> Sequence[Failure]:
        """What failed, the cause first."""
        return self._judgement.failures

    @property
    def status(self) -> Status:
        """How the run ended."""
        if self.failures:
            return "failed"
        return "interrupted" if self.stopped_by is not None and not self._all_done(in_full=True) else "finished"

    @property
    def done(self) -> Mapping[int, Done]:
        """The last words of the GMIs that ended in order."""
        return {gmi: member.done for gmi, member in self._members.items() if member.done is not None}

    @property
    def slices(self) -> Mapping[int, dict[str, object]]:
        """The proof that each GMI gave of its slice."""
        return {gmi: member.slice for gmi, member in self._members.items()}

    @property
    def setup_s(self) -> Mapping[int, float]:
        """Seconds that each GMI's stages took to set up."""
        return {gmi: member.ready.setup_s for gmi, member in self._members.items() if member.ready is not None}

    @property
    def lowering(self) -> Mapping[str, dict[str, str]]:
        """How the parts of an iteration run, by training; all its GMIs with the same stages do the same."""
        found: dict[str, dict[str, str]] = {}
        for member in self._members.values():
            if member.ready is not None:
                found.setdefault(member.plan.training, {}).update(member.ready.lowering)
        return found

    @property
    def processes(self) -> Mapping[int, int]:
        """GMI by process id, of those that run; the first GMI of a shared process."""
        return {
            members[0].pid: first for first, members in self._processes.items() if members[0].running and members[0].pid
        }

    def watch_signals(self, wakeup: socket.socket) -> None:
        """Read the numbers of signals that arrive from ``wakeup``."""
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._signals(wakeup.recv(64)))

    def expect(self, gmi: int) -> None:
        """The process whose first GMI is ``gmi`` was spawned: the run lasts until it has ended."""
        for member in self._processes[gmi]:
            member.running = True

    def run(self, watch: Callable[[Supervisor], None] | None = None) -> None:
        """Return when every process of the run has ended; ``watch`` looks on after every event, and may `stop` it."""
        while self._server_alive and any(member.running for member in self._members.values()):
            for key, _ in self._selector.select(TICK_S):
                key.data()
            now = time.monotonic()
            self._stopping.look(now)
            self._judgement.look(now)
            if watch is not None:
                watch(self)

    def stop(self) -> None:
        """Ask all GMIs to stop at the next iteration boundary; those that are still starting are not heard."""
        self._connections.tell_all(STOP)

    def end(self) -> None:
        """Stop all GMIs at once: what they do then is no failure."""
        self._stopping.begin()

    def close(self) -> None:
        """Close the sockets."""
        self._connections.close()
        self._selector.close()

    # Input

    def _read_server(self) -> None:
        news = self._server.events()
        if news is None:
            self._selector.unregister(self._server.socket)
            self._server_alive = False
            if any(member.running for member in self._members.values()) and not self._stopping.begun:
                self._judgement.server_died()
            return
        for event in news:
            if event["event"] == "spawned":
                for member in self._processes[event["gmi"]]:
                    member.pid, member.heard = event["pid"], time.monotonic()
            elif event["event"] == "exited":
                self._exited(self._processes[event["gmi"]], event["status"])
            elif event["event"] == "connected":
                self._connections.adopt(event["connection"])
            elif event["event"] == "failure":
                self._judgement.all_failed(event["failure"], event["reason"])

    def _handle(self, member: Member, message: Message) -> None:
        member.heard, member.ticks = time.monotonic(), -1
        match message:
            case Progress():
                event = self.mergers[member.plan.training].add(message)
                if event is not None:
                    self._on_event(event)
            case Saved():
                training = member.plan.training
                path = Path(message.path)
                self._on_event(
                    Checkpoint(training=training, iteration=message.iteration, path=path, checksum=message.checksum)
                )
            case Ready():
                member.ready = message
                if not self._all_ready and all(other.ready is not None for other in self._members.values()):
                    self._all_ready = True
                    self._on_event(self._started())
            case Failed():
                member.failed = True
                self._judgement.failed(member, message.failure, "gave up")
            case Done():
                member.done = message
            case Hello():
                member.slice = message.slice
            case Heartbeat():
                self._judgement.beaten(member, message)

    def _started(self) -> Started:
        return Started(
            start_s=time.monotonic() - self._start,
            setup_s=max(self.setup_s.values()),
            cpus={gmi: tuple(integers(member.slice.get("cpus"))) for gmi, member in self._members.items()},
            iteration={
                member.plan.training: member.ready.iteration
                for member in self._members.values()
                if member.ready is not None
            },
            lowering=dict(self.lowering),
            new_episodes=tuple(
                training.name
                for training in self._plan.trainings
                if any(
                    member.ready is not None and member.ready.new_episodes
                    for member in self._members.values()
                    if member.plan.training == training.name
                )
            ),
        )

    def _exited(self, members: Sequence[Member], status: int) -> None:
        """A process has ended: hear the last words of its GMIs, then judge."""
        for member in members:
            self._connections.hear_out(member)
            member.running = False
        failed = any(member.failed for member in members)
        if failed or self._stopping.begun or (status == 0 and all(member.done is not None for member in members)):
            return
        if self._may_replace(members):
            self._replace(members[0], members[0].hanging or ending(status))
        else:
            self._judgement.died(members, status)

    def _put_aside(self, member: Member, how: str) -> bool:
        """End a GMI that hangs, if another takes its place; whether that is so."""
        if not self._may_replace(self._processes.get(member.plan.id, ())):
            return False
        member.hanging = how
        self._backends[member.plan.backend].quiesce(member.pid)
        self._server.signal(member.plan.id, signal.SIGKILL)  # it is replaced when it has ended
        return True

    def _may_replace(self, members: Sequence[Member]) -> bool:
        """Whether the GMI of a process is started again: it only collects, and the others are at work."""
        if len(members) != 1:
            return False
        (first,) = members
        calm = self._all_ready and not self.failures and self.stopped_by is None and self.start_again is not None
        mine = first.plan.id in self._replaceable and first.replaced < MAX_REPLACEMENTS
        return calm and mine and self._backends[first.plan.backend].check() is None

    def _replace(self, member: Member, how: str) -> None:
        assert self.start_again is not None
        self._connections.hang_up(member)
        member.start_again(time.monotonic())
        self._on_event(
            Replacing(
                gmi=member.plan.id,
                training=member.plan.training,
                reason=how,
                replacement=member.replaced,
                limit=MAX_REPLACEMENTS,
            )
        )
        self.start_again(member.plan.id)

    @property
    def replaced(self) -> Mapping[int, int]:
        """How often each GMI was started again, of those that were."""
        return {gmi: member.replaced for gmi, member in self._members.items() if member.replaced}

    def _signals(self, numbers: bytes) -> None:
        """A first signal: stop at the next iteration boundary. Another one, or who sent the first cannot wait: now.

        Schedulers send SIGTERM, and SIGKILL half a minute later; a terminal that closes sends SIGHUP.
        """
        for number in numbers:
            if number == self.stopped_by and time.monotonic() - self._interrupted < ECHO_S:
                continue
            first, self.stopped_by, self._interrupted = self.stopped_by is None, number, time.monotonic()
            working = all(member.ready is not None for member in self._members.values())
            if first and working:
                self.stop()
                if number != signal.SIGINT:
                    self._stopping.after(self._limits.interrupt_s)
                self._on_event(events.Stopping())
            else:  # also while GMIs start: nothing is lost
                self._stopping.begin()

    def _all_done(self, *, in_full: bool) -> bool:
        return all(m.done is not None and not (in_full and m.done.stopped) for m in self._members.values())
