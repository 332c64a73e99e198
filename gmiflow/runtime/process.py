"""`main`: a generated program as a process of its own; `run_programs`: one or several in this process.

This is where process-global things are set (threads, logging, module path, precision), from the
programs' constants; the stages and `GMIRuntime` touch none, so that several GMIs can share a process,
each in a thread of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gmiflow.runtime.comm import faults
from gmiflow.runtime.comm.channel.connect import open_links, weights_path
from gmiflow.runtime.comm.collectives.ip import TIMEOUT_S
from gmiflow.runtime.connect import Switchboard
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMI, run_gmi
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.failure import STAGE_RAISED, GMIError, RuntimeFailure
from gmiflow.runtime.joint import JointGroup, JointSeat, joint_groups, usable_threads
from gmiflow.runtime.messages import Failed
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.reporter import LogReporter, SocketReporter, call_supervisor
from gmiflow.runtime.run_directory import find_checkpoint
from gmiflow.runtime.slices import Slices
from gmiflow.runtime.split import make_runtime
from gmiflow.runtime.stages import load_entry
from gmiflow.runtime.traceback_text import concise

if TYPE_CHECKING:
    from gmiflow.runtime.comm.mpi_world import MPIWorld

logger = logging.getLogger(__name__)

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The command line of a generated program; see `add_options`."""

    rendezvous: Path
    run_dir: Path | None
    resume: Path | None
    timeout_s: float
    policy: Path | None = None
    go_on: bool = False
    mpi_node: str | None = None

    def checkpoint(self, training: str) -> Path | None:
        """The checkpoint to start from, or None to start anew.

        Raises:
            GMIError: E0707 when the one asked for is not there.
        """
        if self.go_on and self.run_dir is not None:
            with contextlib.suppress(GMIError):  # the run may have failed before its first checkpoint
                return find_checkpoint(self.run_dir, training)
        return find_checkpoint(self.resume, training) if self.resume is not None else None


def main(program: Program, arguments: Sequence[str] | None = None) -> None:
    """Run one GMI and leave the process: status 0 when it has done its work, 1 when it failed."""
    options = parse_options(program, arguments)
    sys.exit(run_programs([program], options))


