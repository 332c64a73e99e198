"""The supervisor: watches the GMIs of a run, merges what they report, and stops all when one fails.

One thread and one event loop over four kinds of input: the process server (who started, who ended), one
connection per GMI (messages), signals to the launcher, and time. GMIs never wait for it.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gmiflow.plan import LaunchPlan, StagePlan
from gmiflow.runtime.events import Checkpoint, Event, Failure, Replacing, Slow, Started, Status, Stopping
from gmiflow.runtime.failure import CONSEQUENCES, GMI_DIED, GMI_SILENT, LAUNCH_FAILED, RuntimeFailure
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.launchers.base import ProcessServer
from gmiflow.runtime.members import Limits, Member, ending, integers, judge_silence, last_lines, readable
from gmiflow.runtime.merge import TrainingMerger
from gmiflow.runtime.messages import (
    RUNTIME_NAME,
    Done,
    Failed,
    Heartbeat,
    Hello,
    Message,
    Progress,
    Ready,
    Saved,
    decode,
)
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory

__all__ = ["Limits", "Supervisor"]

TICK_S = 0.1
STOP = b"stop\n"
ECHO_S = 0.25
"""A second SIGINT this soon is the first once more: `timeout -s INT` signals its child and then its process group."""
MAX_REPLACEMENTS = 3
"""How often a GMI that only collects is started again before its end counts as a failure."""
_OUT_OF_MEMORY = "the kernel kills processes when memory runs out: its log (dmesg) tells"


class Supervisor:
    """Watches one run until no process of it is left.

    Attributes:
        failures: what failed, the cause first.
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
        self.failures: list[Failure] = []
        self.mergers = {t.name: TrainingMerger(t, plan.members(t.name)) for t in plan.trainings}
        self.stopped_by: int | None = None
        self._interrupted = 0.0
        self.start_again: Callable[[int], None] | None = None
        self._plan = plan
        self._server = server
        self._run_dir = run_dir
        self._backends = backends
        self._limits = limits
        self._on_event = on_event
        self._members = {gmi.id: Member(gmi) for gmi in plan.gmis}
        self._processes = {
            first: tuple(self._members[gmi.id] for gmi in gmis) for first, gmis in plan.processes().items()
        }
        self._start = self._looked = time.monotonic()
        self._stop_at = self._kill_at = self._abandon_at = float("inf")
        self._terminating = self._all_ready = False
        restarted = {t.name for t in plan.trainings if t.on_failure == "restart" and t.mode != "serve"}
        self._replaceable = {gmi for c in plan.channels if c.training in restarted for gmi in c.producers}
        self._server_alive = True
        progress = rendezvous.progress()
        assert progress is not None, "the launcher's rendezvous has a page of stages at work"
        self._progress = progress
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(rendezvous.socket))
        self._listener.listen(len(plan.gmis))
        self._selector = selectors.DefaultSelector()
        self._selector.register(server.socket, selectors.EVENT_READ, self._read_server)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

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
            self._look_at_time()
            if watch is not None:
                watch(self)

    def stop(self) -> None:
        """Ask all GMIs to stop at the next iteration boundary; those that are still starting are not heard."""
        for member in self._members.values():
            if member.connection is not None:
                with contextlib.suppress(OSError):  # it is just ending
                    member.connection.send(STOP)

    def end(self) -> None:
        """Stop all GMIs at once: what they do then is no failure."""
        self._terminate()

    def close(self) -> None:
        """Close the sockets."""
        for member in self._members.values():
            self._hang_up(member)
        self._selector.close()
        self._listener.close()

    # Input

    def _read_server(self) -> None:
        events = self._server.events()
        if events is None:
            self._selector.unregister(self._server.socket)
            self._server_alive = False
            self._server_ended()
            return
        for event in events:
            if event["event"] == "spawned":
                for member in self._processes[event["gmi"]]:
                    member.pid, member.heard = event["pid"], time.monotonic()
            elif event["event"] == "exited":
                self._exited(self._processes[event["gmi"]], event["status"])
            elif event["event"] == "connected":
                self._adopt(event["connection"])
            elif event["event"] == "failure":
                self._report(None, event["failure"], event["reason"], self._server.log)
                self._terminate()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._adopt(connection)

    def _adopt(self, connection: socket.socket) -> None:
        """Listen to a GMI that has not said yet which it is."""
        connection.setblocking(False)
        unknown = Member(self._plan.gmis[0], connection=connection)  # until it says which GMI it is
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read_member(unknown))

    def _read_member(self, member: Member) -> None:
        """Handle what a connection has to say."""
        connection = member.connection
        if connection is None:
            return
        try:
            data = connection.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._hang_up(member)
            return
        *lines, rest = (member.buffer + data).split(b"\n")
        member.buffer = rest
        for line in lines:
            message = decode(line)
            if member is not self._members[message.gmi]:
                member = self._introduce(message.gmi, connection, rest)
            self._handle(member, message)

    def _introduce(self, gmi: int, connection: socket.socket, rest: bytes) -> Member:
        """The connection belongs to the GMI whose first message has come."""
        member = self._members[gmi]
        member.connection = connection
        member.buffer = rest
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._read_member(member))
        return member

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
                self._fail(member, message.failure, "gave up")
            case Done():
                member.done = message
            case Hello():
                member.slice = message.slice
            case Heartbeat():
                self._check_call(member, message)

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
            self._hear_out(member)
            member.running = False
        failed = any(member.failed for member in members)
        if failed or self._terminating or (status == 0 and all(member.done is not None for member in members)):
            return
        how = ending(status)
        if self._may_replace(members):
            self._replace(members[0], how)
            return
        notes = (_OUT_OF_MEMORY,) if status == -signal.SIGKILL else ()
        if len(members) > 1:
            others = ", ".join(str(member.plan.id) for member in members[1:])
            notes = (f"{'GMI' if len(members) == 2 else 'GMIs'} {others} shared its process and ended with it", *notes)
        was = "was " if status < 0 else ""
        message = f"GMI {members[0].plan.id} {was}{how}{_during(self._stage_at_work(members[0]))}"
        self._fail(members[0], RuntimeFailure(code=GMI_DIED, message=message, notes=notes), how)

    def _may_replace(self, members: Sequence[Member]) -> bool:
        """Whether a process that has ended is started again: it only collected, and the others are at work."""
        first = members[0]
        calm = self._all_ready and not self.failures and self.stopped_by is None and self.start_again is not None
        mine = len(members) == 1 and first.plan.id in self._replaceable and first.replaced < MAX_REPLACEMENTS
        return calm and mine and self._backends[first.plan.backend].check() is None

    def _replace(self, member: Member, how: str) -> None:
        assert self.start_again is not None
        self._hang_up(member)
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

    def _hear_out(self, member: Member) -> None:
        """Read what a GMI that has ended wrote before."""
        while member.connection is not None:
            before = len(member.buffer)
            connection = member.connection
            self._read_member(member)
            if member.connection is connection and len(member.buffer) == before and not readable(connection):
                break  # somebody it started still holds the connection

    def _server_ended(self) -> None:
        """The fork server is gone, and the kernel has killed its children."""
        if any(member.running for member in self._members.values()) and not self._terminating:
            how = self._server.ending()
            notes = (_OUT_OF_MEMORY,) if "SIGKILL" in how else ()
            failure = RuntimeFailure(code=LAUNCH_FAILED, message=f"{self._server.what} {how}", notes=notes)
            self._report(None, failure, "ended", self._server.log)

    def _signals(self, numbers: bytes) -> None:
        """Ctrl-C once: stop at the next iteration boundary. Again, or another signal: stop now."""
        for number in numbers:
            if number == self.stopped_by == signal.SIGINT and time.monotonic() - self._interrupted < ECHO_S:
                continue
            first, self.stopped_by, self._interrupted = self.stopped_by is None, number, time.monotonic()
            working = all(member.ready is not None for member in self._members.values())
            if first and working and number == signal.SIGINT:
                self._on_event(Stopping())
                self.stop()
            else:  # also while GMIs start: nothing is lost
                self._terminate()

    # Time

    def _look_at_time(self) -> None:
        now = time.monotonic()
        if now - self._looked > self._limits.silence_s / 2:
            # It was this process that did not run (a suspended machine, Ctrl-Z): nobody else is to blame.
            for member in self._members.values():
                member.heard = now
        self._looked = now
        if now >= self._abandon_at:
            self._abandon_at = float("inf")
            self._server.kill()  # it does not pass signals on; its processes end with it
        if now >= self._kill_at:
            self._kill_all()
        elif now >= self._stop_at:
            self._terminate()
        if not self._terminating:
            self._check_start(now)
            self._check_devices()
            for member in self._members.values():
                if member.running and member.pid and not member.failed:
                    self._check_silence(member, now - member.heard)

    def _check_devices(self) -> None:
        """Report what happened to a device under the GMIs."""
        for backend in self._backends.values():
            failure = backend.check()
            if failure is not None:
                self._report(None, failure, "the device failed", self._server.log)
                self._terminate()

    def _check_start(self, now: float) -> None:
        """Report a fork server that does not get ready."""
        waiting = [max(self._start, m.spawned) for m in self._members.values() if m.running and not m.pid]
        if waiting and now - min(waiting) > self._limits.start_s:
            message = f"{self._server.what} did not start all GMIs within {self._limits.start_s:g} s"
            self._report(None, RuntimeFailure(code=LAUNCH_FAILED, message=message), "late", self._server.log)
            self._terminate()

    def _check_silence(self, member: Member, silent_s: float) -> None:
        """Report a GMI that gives no sign of life and does no work."""
        first = member.plan.id if member.plan.host is None else member.plan.host
        verdict = judge_silence(member, silent_s, self._limits, lambda: self._server.look(first, member.pid))
        if verdict is None:
            return
        stage = self._stage_at_work(member)
        message = f"GMI {member.plan.id} {verdict}{_during(stage)}"
        self._fail(member, RuntimeFailure(code=GMI_SILENT, message=message), f"silent for {silent_s:.0f} s")
        member.failed = True

    def _check_call(self, member: Member, beat: Heartbeat) -> None:
        """Mention a call of a stage that takes long, and report one that never ends."""
        at_work = beat.stage != RUNTIME_NAME and not beat.waiting
        if not at_work or beat.stage_s < self._limits.slow_s:
            member.slow = False
            return
        if not member.slow:
            member.slow = True
            self._on_event(Slow(gmi=beat.gmi, stage=beat.stage, stage_s=beat.stage_s))
        if beat.stage_s > self._limits.stuck_s and not member.failed:
            message = f"GMI {beat.gmi}: {beat.stage} has not come back from one call for {beat.stage_s:.0f} s"
            self._fail(member, RuntimeFailure(code=GMI_SILENT, message=message), "hanging")
            member.failed = True

    # Stopping

    def _fail(self, member: Member, failure: RuntimeFailure, reason: str) -> None:
        """Note a failure of a GMI and arrange that the others stop."""
        if self._terminating:
            return
        log = self._run_dir.log(member.plan.id if member.plan.host is None else member.plan.host)
        explained = self._backends[member.plan.backend].explain(member.plan, "\n".join(last_lines(log)))
        failure = explained or failure
        stage = self._stage_at_work(member)
        if stage is not None:
            failure = failure.at(stage.name, stage.file, stage.line)
        self._report(member, failure, reason, log)
        patience = self._limits.consequence_s if failure.code in CONSEQUENCES else 0.0
        self._stop_at = min(self._stop_at, time.monotonic() + patience)

    def _report(self, member: Member | None, failure: RuntimeFailure, reason: str, log: Path) -> None:
        event = Failure(
            gmi=member.plan.id if member is not None else None,
            training=member.plan.training if member is not None else None,
            failure=failure,
            reason=reason,
            log=log,
            log_tail=last_lines(log),
        )
        # A peer that misses somebody is a consequence: the cause goes first.
        cause = failure.code not in CONSEQUENCES
        place = next((i for i, f in enumerate(self.failures) if cause and f.failure.code in CONSEQUENCES), None)
        self.failures.insert(len(self.failures) if place is None else place, event)
        self._on_event(event)

    def _terminate(self) -> None:
        """SIGTERM now, SIGKILL a little later."""
        if not self._terminating:
            self._terminating = True
            self._kill_at = time.monotonic() + self._limits.terminate_s
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)  # a stopped process does not see SIGTERM

    def _kill_all(self) -> None:
        """SIGKILL to those that ignored SIGTERM, once their work is off the device."""
        self._kill_at, self._abandon_at = float("inf"), time.monotonic() + self._limits.server_s
        for members in self._processes.values():
            if members[0].running:
                self._backends[members[0].plan.backend].quiesce(members[0].pid)
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for first, members in self._processes.items():
            if members[0].running:
                self._server.signal(first, number)

    # Looking things up

    def _all_done(self, *, in_full: bool) -> bool:
        return all(m.done is not None and not (in_full and m.done.stopped) for m in self._members.values())

    def _stage_at_work(self, member: Member) -> StagePlan | None:
        """The stage that the GMI entered last, from the page that outlives it."""
        stages = self._plan.training(member.plan.training).stages
        index = self._progress.stage(member.plan.id)
        return stages[index - 1] if 0 < index <= len(stages) else None

    def _hang_up(self, member: Member) -> None:
        if member.connection is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(member.connection)
            member.connection.close()
            member.connection = None


def _during(stage: StagePlan | None) -> str:
    return f" while {stage.name} was at work" if stage is not None else ""
