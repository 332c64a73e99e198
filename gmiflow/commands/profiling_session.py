"""Profiling from the command line: `gmiflow profile`, and `gmiflow run` when it has to know the size first."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gmiflow.commands.profile_view import choose_view, result
from gmiflow.commands.report import unless_unwritable
from gmiflow.commands.run_place import unwritable
from gmiflow.commands.run_view import duration
from gmiflow.hardware import Hardware
from gmiflow.ir.workflow import Target, Workflow
from gmiflow.profiles import store
from gmiflow.profiles.evidence import searched
from gmiflow.profiles.search import choose
from gmiflow.profiles.space import space_of
from gmiflow.profiles.workload_key import difference_text
from gmiflow.profiling.session import Outcome, Request, profile_workflow

_NONE_WORKED = "no point could be run; `gmiflow run` with --no-profile and one of these sizes shows the whole error"
_AGAIN = "the same command goes on from there"


def measure(request: Request) -> Outcome:
    """Profile with a view of it on stderr, and say what came out.

    Raises:
        click.UsageError: when the target is not this machine, or the profile cannot be written.
    """
    require_present(request.workflow.target, request.hardware)
    with unless_unwritable():
        for text in [] if request.fresh else stale_texts(store.look_up(request.workflow, request.hardware)):
            click.echo(f"{text}; measuring anew", err=True)
    try:
        with choose_view(request.budget_s, terminal=sys.stderr.isatty()) as on_step:
            outcome = profile_workflow(request, on_step)
    except OSError as error:
        raise unwritable("the profile", Path(error.filename or store.folder()), error) from error
    with unless_unwritable():
        for text in _summary(request, outcome):
            click.echo(text, err=True)
    return outcome


def require_present(target: Target, hardware: Hardware) -> None:
    """A profile is measured on the hardware that it is for.

    Raises:
        click.UsageError: when the target has GPUs that this machine has not.
    """
    if target.device == "cpu":
        return
    present = [gpu for gpu in hardware.gpus if target.gpu.lower() in gpu.name.lower()]
    if len(present) >= target.devices:
        return
    wanted = f"{target.devices} x {target.gpu or 'NVIDIA GPU'}"
    found = ", ".join(gpu.name for gpu in hardware.gpus) or "no NVIDIA GPU"
    raise click.UsageError(
        f"target `{target.name}` needs {wanted}, and this machine has {found}: a profile is measured where it is used"
    )


def stale_texts(found: store.Lookup) -> list[str]:
    """Why the nearest profile does not count, a line; nothing when there is a valid one or none at all."""
    if found.nearest is None or found.key is None:
        return []
    key, then = found.key, found.nearest.profile.key
    reasons = "; ".join(f"made with {difference_text(name, then, key)}" for name in found.differences)
    return [f"profile {found.nearest.path} is stale: {reasons}"]


def _summary(request: Request, outcome: Outcome) -> list[str]:
    points = len(outcome.profile.measurements)
    counted = f"{points} point{'' if points == 1 else 's'}"
    lines = [f"{counted} measured, {outcome.new} of them now, in {duration(outcome.elapsed_s)}"]
    if outcome.ended == "interrupted":
        kept = f"what was measured is kept, and {_AGAIN}" if points else "nothing was measured"
        lines = [f"interrupted after {outcome.new} points; {kept}"]
    elif outcome.ended == "budget":
        lines.append(f"nothing more fits into the budget of {duration(request.budget_s)}; {_AGAIN}")
    if outcome.ended != "interrupted":
        worked = any(item.status == "ok" for item in outcome.profile.measurements)
        lines.append(_chosen(request.workflow, request, outcome) if worked else _NONE_WORKED)
    return lines


def _chosen(workflow: Workflow, request: Request, outcome: Outcome) -> str:
    """The plan that the profile leads to."""
    point = choose(space_of(workflow, request.hardware), outcome.profile, request.algorithm).chosen.point
    measured = outcome.profile.at(point)
    found = f"{point}" + (f": {result(measured)}" if measured is not None else " (modelled)")
    if searched(workflow):
        return f"chosen: {found}"
    return f"fastest: {found}; mapping `{workflow.target.mapping}` takes sizes as they are given, not from here"