def parse_options(program: Program, arguments: Sequence[str] | None = None) -> Options:
    """Read the command line of a generated program; ``arguments`` defaults to that of the process."""
    gmi = program.gmi
    parser = argparse.ArgumentParser(
        description=f"GMI {gmi.id} of {program.gmis}: {', '.join(gmi.stages)} of the training "
        f"{program.training.name} for environments {gmi.env_offset} to {gmi.env_offset + gmi.num_env - 1}.",
        epilog="`gmiflow run` starts all programs of a plan and watches them. To start them by hand, give every "
        "program the same fresh directory: python gmi_00.py --rendezvous DIR & python gmi_01.py --rendezvous DIR",
    )
    add_options(parser)
    return chosen_options(parser.parse_args(arguments))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every process of a run is told."""
    parser.add_argument("--rendezvous", type=Path, required=True, metavar="DIR", help="where the GMIs meet")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where checkpoints go (none: not written)")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="checkpoint or run directory to go on from")
    parser.add_argument(
        "--policy", type=Path, metavar="CHECKPOINT", help="checkpoint or run directory whose policy is served"
    )
    parser.add_argument(
        "--continue", action="store_true", dest="go_on", help="go on from the last checkpoint in --run-dir, if any"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=TIMEOUT_S, metavar="S", help="how long to wait for a GMI (%(default)g)"
    )
    parser.add_argument("--mpi-node", metavar="NAME", help="join MPI; GMIs that give the same name share memory")


def chosen_options(given: argparse.Namespace) -> Options:
    """What was given for `add_options`."""
    return Options(
        rendezvous=given.rendezvous,
        run_dir=given.run_dir,
        resume=given.resume,
        policy=given.policy,
        timeout_s=given.timeout_s,
        go_on=given.go_on,
        mpi_node=given.mpi_node,
    )


def run_programs(programs: Sequence[Program], options: Options) -> int:
    """Run GMIs in this process, several as a thread each; the exit status.

    Failures are logged with their traceback and reported without.
    """
    shown = "%(asctime)s %(levelname)s " + ("%(threadName)s: " if len(programs) > 1 else "") + "%(message)s"
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=shown)
    try:
        rendezvous = Rendezvous.join(options.rendezvous)
    except GMIError as problem:
        logger.error("%s", concise(problem))
        return 1
    workers = [_Worker(program, options, rendezvous) for program in programs]
    slices = Slices(programs)
    try:
        slices.open()
        _set_up_process(programs)
        world = _join_world(programs, options)
        switchboard = Switchboard(programs, rendezvous, slices.device, options.timeout_s, world)
        groups = joint_groups(programs, switchboard.turn, slices.make_stream)
        for worker in workers:
            worker.joint = groups.get(worker.id)
        status = _run_all(workers, slices, switchboard)
        if world is not None and status == 0:
            world.close()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as problem:
        return workers[0].give_up(problem)
    finally:
        for worker in workers:
            worker.reporter.close()
        slices.close()


def _join_world(programs: Sequence[Program], options: Options) -> MPIWorld | None:
    """Join the processes of other machines, if the run has such."""
    if options.mpi_node is None:
        return None
    from gmiflow.runtime.comm.mpi_world import MPIWorld

    return MPIWorld([program.gmi.id for program in programs], options.mpi_node, options.run_dir)


def _run_all(workers: Sequence[_Worker], slices: Slices, switchboard: Switchboard) -> int:
    """The worst exit status of the workers."""
    if len(workers) == 1:
        return workers[0].run(slices, switchboard)
    threads = [
        threading.Thread(target=worker.run, args=(slices, switchboard), name=f"GMI {worker.id}", daemon=True)
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(worker.status for worker in workers)


class _Worker:
    """One GMI of this process.

    Attributes:
        status: exit status that it asks for.
        joint: those that share a simulator with it, if any.
    """

    def __init__(self, program: Program, options: Options, rendezvous: Rendezvous) -> None:
        """Join the supervisor, if there is one."""
        self.id = program.gmi.id
        self.status = 0
        self.joint: JointGroup | None = None
        self._program = program
        self._options = options
        self._rendezvous = rendezvous
        progress = rendezvous.progress()
        slot = progress.slot(self.id) if progress is not None else None
        self._clock = StageClock([stage.name for stage in program.training.stages], slot)
        supervisor = call_supervisor(rendezvous)
        self.reporter = LogReporter() if supervisor is None else SocketReporter(supervisor, self.id, self._clock)

    def run(self, slices: Slices, switchboard: Switchboard) -> int:
        """Do the GMI's work in the current thread; the exit status."""
        with contextlib.ExitStack() as stack:
            try:
                self._run(slices, switchboard, stack)
            except KeyboardInterrupt:
                self.status = INTERRUPTED
            except Exception as problem:
                self.give_up(problem)
        return self.status

    def _run(self, slices: Slices, switchboard: Switchboard, stack: contextlib.ExitStack) -> None:
        program, options = self._program, self._options
        if self.joint is not None:  # also when it fails before it has a simulator: the others shall not wait
            stack.callback(self.joint.leave, self.id)
        slices.enter_thread()
        self.reporter.send(slices.prove(program.gmi))
        # Groups are joined on the GMI's own stream: kernels of threads that met on one stream would wait in line.
        stream = slices.make_stream(program.gmi, 0)
        with torch.cuda.stream(stream):
            collectives, control = switchboard.connect(program, stack)
            bridge = switchboard.bridge(program, self.give_up)
            if bridge is None:
                links = open_links(program, self._rendezvous, slices.device, options.timeout_s, stack)
            else:
                links = bridge.links(stack)
                stack.callback(bridge.close)
                bridge.start()
        training = program.training
        self._clock.is_waiting = lambda: not switchboard.turn.held
        context = GMIContext(
            program=program,
            device=slices.device,
            collectives=collectives,
            control=control,
            run_dir=options.run_dir,
            resume=options.checkpoint(training.name) if training.mode != "serve" else None,
            policy=find_checkpoint(options.policy, training.name) if options.policy is not None else None,
            turn=switchboard.turn,
            links=links,
            weights_path=weights_path(self._rendezvous, training.name),
            timeout_s=options.timeout_s,
            stream=stream,
            make_stream=lambda priority: slices.require_stream(program.gmi, priority),
            joint=JointSeat(group=self.joint, gmi=self.id, stream=stream) if self.joint is not None else None,
        )
        gmi_class = load_entry(training.gmi, GMI) if training.gmi is not None else GMI
        try:
            run_gmi(gmi_class, make_runtime(context, self.reporter, self._clock))
            if bridge is not None:
                bridge.finish()
        except Exception as problem:
            known = bridge.behind(problem) if bridge is not None else problem
            raise faults.behind(known, collectives.values()) from problem

    def give_up(self, problem: Exception) -> int:
        """Tell why, the first time; the exit status."""
        if self.status == 1:
            return self.status
        logger.error("GMI %d gives up\n%s", self.id, concise(problem))
        self.reporter.send(Failed(gmi=self.id, failure=explain(problem, self._program, self._clock)))
        self.status = 1
        return self.status


def explain(problem: Exception, program: Program, clock: StageClock) -> RuntimeFailure:
    """The failure behind an exception, at the stage that was at work."""
    working = clock.names[clock.current]
    stage = next((stage for stage in program.training.stages if stage.name == working), None)
    if isinstance(problem, GMIError):
        failure = problem.failure
    else:
        who = stage.name if stage is not None else f"GMI {program.gmi.id}"
        text = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        notes = tuple(getattr(problem, "__notes__", ()))
        failure = RuntimeFailure(code=STAGE_RAISED, message=f"{who} raised {text}", notes=notes)
    return failure if stage is None else failure.at(stage.name, stage.file, stage.line)


def _threads(programs: Sequence[Program]) -> int:
    """Torch threads of a process: of one GMI, or of all that share a simulator, who work one at a time."""
    groups: dict[int, list[int]] = {}
    for program in programs:
        gmi = program.gmi
        groups.setdefault(gmi.id if gmi.joint is None else gmi.joint, []).append(gmi.threads)
    return max(wanted[0] if len(wanted) == 1 else usable_threads(wanted) for wanted in groups.values())


def _set_up_process(programs: Sequence[Program]) -> None:
    """What belongs to the process as a whole; the GMIs of one process agree on it."""
    torch.set_num_threads(_threads(programs))
    allowed = programs[0].training.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    # Users keep their modules beside the `.gmi` file that names them, or where they work.
    beside = [Path(stage.file).resolve().parent for program in programs for stage in program.training.stages]
    for folder in dict.fromkeys([*beside, Path.cwd()]):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))
