"""`run_plan`: start the programs of a launch plan on this machine and watch them to the end.

All wiring of a run is here: rendezvous, backends, fork server, cores, supervisor, records. It runs
in the process of the command line, which has neither torch nor CUDA.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from gmiflow.hardware import detect
from gmiflow.plan import Backend, GMIPlan, LaunchPlan
from gmiflow.runtime.events import Event, Failure, Finished, Iteration, RunResult
from gmiflow.runtime.failure import LAUNCH_FAILED, GMIError, RuntimeFailure, error
from gmiflow.runtime.forkserver import SpawnRequest
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.cpus import CPUDemand, Topology, read_topology
from gmiflow.runtime.gmi.cpus import assign_cpus as cores_for
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.record import Recorder, write_report
from gmiflow.runtime.rendezvous import Rendezvous, clean_stale
from gmiflow.runtime.run_directory import RunDirectory
from gmiflow.runtime.spawn import ForkServer
from gmiflow.runtime.supervisor import Limits, Supervisor
from gmiflow.runtime.telemetry import Telemetry

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_plan(
    plan: LaunchPlan,
    programs: Path,
    run_dir: Path,
    *,
    resume: Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    limits: Limits | None = None,
) -> RunResult:
    """Run a plan; blocks until every process of the run has ended.

    In the main thread it handles signals meanwhile: Ctrl-C stops at the next iteration boundary and
    saves a checkpoint, a second one stops at once, as SIGTERM and SIGHUP do.

    Args:
        plan: what to start.
        programs: directory of the generated programs.
        run_dir: directory of the run, made when missing; logs, metrics, checkpoints and the report go there.
        resume: checkpoint or run directory to go on from.
        on_event: called in this thread with everything that happens; `Finished` is the last.
        limits: how long to be patient.

    Returns:
        The result. Failures of GMIs are in it; they are not raised.
    """
    start = time.monotonic()
    limits = limits or Limits()
    directory = RunDirectory(run_dir.resolve())
    directory.logs.mkdir(parents=True, exist_ok=True)
    clean_stale()
    try:
        with contextlib.ExitStack() as stack:
            recorder: Recorder | None = None
            first_training = plan.trainings[0].name

            def record(event: Event) -> None:
                if isinstance(event, Iteration) and recorder is not None:
                    recorder.iteration(event, telemetry.scalars() if event.training == first_training else None)
                on_event(event)

            backends = _prepare_backends(plan, directory.path, stack)
            rendezvous = Rendezvous.create(len(plan.gmis))
            stack.callback(rendezvous.remove)
            server = ForkServer(preloaded_modules(plan), directory.logs / "forkserver.log")
            stack.enter_context(server)
            supervisor = Supervisor(plan, rendezvous, server, directory, backends, limits, record)
            stack.callback(supervisor.close)
            telemetry = Telemetry(directory.path, _gpu_uuids(plan.gmis), lambda: supervisor.processes)
            stack.enter_context(telemetry)
            stack.enter_context(_signals_go_to(supervisor))
            for request in spawn_requests(plan, programs, directory, rendezvous, backends, resume, limits):
                server.spawn(request)
                supervisor.expect(request.gmi)
            # Loads TensorBoard while the fork server loads torch.
            recorder = Recorder(directory, [training.name for training in plan.trainings])
            stack.callback(recorder.close)
            supervisor.run()
        result = _result(plan, supervisor, directory, time.monotonic() - start)
        write_report(directory.report, result, {**_details(plan, supervisor), "telemetry": telemetry.summary()})
    except GMIError as problem:
        result = _not_started(problem.failure, directory, time.monotonic() - start)
        on_event(result.failures[0])
        write_report(directory.report, result, {})
    on_event(Finished(result=result))
    return result


def preloaded_modules(plan: LaunchPlan) -> list[str]:
    """Modules that the fork server may load: the plan's own entries inside this package.

    Those do nothing but define classes. A user's module might start threads, so each GMI loads it.
    """
    entries = [stage.entry for training in plan.trainings for stage in training.stages if stage.python is None]
    modules = dict.fromkeys(entry.partition(":")[0] for entry in entries)
    return [module for module in modules if module.startswith("gmiflow.")]


def assign_cpus(gmis: Sequence[GMIPlan], topology: Topology | None = None) -> dict[int, list[int]]:
    """Logical CPUs for each GMI, by id: whole cores near its GPU, its own as long as there are enough.

    Args:
        gmis: the GMIs of this machine.
        topology: the usable cores; default: this process's.
    """
    nodes = _gpu_nodes(gmis)
    demands = [CPUDemand(cores=gmi.cores, node=nodes.get(gmi.device)) for gmi in gmis]
    cpus = cores_for(topology or read_topology(), demands)
    return {gmi.id: list(mine) for gmi, mine in zip(gmis, cpus, strict=True)}


def _gpu_uuids(gmis: Sequence[GMIPlan]) -> tuple[str, ...]:
    """UUIDs of the GPUs up to the last that the GMIs use, by device; empty without GPUs."""
    devices = [gmi.device for gmi in gmis if gmi.backend != "cpu"]
    return tuple(gpu.uuid for gpu in detect().gpus[: max(devices) + 1]) if devices else ()


def _gpu_nodes(gmis: Sequence[GMIPlan]) -> dict[int, int | None]:
    """NUMA node of each GPU that the GMIs use, by device; empty without GPUs."""
    uuids = _gpu_uuids(gmis)
    if not uuids:
        return {}
    from gmiflow.runtime.gmi.nvml import gpu_nodes

    return dict(enumerate(gpu_nodes(uuids)))


def spawn_requests(
    plan: LaunchPlan,
    programs: Path,
    directory: RunDirectory,
    rendezvous: Rendezvous,
    backends: Mapping[str, GMIBackend],
    resume: Path | None,
    limits: Limits,
) -> list[SpawnRequest]:
    """What the fork server is asked to start.

    Raises:
        GMIError: E0711 when a program is missing.
    """
    arguments = ["--rendezvous", str(rendezvous.path), "--run-dir", str(directory.path)]
    arguments += ["--timeout-s", f"{limits.collective_s:g}"]
    if resume is not None:
        arguments += ["--resume", str(resume.resolve())]
    cpus = assign_cpus(plan.gmis)
    requests: list[SpawnRequest] = []
    for gmi in plan.gmis:
        program = (programs / gmi.program).resolve()
        if not program.is_file():
            raise error(LAUNCH_FAILED, f"the program of GMI {gmi.id} is missing: {program}")
        requests.append(
            SpawnRequest(
                gmi=gmi.id,
                program=str(program),
                arguments=arguments,
                environment=backends[gmi.backend].environment(gmi),
                cpus=cpus[gmi.id],
                log=str(directory.log(gmi.id)),
            )
        )
    return requests


def _prepare_backends(plan: LaunchPlan, run_dir: Path, stack: contextlib.ExitStack) -> dict[str, GMIBackend]:
    """Make the slices; ``stack`` takes them away again."""
    backends: dict[str, GMIBackend] = {}
    names: list[Backend] = [gmi.backend for gmi in plan.gmis]
    for name in dict.fromkeys(names):
        backends[name] = make_backend(name)
        stack.callback(backends[name].release)
        backends[name].prepare([gmi for gmi in plan.gmis if gmi.backend == name], run_dir)
    return backends


@contextlib.contextmanager
def _signals_go_to(supervisor: Supervisor) -> Generator[None]:
    """Let the supervisor see signals; only Python's main thread can, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)

    def handle(number: int, frame: FrameType | None) -> None:
        """Python writes the number to the wake-up descriptor; nothing else is to do."""

    # What is ignored stays ignored: `nohup` and background jobs rely on it.
    watched = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in watched}
    previous_wakeup = signal.set_wakeup_fd(writing.fileno())
    supervisor.watch_signals(reading)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_wakeup)
        for number, handler in previous.items():
            signal.signal(number, handler)
        reading.close()
        writing.close()


