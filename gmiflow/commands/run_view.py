"""What one sees while a run goes on: bars on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from gmiflow.commands.report import unless_unwritable
from gmiflow.plan import LaunchPlan
from gmiflow.runtime.events import Checkpoint, Event, Iteration, Replacing, Restarting, Slow, Started, Stopping
from gmiflow.runtime.record import finite

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

View: TypeAlias = "AbstractContextManager[Callable[[Event], None], None]"
"""Shows events: entering it gives the function to call with each event."""

LINE_EVERY_S = 2.0
"""Between two lines of the same training where there is no terminal."""


class LineView:
    """Lines on stderr: what a log file or a CI job keeps."""

    def __init__(self, plan: LaunchPlan) -> None:
        """Show the trainings of ``plan``."""
        self._totals = {training.name: training.iterations for training in plan.trainings}
        self._last_s: dict[str, float] = {}
        self._rates = {name: Rate() for name in self._totals}

    def __enter__(self) -> Callable[[Event], None]:
        return self.show

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write the event as a line, when it deserves one."""
        if isinstance(event, Started):
            click.echo(started_text(event), err=True)
        elif isinstance(event, Iteration):
            self._iteration(event)
        elif isinstance(event, Checkpoint):
            click.echo(f"{event.training}: checkpoint {nearby(event.path)}", err=True)
        elif isinstance(event, Replacing | Restarting | Slow | Stopping):
            click.echo(notice(event), err=True)

    def _iteration(self, event: Iteration) -> None:
        rate = self._rates[event.training]
        rate.add(event)
        total, now = self._totals[event.training], time.monotonic()
        last = event.iteration == total
        if not last and now - self._last_s.get(event.training, 0.0) < LINE_EVERY_S:
            return
        self._last_s[event.training] = now
        remaining = (total - event.iteration) * rate.iteration_s
        click.echo(
            f"{event.training}: iteration {event.iteration}/{total}  {rate.text()}  {detail_text(event)}"
            + ("" if last else f"  ETA {duration(remaining)}"),
            err=True,
        )


class BarView:
    """A progress bar per training on a terminal, with as much beside it as fits: nothing of the bar is given up."""

    def __init__(self, plan: LaunchPlan) -> None:
        """Show the trainings of ``plan``."""
        self._totals = {training.name: training.iterations for training in plan.trainings}
        self._rates = {name: Rate() for name in self._totals}
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Callable[[Event], None]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True)
        bar = 24 if console.width >= 120 else 10
        counts = 2 * max(len(str(total)) for total in self._totals.values()) + 1
        self._room = console.width - max(map(len, self._totals)) - bar - counts - 4  # a space between columns
        self._progress: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console,
        )
        self._progress.start()
        for name, total in self._totals.items():
            self._tasks[name] = self._progress.add_task(name, total=total, detail="starting")
        return self.show

    def __exit__(self, *_: object) -> None:
        with unless_unwritable():  # the terminal may have been closed
            self._progress.stop()

    def show(self, event: Event) -> None:
        """Update the bars."""
        if isinstance(event, Started):
            self._progress.console.print(started_text(event), highlight=False)
            for name, iteration in event.iteration.items():
                self._progress.update(self._tasks[name], completed=iteration)
        elif isinstance(event, Replacing | Restarting | Slow | Stopping):
            self._progress.console.print(notice(event), highlight=False)
        elif isinstance(event, Iteration):
            rate = self._rates[event.training]
            rate.add(event)
            remaining = (self._totals[event.training] - event.iteration) * rate.iteration_s
            parts = [rate.speed(), f"ETA {duration(remaining)}", *details(event), f"({rate.split()})"]
            detail = as_much_as_fits(parts, self._room)
            self._progress.update(self._tasks[event.training], completed=event.iteration, detail=detail)


