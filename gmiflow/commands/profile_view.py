"""What one sees while a workload is profiled: a line for every point, and on a terminal a bar of the budget."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

import click

from gmiflow.commands.report import unless_unwritable
from gmiflow.commands.run_view import duration
from gmiflow.profiles.workload import Measurement
from gmiflow.profiling.session import Step

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

View: TypeAlias = "AbstractContextManager[Callable[[Step], None]]"
"""Shows the steps of a session: entering it gives the function to call with each."""


class LineView:
    """A line on stderr for every point that was measured."""

    def __enter__(self) -> Callable[[Step], None]:
        return self.show

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, step: Step) -> None:
        """Write the point when it is measured."""
        if step.measurement is not None:
            with unless_unwritable():
                click.echo(line(step.measured, step.measurement), err=True)


class BarView:
    """The same, above a bar that fills as the budget is spent."""

    def __init__(self, budget_s: float) -> None:
        """Show a session with this budget."""
        self._budget_s = budget_s

    def __enter__(self) -> Callable[[Step], None]:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
        from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        budget_s = self._budget_s

        class Budget(ProgressColumn):
            """The part of the budget that is spent; it moves while a point runs."""

            max_refresh = 0.2

            def render(self, task: Task) -> ProgressBar:
                return ProgressBar(total=budget_s, completed=min(budget_s, task.elapsed or 0.0), width=24)

        class Spent(ProgressColumn):
            max_refresh = 0.5

            def render(self, task: Task) -> Text:
                return Text(f"{duration(task.elapsed or 0.0)} of {duration(budget_s)}")

        self._progress: Progress = RichProgress(
            SpinnerColumn(), Budget(), Spent(), TextColumn("{task.description}"), console=Console(stderr=True)
        )
        self._progress.start()
        self._task: TaskID = self._progress.add_task("starting", total=None)
        return self.show

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, step: Step) -> None:
        """Write the point when it is measured; until then say that it is at work."""
        if step.measurement is None:
            self._progress.update(self._task, description=f"point {step.measured + 1}: {step.point}")
        else:
            self._progress.console.print(line(step.measured, step.measurement), highlight=False, soft_wrap=True)


def line(number: int, measurement: Measurement) -> str:
    """A point and what it showed."""
    return f"{number:3}  {measurement.point}: {result(measurement)}"


def result(measurement: Measurement) -> str:
    """What a point showed, in words."""
    if measurement.status == "out_of_memory":
        return f"out of memory ({measurement.message})"
    if measurement.status == "timed_out":
        return f"timed out: {measurement.message}"
    if measurement.status == "failed":
        return f"failed: {measurement.message}"
    memory = measurement.device_memory_bytes or measurement.host_memory_bytes
    return (
        f"{measurement.steps_per_s:,.0f} env steps/s "
        f"({measurement.steps_per_s_low:,.0f} to {measurement.steps_per_s_high:,.0f}), {memory_text(memory)}"
    )


def memory_text(size: int) -> str:
    """Bytes as a person writes them."""
    return f"{size / 2**30:.1f} GiB" if size >= 10 * 2**30 else f"{size / 2**20:,.0f} MiB"


def choose_view(budget_s: float, *, terminal: bool) -> View:
    """The view for this terminal or file."""
    return BarView(budget_s) if terminal else LineView()
