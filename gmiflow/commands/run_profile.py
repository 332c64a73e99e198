"""What `gmiflow run` does about profiles: measures first when the size is open, and leaves the key for later."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gmiflow.hardware import Hardware, detect
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import Compilation, Options
from gmiflow.plan import LaunchPlan
from gmiflow.profiles import store
from gmiflow.profiles.evidence import searched
from gmiflow.profiles.search import propose
from gmiflow.profiles.space import space_of

ENOUGH = 3
"""A search that measured so many points of what is open has an idea, even if its budget ended before it was over."""


def measured(compilation: Compilation, options: Options, budget_s: float) -> bool:
    """Measure if that is needed; whether it was, so that the workflow has to be compiled again.

    It is needed when `num_env = auto` and too little is known; what else is `auto` has good defaults (`hint`). Exits
    when it is interrupted.

    Args:
        compilation: of the workflow.
        options: that it was compiled with.
        budget_s: how long it may take, 0 for not at all.
    """
    workflow, hardware = compilation.workflow, detect()
    assert workflow is not None
    if not budget_s or options.profile is not None or workflow.num_env != "auto" or not searched(workflow):
        return False
    if _known(workflow, hardware):
        return False
    from gmiflow.commands.profiling_session import measure
    from gmiflow.commands.run_view import duration
    from gmiflow.profiling.session import Request

    click.echo(
        f"num_env = auto and no profile: measuring for up to {duration(budget_s)} which size suits this machine "
        "(--no-profile takes the default)",
        err=True,
    )
    outcome = measure(Request(workflow=workflow, options=options, hardware=hardware, budget_s=budget_s))
    if outcome.signal:
        sys.exit(128 + outcome.signal)
    return True


def _known(workflow: Workflow, hardware: Hardware) -> bool:
    """Whether there is nothing to choose, or enough was measured to choose by."""
    space = space_of(workflow, hardware)
    if not space.open:
        return True
    valid = store.look_up(workflow, hardware).valid
    if valid is None:
        return False
    measurements = valid.profile.measurements
    points = set(space.points())
    inside = [item for item in measurements if item.point in points]
    return len(inside) >= ENOUGH or propose(space, measurements) is None


def hint(workflow: Workflow, plan: LaunchPlan) -> str:
    """How to decide by measurements what was decided by default; "" when nothing was."""
    values = {"num_env": workflow.num_env, "gmi_per_gpu": workflow.target.gmi_per_gpu}
    auto = " and ".join(name for name, value in values.items() if value == "auto")
    if not searched(workflow):
        return ""
    predicted = any(training.prediction is not None for training in plan.trainings)
    if not auto or predicted or not space_of(workflow, detect()).open:
        return ""
    return f"{auto} by default: `gmiflow profile {workflow.file}` measures what is best on this machine"


def write_key(workflow: Workflow, directory: Path) -> None:
    """Leave what the run's numbers depend on in its directory, for `gmiflow profile --recalibrate`.

    Raises OSError when it cannot be written.
    """
    from gmiflow.profiles.workload_key import key_of
    from gmiflow.profiling.recalibrate import write_key as write

    write(directory, store.source_of(workflow), key_of(workflow, detect()))
