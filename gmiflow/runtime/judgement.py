"""What went wrong, in whose stage, and who is to blame: failures as they are told, and judged by time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gmiflow.plan import LaunchPlan, StagePlan
from gmiflow.runtime.events import Event, Failure, Slow
from gmiflow.runtime.failure import CONSEQUENCES, GMI_DIED, GMI_SILENT, LAUNCH_FAILED, RuntimeFailure
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.launchers.base import ProcessServer
from gmiflow.runtime.members import Limits, Member, ending, judge_silence, last_lines, was
from gmiflow.runtime.messages import RUNTIME_NAME, Heartbeat
from gmiflow.runtime.rendezvous import Progress
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.stopping import Stopping

_OUT_OF_MEMORY = "the kernel kills processes when memory runs out: its log (dmesg) tells"


class Judgement:
    """Notes failures, and arranges that the others stop.

    Attributes:
        failures: what failed, the cause first.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        members: Mapping[int, Member],
        server: ProcessServer,
        run_dir: RunDirectory,
        backends: Mapping[str, GMIBackend],
        limits: Limits,
        progress: Progress,
        stopping: Stopping,
        on_event: Callable[[Event], None],
        put_aside: Callable[[Member, str], bool],
    ) -> None:
        """Nothing has failed yet.

        Args:
            plan: of the run.
            members: by GMI id.
            server: which started them.
            run_dir: where their logs are.
            backends: by name; they explain what a log says.
            limits: what is too long.
            progress: the page of stages at work.
            stopping: stops the others.
            on_event: gets every failure, and every call that is slow.
            put_aside: ends a GMI that hangs as the text says, if another takes its place, and whether that is so: then
                nothing has failed.
        """
        self.failures: list[Failure] = []
        self._plan = plan
        self._members = members
        self._server = server
        self._run_dir = run_dir
        self._backends = backends
        self._limits = limits
        self._progress = progress
        self._stopping = stopping
        self._on_event = on_event
        self._put_aside = put_aside
        self._start = self._looked = time.monotonic()

    # What is told

    def failed(self, member: Member, failure: RuntimeFailure, reason: str) -> None:
        """A GMI has failed: note it, and arrange that the others stop."""
        if self._stopping.begun:
            return
        log = self._run_dir.log(member.plan.id if member.plan.host is None else member.plan.host)
        explained = self._backends[member.plan.backend].explain(member.plan, "\n".join(last_lines(log)))
        failure = explained or failure
        stage = self._stage_at_work(member)
        if stage is not None:
            failure = failure.at(stage.name, stage.file, stage.line)
        self._report(member, failure, reason, log)
        self._stopping.after(self._limits.consequence_s if failure.code in CONSEQUENCES else 0.0)

    def all_failed(self, failure: RuntimeFailure, reason: str) -> None:
        """Nothing can go on, and no GMI is to blame."""
        self._report(None, failure, reason, self._server.log)
        self._stopping.begin()

    def died(self, members: Sequence[Member], status: int) -> None:
        """A process has ended before its time."""
        first, *others = members
        notes = (_OUT_OF_MEMORY,) if status == -signal.SIGKILL else ()
        if others:
            names = ", ".join(str(member.plan.id) for member in others)
            notes = (f"{'GMI' if len(others) == 1 else 'GMIs'} {names} shared its process and ended with it", *notes)
        how = ending(status)
        message = f"GMI {first.plan.id} {was(how)}{_during(self._stage_at_work(first))}"
        self.failed(first, RuntimeFailure(code=GMI_DIED, message=message, notes=notes), how)

    def server_died(self) -> None:
        """The server has ended, and with it its processes."""
        how = self._server.ending()
        notes = (_OUT_OF_MEMORY,) if "SIGKILL" in how else ()
        failure = RuntimeFailure(code=LAUNCH_FAILED, message=f"{self._server.what} {how}", notes=notes)
        self._report(None, failure, "ended", self._server.log)

    def beaten(self, member: Member, beat: Heartbeat) -> None:
        """Mention a call of a stage that takes long, and report one that never ends."""
        at_work = beat.stage != RUNTIME_NAME and not beat.waiting
        slow = at_work and beat.stage_s >= self._limits.slow_s
        if slow and not member.slow:
            self._on_event(Slow(gmi=beat.gmi, stage=beat.stage, stage_s=beat.stage_s))
        member.slow = slow
        if not at_work or member.failed or member.hanging or beat.stage_s <= self._limits.replaced_s:
            return
        what = f"{beat.stage} has not come back from one call for {beat.stage_s:.0f} s"
        if not self._put_aside(member, f"hanging: {what}") and beat.stage_s > self._limits.stuck_s:
            self.failed(member, RuntimeFailure(code=GMI_SILENT, message=f"GMI {beat.gmi}: {what}"), "hanging")
            member.failed = True

    # What time shows

    def look(self, now: float) -> None:
        """Report what took too long, and what happened to devices."""
        if now - self._looked > self._limits.silence_s / 2:
            # It was this process that did not run (a suspended machine, Ctrl-Z): nobody else is to blame.
            for member in self._members.values():
                member.heard = now
        self._looked = now
        if self._stopping.begun:
            return
        self._check_start(now)
        self._check_devices()
        for member in self._members.values():
            if member.running and member.pid and not member.failed and not member.hanging:
                self._check_silence(member, now - member.heard)

    def _check_start(self, now: float) -> None:
        """Report a server that does not get ready."""
        waiting = [max(self._start, m.spawned) for m in self._members.values() if m.running and not m.pid]
        if waiting and now - min(waiting) > self._limits.start_s:
            message = f"{self._server.what} did not start all GMIs within {self._limits.start_s:g} s"
            self.all_failed(RuntimeFailure(code=LAUNCH_FAILED, message=message), "late")

    def _check_devices(self) -> None:
        """Report what happened to a device under the GMIs."""
        for backend in self._backends.values():
            failure = backend.check()
            if failure is not None:
                self.all_failed(failure, "the device failed")

    def _check_silence(self, member: Member, silent_s: float) -> None:
        """Report a GMI that gives no sign of life and does no work."""
        first = member.plan.id if member.plan.host is None else member.plan.host
        verdict = judge_silence(member, silent_s, self._limits, lambda: self._server.look(first, member.pid))
        if verdict is None or self._put_aside(member, f"silent for {silent_s:.0f} s"):
            return
        message = f"GMI {member.plan.id} {verdict}{_during(self._stage_at_work(member))}"
        self.failed(member, RuntimeFailure(code=GMI_SILENT, message=message), f"silent for {silent_s:.0f} s")
        member.failed = True

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

    def _stage_at_work(self, member: Member) -> StagePlan | None:
        """The stage that the GMI entered last, from the page that outlives it."""
        stages = self._plan.training(member.plan.training).stages
        index = self._progress.stage(member.plan.id)
        return stages[index - 1] if 0 < index <= len(stages) else None


def _during(stage: StagePlan | None) -> str:
    return f" while {stage.name} was at work" if stage is not None else ""