def _result(plan: LaunchPlan, supervisor: Supervisor, directory: RunDirectory, wall_s: float) -> RunResult:
    status = supervisor.status
    interrupted = 128 + (supervisor.stopped_by or 0)
    mergers = supervisor.mergers
    checksums = {
        training.name: supervisor.done[first].checksum
        for training in plan.trainings
        if (first := plan.members(training.name)[0].id) in supervisor.done
    }
    return RunResult(
        status=status,
        exit_code={"finished": 0, "failed": 1, "interrupted": interrupted}[status],
        failures=tuple(supervisor.failures),
        wall_s=wall_s,
        iterations={name: m.latest.iteration if m.latest is not None else 0 for name, m in mergers.items()},
        env_steps={name: m.env_steps for name, m in mergers.items()},
        mean_return={name: m.latest.mean_return if m.latest is not None else None for name, m in mergers.items()},
        checksums=checksums,
        report=directory.report,
    )


def _not_started(failure: RuntimeFailure, directory: RunDirectory, wall_s: float) -> RunResult:
    """The result of a run that failed before its first process."""
    event = Failure(gmi=None, training=None, failure=failure, reason="not started")
    return RunResult(
        status="failed",
        exit_code=1,
        failures=(event,),
        wall_s=wall_s,
        iterations={},
        env_steps={},
        mean_return={},
        checksums={},
        report=directory.report,
    )


def _details(plan: LaunchPlan, supervisor: Supervisor) -> dict[str, Any]:
    """Per training and per GMI: where the time went, and what was reached."""
    trainings: dict[str, Any] = {}
    for training in plan.trainings:
        merger = supervisor.mergers[training.name]
        members = plan.members(training.name)
        latest = merger.latest
        checksums = sorted({supervisor.done[g.id].checksum for g in members if g.id in supervisor.done})
        trainings[training.name] = {
            "iterations": latest.iteration if latest is not None else 0,
            "execution": {"planned": training.execution, **supervisor.lowering.get(training.name, {})},
            "env_steps": merger.env_steps,
            "env_steps_per_s": round(merger.env_steps / merger.seconds, 1) if merger.seconds else None,
            "mean_return": latest.mean_return if latest is not None else None,
            "episode_length": latest.episode_length if latest is not None else None,
            "metrics": latest.metrics if latest is not None else {},
            "weights": {"checksums": checksums, "equal_on_all_gmis": len(checksums) == 1},
            "gmis": [
                {
                    "id": gmi.id,
                    "env_offset": gmi.env_offset,
                    "num_env": gmi.num_env,
                    "slice": supervisor.slices[gmi.id],
                    "setup_s": round(supervisor.setup_s.get(gmi.id, 0.0), 4),
                    "seconds": {name: round(s, 4) for name, s in merger.times[gmi.id].items()},
                }
                for gmi in members
            ],
        }
    return {"trainings": trainings}
