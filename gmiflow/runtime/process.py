"""`main`: a generated program as a process of its own.

This is where process-global things are set (threads, logging, module path, precision), from the
program's constants; the stages and `GMIRuntime` touch none, so they also run as one of several GMIs
in a host process.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gmiflow.plan import CollectivePlan
from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.comm.collectives.ip import CONTROL_SLOT_BYTES, SLOT_BYTES, TIMEOUT_S, IPCollective
from gmiflow.runtime.comm.collectives.local import LocalCollective
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMI, GMIRuntime, run_gmi
from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.failure import NOT_SUPPORTED, STAGE_RAISED, GMIError, RuntimeFailure, error
from gmiflow.runtime.gmi.registry import make_backend
from gmiflow.runtime.messages import Failed, Hello
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.reporter import LogReporter, SocketReporter
from gmiflow.runtime.run_directory import find_checkpoint
from gmiflow.runtime.stages import load_entry

logger = logging.getLogger(__name__)

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The command line of a generated program; see `parse_options`."""

    rendezvous: Path
    run_dir: Path | None
    resume: Path | None
    timeout_s: float


def main(program: Program, arguments: Sequence[str] | None = None) -> None:
    """Run one GMI and leave the process: status 0 when it has done its work, 1 when it failed."""
    options = parse_options(program, arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    sys.exit(run_process(program, options))


def parse_options(program: Program, arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; ``arguments`` defaults to that of the process."""
    gmi = program.gmi
    parser = argparse.ArgumentParser(
        description=f"GMI {gmi.id} of {program.gmis}: {', '.join(gmi.stages)} of the training "
        f"{program.training.name} for environments {gmi.env_offset} to {gmi.env_offset + gmi.num_env - 1}.",
        epilog="`gmiflow run` starts all programs of a plan and watches them. To start them by hand, give every "
        "program the same fresh directory: python gmi_00.py --rendezvous DIR & python gmi_01.py --rendezvous DIR",
    )
    parser.add_argument("--rendezvous", type=Path, required=True, metavar="DIR", help="where the GMIs meet")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="where checkpoints go (none: not written)")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="checkpoint or run directory to go on from")
    parser.add_argument(
        "--timeout-s", type=float, default=TIMEOUT_S, metavar="S", help="how long to wait for a GMI (%(default)g)"
    )
    given = parser.parse_args(arguments)
    return Options(rendezvous=given.rendezvous, run_dir=given.run_dir, resume=given.resume, timeout_s=given.timeout_s)


def run_process(program: Program, options: Options) -> int:
    """Run one GMI; the exit status. Failures are logged with their traceback and reported without."""
    rendezvous = Rendezvous.join(options.rendezvous)
    progress = rendezvous.progress()
    slot = progress.slot(program.gmi.id) if progress is not None else None
    clock = StageClock([stage.name for stage in program.training.stages], slot)
    listening = rendezvous.socket.exists()
    reporter = SocketReporter(rendezvous.socket, program.gmi.id, clock) if listening else LogReporter()
    collectives: list[Collective] = []
    try:
        reporter.send(_prove(program))
        _set_up_process(program)
        context = _connect(program, options, rendezvous, collectives)
        gmi_class = load_entry(program.training.gmi, GMI) if program.training.gmi is not None else GMI
        run_gmi(gmi_class, GMIRuntime(context, reporter, clock))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as problem:
        logger.exception("GMI %d gives up", program.gmi.id)
        reporter.send(Failed(gmi=program.gmi.id, failure=explain(problem, program, clock)))
        return 1
    finally:
        for collective in collectives:
            collective.close()
        reporter.close()
    return 0


def explain(problem: Exception, program: Program, clock: StageClock) -> RuntimeFailure:
    """The failure behind an exception, at the stage that was at work."""
    working = clock.names[clock.current]
    stage = next((stage for stage in program.training.stages if stage.name == working), None)
    if isinstance(problem, GMIError):
        failure = problem.failure
    else:
        who = stage.name if stage is not None else f"GMI {program.gmi.id}"
        text = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        failure = RuntimeFailure(code=STAGE_RAISED, message=f"{who} raised {text}")
    return failure if stage is None else failure.at(stage.name, stage.file, stage.line)


def _prove(program: Program) -> Hello:
    gmi = program.gmi
    return Hello(gmi=gmi.id, slice=make_backend(gmi.backend).prove(gmi))


def _set_up_process(program: Program) -> None:
    """What belongs to the process as a whole."""
    torch.set_num_threads(program.gmi.threads)
    allowed = program.training.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    # Users keep their modules beside the `.gmi` file that names them, or where they work.
    beside = [Path(stage.file).resolve().parent for stage in program.training.stages]
    for folder in dict.fromkeys([*beside, Path.cwd()]):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))


def _connect(program: Program, options: Options, rendezvous: Rendezvous, collectives: list[Collective]) -> GMIContext:
    """Join all groups; ``collectives`` receives what must be closed, also when joining fails."""
    gmi, training = program.gmi, program.training
    groups = {plan.name: plan for plan in program.collectives}
    members = next((plan.members for plan in program.collectives if plan.training == training.name), (gmi.id,))
    control_plan = CollectivePlan(name=f"{training.name}.control", training=training.name, kind="ip", members=members)
    by_name: dict[str, Collective] = {}
    for plan in (*groups.values(), control_plan):
        slot_bytes = CONTROL_SLOT_BYTES if plan is control_plan else SLOT_BYTES
        by_name[plan.name] = _open(plan, gmi.id, rendezvous, slot_bytes, options.timeout_s)
        collectives.append(by_name[plan.name])
    for collective in collectives:
        if isinstance(collective, IPCollective):
            collective.connect()
    control = by_name.pop(control_plan.name)
    return GMIContext(
        program=program,
        device=torch.device("cpu" if gmi.backend == "cpu" else "cuda"),
        collectives=by_name,
        control=control,
        run_dir=options.run_dir,
        resume=find_checkpoint(options.resume, training.name) if options.resume is not None else None,
    )


def _open(plan: CollectivePlan, gmi: int, rendezvous: Rendezvous, slot_bytes: int, timeout_s: float) -> Collective:
    if len(plan.members) == 1:
        return LocalCollective.alone(plan.name, gmi)
    if plan.kind != "ip":
        raise error(NOT_SUPPORTED, f"the collective {plan.name} is of the kind {plan.kind}")
    rank = plan.members.index(gmi)
    segment = rendezvous.segment(plan.name)
    return IPCollective(plan.name, plan.members, rank, segment, slot_bytes=slot_bytes, timeout_s=timeout_s)
