"""GMIs as threads of the test process, as the in-process backends run them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from plans import program_of
from waiting import PATIENCE_S

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.channel.connect import open_links, weights_path
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMI, GMIRuntime, run_gmi
from gmiflow.runtime.joint import JointSeat, joint_groups
from gmiflow.runtime.messages import Message
from gmiflow.runtime.rendezvous import Rendezvous
from gmiflow.runtime.run_directory import find_checkpoint
from gmiflow.runtime.split import make_runtime
from gmiflow.runtime.turn import Turn


class Collector:
    """Keeps messages; asks for a stop after ``stop_after`` reported iterations."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.messages: list[Message] = []
        self.stop_after = stop_after

    @property
    def stop_requested(self) -> bool:
        return self.stop_after is not None and len(self.of("Progress")) >= self.stop_after

    def send(self, message: Message) -> None:
        self.messages.append(message)

    def of(self, kind: str) -> list:
        return [m for m in self.messages if type(m).__name__ == kind]


def run_in_threads(
    plan: LaunchPlan,
    *,
    run_dir: Path | None = None,
    resume: Path | Mapping[str, Path] | None = None,
    gmi_class: type[GMI] = GMI,
    collector: Callable[[int], Collector] = lambda gmi: Collector(),
) -> tuple[list[GMIRuntime], list[Collector], list[BaseException]]:
    """Run all GMIs of a plan; returns their runtimes, messages and exceptions in order of id.

    ``resume`` is a run directory, or a checkpoint, of all trainings, or a checkpoint by training.
    """
    with contextlib.ExitStack() as stack:
        rendezvous = Rendezvous.join(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        runtimes, collectors = _prepare(plan, run_dir, resume, collector, rendezvous, stack)
        errors = _work(runtimes, gmi_class)
    return runtimes, collectors, errors


def _prepare(
    plan: LaunchPlan,
    run_dir: Path | None,
    resume: Path | Mapping[str, Path] | None,
    collector: Callable[[int], Collector],
    rendezvous: Rendezvous,
    stack: contextlib.ExitStack,
) -> tuple[list[GMIRuntime], list[Collector]]:
    groups = {c.name: LocalGroup(c.name, c.members, timeout_s=PATIENCE_S) for c in plan.collectives}
    control = {}
    for gmi in plan.gmis:
        trainers = tuple(sorted({c.consumer for c in program_of(plan, gmi.id).carrying("rollout")}))
        applies = plan.training(gmi.training).update == "apply" and gmi.id in trainers
        alone = trainers if applies else program_of(plan, gmi.id).members or (gmi.id,)
        own = next((c.members for c in plan.collectives if gmi.id in c.members), alone)
        if gmi.id == own[0]:
            control.update(dict.fromkeys(own, LocalGroup(f"{gmi.training}.control", own, timeout_s=PATIENCE_S)))
    runtimes, collectors = [], []
    turn = Turn()
    joint = joint_groups([program_of(plan, gmi.id) for gmi in plan.gmis], turn, lambda gmi, priority: None)
    for gmi in plan.gmis:
        program = program_of(plan, gmi.id)
        group = control[gmi.id]
        context = GMIContext(
            program=program,
            device=torch.device("cpu"),
            collectives={c.name: groups[c.name].member(c.members.index(gmi.id)) for c in program.collectives},
            control=group.member(group.members.index(gmi.id)),
            run_dir=run_dir,
            resume=_checkpoint(resume, gmi.training),
            links=open_links(program, rendezvous, torch.device("cpu"), PATIENCE_S, stack),
            weights_path=weights_path(rendezvous, gmi.training),
            timeout_s=PATIENCE_S,
            turn=turn if gmi.joint is not None else Turn(),
            joint=JointSeat(group=joint[gmi.id], gmi=gmi.id) if gmi.joint is not None else None,
        )
        collectors.append(collector(gmi.id))
        runtimes.append(make_runtime(context, collectors[-1]))
    return runtimes, collectors


def _checkpoint(resume: Path | Mapping[str, Path] | None, training: str) -> Path | None:
    if resume is None or isinstance(resume, Mapping):
        return resume.get(training) if resume is not None else None
    return find_checkpoint(resume, training)


def _work(runtimes: list[GMIRuntime], gmi_class: type[GMI]) -> list[BaseException]:
    errors: list[BaseException] = []

    def work(runtime: GMIRuntime) -> None:
        try:
            run_gmi(gmi_class, runtime)
        except BaseException as problem:
            errors.append(problem)
        finally:
            if runtime.context.joint is not None:
                runtime.context.joint.leave()
            for collective in (*runtime.context.collectives.values(), runtime.context.control):
                collective.close()

    threads = [threading.Thread(target=work, args=(runtime,)) for runtime in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def weights_of(runtime: GMIRuntime) -> dict[str, torch.Tensor]:
    """Of the module that a GMI trains, or acts with."""
    return {name: value.clone() for name, value in runtime._policy.state_dict().items()}


def parameters_of(runtime: GMIRuntime) -> torch.Tensor:
    """All parameters of a GMI's policy as one vector."""
    return torch.cat([p.detach().reshape(-1) for p in runtime.stages.policy.parameters()])


def lags_of(collectors: list[Collector]) -> Counter[int]:
    """How many parts of rollouts had which lag, over all GMIs."""
    total: Counter[int] = Counter()
    for collector in collectors:
        for progress in collector.of("Progress"):
            total.update({int(lag): count for lag, count in progress.lags.items()})
    return total
