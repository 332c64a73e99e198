"""`gmiflow plan`: what would run, what it is expected to do, and why nothing else was chosen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import click

from gmiflow.commands import plan_surface, what_if
from gmiflow.commands.options import chosen_options, compile_options, profile_options
from gmiflow.commands.output import write_output
from gmiflow.commands.plan_answer import Answer, answer
from gmiflow.commands.plan_changes import changes, predicted_ratio
from gmiflow.commands.plan_report import Difference, Report, report
from gmiflow.commands.plan_text import text, to_json, to_svg
from gmiflow.plan import LaunchPlan, PlanError
from gmiflow.profiles import plans

PLAN_DIFFERS = 3
"""Exit code of `--check` when the plan is another one."""

FORMATS = {".txt": "text", ".json": "json", ".svg": "svg"}


@click.command(name="plan")
@click.argument("file", type=click.Path())
@compile_options
@profile_options
@click.option(
    "--what-if",
    "questions",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"Plan as if it were so: {', '.join(what_if.NAMES)}. Several combine; the numbers are modelled.",
)
@click.option(
    "--against", metavar="PLAN", type=click.Path(), help="Compare with this plan.json, not with the last plan."
)
@click.option("--check", is_flag=True, help="Exit with 3 when the plan differs from that one.")
@click.option("--save", is_flag=True, help="Keep the plan as the last one; `gmiflow run` keeps what it runs.")
@click.option("--all", "show_all", is_flag=True, help="List every plan that was considered.")
@click.option("--surface", metavar="FILE", type=click.Path(dir_okay=False), help="Draw the search: .svg or .png.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write here instead of stdout.")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS.values())), help="By default from -o's ending, else text."
)
def command(
    file: str,
    questions: tuple[str, ...],
    against: str | None,
    check: bool,
    save: bool,
    show_all: bool,
    surface: str | None,
    output: str | None,
    form: str | None,
    **chosen: Any,  # noqa: ANN401 - click
) -> None:
    """Show the plan of FILE: where everything runs, what it is expected to do, and why nothing else was chosen.

    Every number says whether it is from a profile (cached) or modelled: nothing is measured here. The plan is compared
    with the last one of this workflow and target that was run, or kept with --save.
    """
    form = form or _form_of(output)
    asked = what_if.parse(questions)
    if asked and save:
        raise click.UsageError("--save keeps a plan that can be run, and --what-if makes none")
    if surface is not None:
        plan_surface.require_writable(surface)
    found = answer(file, chosen_options(chosen), asked, "json" if form == "json" else "text")
    made = _report(found, asked, against, required=check)
    _write({"json": to_json, "svg": to_svg}[form](made) if form != "text" else text(made, show_all=show_all), output)
    if surface is not None:
        plan_surface.write(made, surface)
        click.echo(f"wrote {surface}", err=True)
    if save:
        _save(made.plan)
    if check and made.difference is not None and made.difference.changes:
        sys.exit(PLAN_DIFFERS)


def _report(found: Answer, asked: what_if.WhatIf, against: str | None, *, required: bool) -> Report:
    plan = found.compilation.plan
    assert plan is not None
    before = found.before if asked and against is None else reference(plan, against)
    if before is None and required:
        raise click.UsageError("--check: there is no last plan; keep one with --save, or name one with --against")
    name = against or ("the plan without --what-if" if asked else "the last plan")
    difference = None
    if before is not None:
        difference = Difference(against=name, changes=changes(before, plan), predicted=predicted_ratio(before, plan))
    return report(
        found.compilation,
        search=found.search,
        grounds=found.grounds,
        what_if=str(asked),
        difference=difference,
        notes=found.notes,
    )


def reference(plan: LaunchPlan, against: str | None) -> LaunchPlan | None:
    """What a plan is compared with: the file that was named, or the last plan; None without one.

    Raises:
        click.UsageError: for a file that is no plan.
    """
    if against is None:
        return plans.load_plan(plan)
    try:
        written = Path(against).read_text(encoding="utf-8")
        data = json.loads(written)
        if isinstance(data, dict) and isinstance(inner := cast("dict[str, Any]", data).get("plan"), dict):
            written = json.dumps(inner)  # what `gmiflow plan --format json` wrote
        return LaunchPlan.from_json(written)
    except OSError as error:
        raise click.UsageError(f"cannot read {against}: {(error.strerror or str(error)).lower()}") from error
    except (PlanError, ValueError, RecursionError) as error:
        raise click.UsageError(f"--against {against}: {error}") from error


def _save(plan: LaunchPlan) -> None:
    try:
        path = plans.save_plan(plan)
    except OSError as error:
        raise click.UsageError(f"cannot write {plans.path_of(plan)}: {error.strerror}") from error
    click.echo(f"kept as the last plan: {path}", err=True)


def _write(content: str, output: str | None) -> None:
    if output is None:
        click.echo(content, nl=False)
        return
    write_output(output, content)
    click.echo(f"wrote {output}", err=True)


def _form_of(output: str | None) -> str:
    """The format that a file's ending means."""
    if output is None:
        return "text"
    ending = Path(output).suffix
    if ending not in FORMATS:
        raise click.UsageError(f"no format is known for `{output}`: use one of {', '.join(FORMATS)}, or --format")
    return FORMATS[ending]
