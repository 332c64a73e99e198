"""GMIs as threads of the test process, as the in-process backends run them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch
from plans import program_of

from gmiflow.plan import LaunchPlan
from gmiflow.runtime.comm.collectives.local import LocalGroup
from gmiflow.runtime.context import GMIContext
from gmiflow.runtime.core import GMI, GMIRuntime, run_gmi
from gmiflow.runtime.messages import Message


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
    resume: Path | None = None,
    gmi_class: type[GMI] = GMI,
    collector: Callable[[int], Collector] = lambda gmi: Collector(),
) -> tuple[list[GMIRuntime], list[Collector], list[BaseException]]:
    """Run all GMIs of a plan; returns their runtimes, messages and exceptions in order of id."""
    groups = {c.name: LocalGroup(c.name, c.members, timeout_s=20) for c in plan.collectives}
    control = {}
    for training in plan.trainings:
        ids = tuple(g.id for g in plan.members(training.name))
        control[training.name] = LocalGroup(f"{training.name}.control", ids, timeout_s=20)
    runtimes, collectors, errors = [], [], []
    for gmi in plan.gmis:
        program = program_of(plan, gmi.id)
        group = control[gmi.training]
        context = GMIContext(
            program=program,
            device=torch.device("cpu"),
            collectives={c.name: groups[c.name].member(c.members.index(gmi.id)) for c in program.collectives},
            control=group.member(group.members.index(gmi.id)),
            run_dir=run_dir,
            resume=resume,
        )
        collectors.append(collector(gmi.id))
        runtimes.append(GMIRuntime(context, collectors[-1]))

    def work(runtime: GMIRuntime) -> None:
        try:
            run_gmi(gmi_class, runtime)
        except BaseException as problem:
            errors.append(problem)
        finally:
            for collective in (*runtime.context.collectives.values(), runtime.context.control):
                collective.close()

    threads = [threading.Thread(target=work, args=(runtime,)) for runtime in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runtimes, collectors, errors
