"""Compiles single points of a workflow and runs their generated programs, each in processes of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from gmiflow.hardware import Hardware
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Compilation, Options, compile_file
from gmiflow.plan import LaunchPlan
from gmiflow.profiles.defaults import devices_of
from gmiflow.profiles.workload import Measurement, Point
from gmiflow.profiling.shared_server import SharedServer
from gmiflow.profiling.signals import Interrupted
from gmiflow.profiling.trial import Pace, Trial
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.leftovers import temporary_folder
from gmiflow.runtime.supervisor import Limits

MANY_ITERATIONS = 1_000_000_000
"""A trial ends when it has been seen long enough."""


class Runner:
    """Measures points of one workflow; leaving the context ends every process and removes every file."""

    def __init__(self, workflow: Workflow, options: Options, hardware: Hardware, pace: Pace) -> None:
        """Measure points of ``workflow``, whatever it says about its size.

        Args:
            workflow: as compiled with ``options``.
            options: target and settings.
            hardware: this machine.
            pace: how long to look at each point.
        """
        self._workflow = workflow
        self._options = options
        self._hardware = hardware
        self._pace = pace
        self._number = 0
        self._compiled: dict[Point, Compilation] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start nothing yet."""
        self._folder = self._stack.enter_context(temporary_folder())
        self._launcher = self._stack.enter_context(SharedServer(self._folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End and remove everything."""
        self._stack.close()

    def compile(self, point: Point) -> Compilation:
        """The compilation of the workflow at ``point``; made once, for a point is looked at several times."""
        if point not in self._compiled:
            options = at(self._options, self._workflow, point)
            self._compiled[point] = compile_file(
                self._workflow.file, options, hardware=self._hardware, require_workflow=True
            )
        return self._compiled[point]

    def measure(self, point: Point, deadline: float = float("inf")) -> Measurement | None:
        """Run one point; None when ``deadline`` came before anything was measured.

        Args:
            point: what to run.
            deadline: on `time.monotonic`.

        Raises:
            Interrupted: by Ctrl-C, SIGTERM or SIGHUP.
        """
        compilation = self.compile(point)
        if compilation.plan is None or compilation.programs is None:
            errors = [found for found in compilation.diagnostics if found.severity == "error"]
            return Measurement(point=point, status="failed", message=f"{errors[0].code}: {errors[0].message}")
        return self._run(point, compilation.plan, compilation.programs, deadline)

    def _run(self, point: Point, plan: LaunchPlan, programs: dict[str, str], deadline: float) -> Measurement | None:
        trial = Trial(point, plan, self._pace, deadline)
        self._number += 1
        with tempfile.TemporaryDirectory(prefix=f"point-{self._number:02d}-", dir=self._folder) as name:
            folder = Path(name)
            for program, text in programs.items():
                (folder / program).write_text(text, encoding="utf-8")
            try:
                result = run_plan(
                    plan,
                    folder,
                    folder,
                    on_event=trial.receive,
                    limits=Limits(slow_s=float("inf"), stuck_s=max(self._pace.start_s, self._pace.timeout_s)),
                    launcher=self._launcher,
                    watch=trial.watch,
                )
            finally:
                trial.close()
        if trial.stopped_by is not None:
            raise Interrupted(trial.stopped_by)
        return None if trial.given_up else trial.measurement(result)


def at(options: Options, workflow: Workflow, point: Point) -> Options:
    """The options that compile a workflow at a point; they win over what the user set."""
    devices = len(devices_of(workflow.components[0], 0, workflow))
    overrides = {
        f"{workflow.name}.num_env": str(point.num_env * devices),
        f"{workflow.name}.execution": point.execution,
        f"{workflow.name}.iterations": str(MANY_ITERATIONS),
        f"{workflow.name}.on_failure": "stop",
        "target.gmi_per_gpu": str(point.gmis),
        "target.mapping": point.template,
        "target.backend": point.backend,
    }
    return dataclasses.replace(
        options, workflow=workflow.name, overrides=(*options.overrides, *overrides.items()), use_profiles=False
    )
