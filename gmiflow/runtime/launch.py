"""`run_plan`: start the programs of a launch plan and watch them to the end.

All wiring of a run is here: rendezvous, slices, launcher, supervisor, records. It runs in the process of
the command line, which has neither torch nor CUDA.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.events import Event, Finished, Iteration, Restarting, RunResult
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.held_signals import held_signals
from gmiflow.runtime.launchers.base import Launcher
from gmiflow.runtime.launchers.local import LocalLauncher
from gmiflow.runtime.leftovers import clean_stale
from gmiflow.runtime.memory import device_bytes
from gmiflow.runtime.outcome import details, not_started, result_of
from gmiflow.runtime.predicted import BEFORE, memory_of
from gmiflow.runtime.processes import gpu_uuids
from gmiflow.runtime.record import Recorder, write_report
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.supervisor import Limits, Supervisor
from gmiflow.runtime.telemetry import Telemetry

MAX_RESTARTS = 3
"""How often a run with `on_failure = restart` is started again before its failure stands."""


def run_plan(
    plan: LaunchPlan,
    programs: Path,
    run_dir: Path,
    *,
    resume: Path | None = None,
    policy: Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    limits: Limits | None = None,
    launcher: Launcher | None = None,
    watch: Callable[[Supervisor], None] | None = None,
) -> RunResult:
    """Run a plan; blocks until every process of the run has ended.

    In the main thread it handles signals meanwhile: Ctrl-C, SIGTERM and SIGHUP stop at the next iteration boundary and
    save a checkpoint; a second one stops at once, and so does a first SIGTERM or SIGHUP after `Limits.interrupt_s`, or
    any before all GMIs are at work. What was started is taken down in any case.

    Args:
        plan: what to start.
        programs: directory of the generated programs.
        run_dir: directory of the run, made when missing; logs, metrics, checkpoints and the report go there.
        resume: checkpoint or run directory to go on from.
        policy: checkpoint or run directory whose policy the trainings that only serve take.
        on_event: called in this thread with everything that happens; `Finished` is the last.
        limits: how long to be patient.
        launcher: how the processes are started; None for this machine's fork server.
        watch: makes this a trial, which leaves nothing but logs in ``run_dir``: no curves, checkpoints or report. It
            is called with the supervisor after every event and at least ten times a second, and may end the trial.

    Returns:
        The result. Failures of GMIs are in it; they are not raised.
    """
    start = time.monotonic()
    run = _Run(
        plan=plan,
        programs=programs,
        directory=RunDirectory(run_dir.resolve()),
        resume=resume,
        policy=policy,
        on_event=on_event,
        limits=limits or Limits(),
        launcher=launcher or LocalLauncher(),
        watch=watch,
    )
    run.directory.logs.mkdir(parents=True, exist_ok=True)
    run.directory.remove_unfinished()
    clean_stale()
    supervisors: list[Supervisor] = []
    try:
        with held_signals(pass_on=watch is not None) as numbers, contextlib.ExitStack() as stack:
            backends = run.launcher.prepare(plan, run.directory.path, stack)
            telemetry = run.attempt(backends, supervisors, numbers)
            while run.launcher.restarts and _restartable(plan, supervisors):
                on_event(Restarting(restart=len(supervisors), limit=MAX_RESTARTS))
                for backend in backends.values():
                    backend.recover()
                telemetry = run.attempt(backends, supervisors, numbers)
        result = result_of(plan, supervisors, run.directory, time.monotonic() - start)
        report = {
            **details(plan, supervisors[-1], memory_of(telemetry)),
            "restarts": result.restarts,
            "replaced": {str(gmi): count for gmi, count in supervisors[-1].replaced.items()},
            "telemetry": telemetry,
        }
    except GMIError as problem:
        result, report = not_started(problem.failure, run.directory, time.monotonic() - start), {}
        on_event(result.failures[0])
    if watch is None:
        write_report(run.directory.report, result, report)
    on_event(Finished(result=result))
    return result


def _restartable(plan: LaunchPlan, supervisors: list[Supervisor]) -> bool:
    """Whether the run goes on after how it ended: not when it never got to an iteration, which it would not again."""
    wanted = any(training.on_failure == "restart" for training in plan.trainings)
    last = supervisors[-1]
    if not wanted or last.status != "failed" or last.stopped_by is not None or len(supervisors) > MAX_RESTARTS:
        return False
    return any(merger.latest is not None for attempt in supervisors for merger in attempt.mergers.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What all attempts of a run have in common; see `run_plan`."""

    plan: LaunchPlan
    programs: Path
    directory: RunDirectory
    resume: Path | None
    on_event: Callable[[Event], None]
    limits: Limits
    launcher: Launcher
    policy: Path | None = None
    watch: Callable[[Supervisor], None] | None = None

    def attempt(
        self, backends: Mapping[str, GMIBackend], supervisors: list[Supervisor], numbers: socket.socket | None
    ) -> dict[str, Any]:
        """Start all GMIs and watch them until they have ended; a later attempt goes on from the last checkpoints.

        Args:
            backends: which made the slices.
            supervisors: of the attempts before; the new one is appended.
            numbers: where the numbers of signals are read, see `held_signals`.

        Returns:
            Telemetry's summary.

        Raises:
            GMIError: E0711 when the GMIs cannot be started.
        """
        plan, directory = self.plan, self.directory
        again = bool(supervisors)
        with contextlib.ExitStack() as stack:
            recorder: Recorder | None = None
            first_training = plan.trainings[0].name

            def record(event: Event) -> None:
                if isinstance(event, Iteration) and recorder is not None:
                    recorder.iteration(event, telemetry.scalars() if event.training == first_training else None)
                self.on_event(event)

            rendezvous = Rendezvous.create(len(plan.gmis))
            stack.callback(rendezvous.remove)
            server = stack.enter_context(self.launcher.server(plan, directory, rendezvous))
            supervisor = Supervisor(plan, rendezvous, server, directory, backends, self.limits, record)
            stack.callback(supervisor.close)
            # Processes of other machines cannot be looked at from here.
            here = self.launcher.here
            uuids = gpu_uuids(plan.gmis) if here else ()
            before = device_bytes(uuids)
            telemetry = Telemetry(directory.path, uuids, lambda: supervisor.processes if here else {})
            stack.enter_context(telemetry)
            if numbers is not None:
                supervisor.watch_signals(numbers)
            arguments = self._arguments(rendezvous, again=again)
            requests = self.launcher.requests(plan, self.programs, directory, arguments, backends)
            by_gmi = {request.gmi: request for request in requests}
            if self.launcher.replaces:
                supervisor.start_again = lambda gmi: server.spawn(_continued(by_gmi[gmi]))
            for request in requests:
                server.spawn(request)
                supervisor.expect(request.gmi)
            if self.watch is None:  # loads TensorBoard while the processes load torch
                recorder = Recorder(directory, [training.name for training in plan.trainings], again=again)
                stack.callback(recorder.close)
            supervisor.run(self.watch)
        directory.remove_unfinished()
        supervisors.append(supervisor)
        return {**telemetry.summary(), BEFORE: {f"gpu_{index}": used / 2**20 for index, used in enumerate(before)}}

    def _arguments(self, rendezvous: Rendezvous, *, again: bool) -> list[str]:
        """The command line of every process."""
        arguments = ["--rendezvous", str(rendezvous.path), "--timeout-s", f"{self.limits.collective_s:g}"]
        if self.watch is None:
            arguments += ["--run-dir", str(self.directory.path)]
        if self.resume is not None:
            arguments += ["--resume", str(self.resume.resolve())]
        if self.policy is not None:
            arguments += ["--policy", str(self.policy.resolve())]
        return [*arguments, "--continue"] if again else arguments


def _continued(request: SpawnRequest) -> SpawnRequest:
    """The request for a process that takes the place of a lost one: it goes on from the last checkpoint."""
    return dataclasses.replace(request, arguments=[*request.arguments, "--continue"])