class JsonView:
    """One JSON object per event on stdout."""

    def __enter__(self) -> Callable[[Event], None]:
        return self.show

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Write the event; NaN and infinity as text, as in metrics.jsonl."""
        data = {"event": type(event).__name__, **dataclasses.asdict(event)}
        click.echo(json.dumps(finite(data), default=str, allow_nan=False))


NEW_WEIGHT = 0.1
"""Of a new iteration against all before."""


class Rate:
    """Smoothed speed and the parts of the time, over the latest iterations of one training."""

    def __init__(self) -> None:
        """Before the first iteration."""
        self._values: dict[str, float] = {}
        self._serves = False

    def add(self, event: Iteration) -> None:
        """Count an iteration."""
        self._serves = bool(event.serving)
        new = {
            "steps": float(event.env_steps),
            "seconds": event.seconds,
            "collect": event.collect_s,
            "learn": event.learn_s,
            "communicate": event.communicate_s,
        }
        weight = NEW_WEIGHT if self._values else 1.0
        for name, value in new.items():
            self._values[name] = (1.0 - weight) * self._values.get(name, 0.0) + weight * value

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return self._values.get("seconds", 0.0)

    def text(self) -> str:
        """Environment steps per second, and where the time goes."""
        return f"{self.speed()} ({self.split()})"

    def speed(self) -> str:
        """Environment steps per second."""
        return f"{self._values['steps'] / max(self._values['seconds'], 1e-9):,.0f} env steps/s"

    def split(self) -> str:
        """Where the time goes."""
        values = self._values
        names = {"collect": "collect", "learn": "learn", "communicate": "communicate"}
        if self._serves:  # nobody learns; what is not the GMI's own work is waiting for actions
            names = {"collect": "at work", "communicate": "waiting"}
        total = sum(values[name] for name in names) or 1.0
        return " ".join(f"{word} {values[name] / total:.0%}" for name, word in names.items())


def started_text(event: Started) -> str:
    """When everything is set up."""
    resumed = {name: iteration for name, iteration in event.iteration.items() if iteration}
    after = f", going on after iteration {max(resumed.values())}" if resumed else ""
    count = len(event.cpus)
    first = f"started {count} GMI{'s' if count != 1 else ''} in {event.start_s:.1f} s{after}"
    fresh = [
        f"  {name}: the checkpoint holds no state of the simulator, whose class has no `state_dict`; "
        "weights and optimizer go on, the environments start new episodes"
        for name in event.new_episodes
    ]
    return "\n".join([first, *fresh, *fallbacks(event.lowering)])


def notice(event: Replacing | Restarting | Slow | Stopping) -> str:
    """What a person should know while waiting."""
    if isinstance(event, Stopping):
        return "stopping after this iteration, what is trained with a checkpoint; a second signal stops at once"
    if isinstance(event, Slow):
        return f"GMI {event.gmi}: {event.stage} has been at work on one call for {event.stage_s:.0f} s"
    if isinstance(event, Replacing):
        again = f"it is started again (replacement {event.replacement} of at most {event.limit})"
        return f"{event.training}: GMI {event.gmi} was lost ({event.reason}); {again}, and the others go on"
    return f"starting all GMIs again from the last checkpoints (restart {event.restart} of at most {event.limit})"


def fallbacks(lowering: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Why parts of an iteration are not captured in CUDA graphs although the plan says so; equal lines once."""
    parts = [(part, how) for parts in lowering.values() for part, how in parts.items()]
    return list(dict.fromkeys(f"  {part} stays {how}" for part, how in parts if how.startswith("eager: ")))


def detail_text(event: Iteration) -> str:
    """What is worth knowing of an iteration besides its speed."""
    return "  ".join(details(event))


def details(event: Iteration) -> list[str]:
    """The same, one by one: latency of what serves, return and length of the latest episodes."""
    found: list[str] = []
    if "latency_p50_ms" in event.serving:
        values = event.serving
        found.append(f"step p50 {values['latency_p50_ms']:.3g} ms, p99 {values['latency_p99_ms']:.3g} ms")
    if event.mean_return is None or event.episode_length is None:
        return [*found, "no episode ended yet"]
    return [*found, f"return {event.mean_return:,.1f}", f"episode length {event.episode_length:,.0f}"]


def as_much_as_fits(parts: Sequence[str], room: int) -> str:
    """The first of the parts, two spaces between them, in at most ``room`` columns."""
    text = ""
    for part in parts:
        longer = f"{text}  {part}" if text else part
        if len(longer) > room:
            break
        text = longer
    return text


def nearby(path: Path) -> str:
    """A path as one would type it here: relative when it lies below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def duration(seconds: float) -> str:
    """Seconds as a person writes them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def choose_view(plan: LaunchPlan, output: str, *, terminal: bool) -> View:
    """The view for ``--format`` and the terminal."""
    if output == "json":
        return JsonView()
    return BarView(plan) if terminal and len(plan.trainings) <= 16 else LineView(plan)
