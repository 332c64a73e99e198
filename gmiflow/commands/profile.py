"""`gmiflow profile`: measure how fast a workflow trains at different sizes, so that `auto` can be decided."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from gmiflow.commands.durations import Duration
from gmiflow.commands.options import chosen_options, compile_options
from gmiflow.commands.report import finish
from gmiflow.commands.run_place import unwritable
from gmiflow.hardware import detect
from gmiflow.pipeline import compile_file


@click.command(name="profile")
@click.argument("file", type=click.Path(), required=False)
@compile_options
@click.option(
    "--budget", type=Duration(), default="120s", show_default=True, metavar="TIME", help="Measure at most so long."
)
@click.option(
    "--algorithm",
    type=click.Choice(["improved", "paper"]),
    default="improved",
    show_default=True,
    help="What proposes the points; `paper` is Algorithm 1 as published.",
)
@click.option("--fresh", is_flag=True, help="Forget what was measured before.")
@click.option(
    "--output", "keep", metavar="FILE.json", type=click.Path(dir_okay=False), help="Keep the profile here, too."
)
@click.option("--recalibrate", metavar="RUN", type=click.Path(), help="Learn from a finished run; nothing is started.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    file: str | None,
    budget: float,
    algorithm: Any,  # noqa: ANN401 - click
    fresh: bool,
    keep: str | None,
    recalibrate: str | None,
    output: str,
    **chosen: Any,  # noqa: ANN401 - click
) -> None:
    """Measure FILE at the sizes that it leaves open, and keep the profile by which `auto` is decided.

    Every point is the real training in processes of its own: one that runs out of memory is a result, too. The
    profile is kept after each point. Ctrl-C, or SIGTERM, ends early, and the next call goes on. Prints the file of
    the profile.
    """
    if recalibrate is not None:
        if file is not None:
            raise click.UsageError("--recalibrate takes everything from the run: leave out FILE")
        _recalibrate(Path(recalibrate), keep, output)
        return
    if file is None or file.endswith(".json"):
        raise click.UsageError("name a .gmi file")
    options = dataclasses.replace(chosen_options(chosen), use_profiles=False)  # this command says itself what is stale
    hardware = detect()
    compilation = compile_file(file, options, hardware=hardware, stop_after="plan", require_workflow=True)
    finish(compilation.diagnostics, output if compilation.failed else "text")
    assert compilation.workflow is not None
    from gmiflow.commands.profiling_session import measure
    from gmiflow.profiling.session import Request

    request = Request(
        workflow=compilation.workflow,
        options=options,
        hardware=hardware,
        budget_s=budget,
        algorithm=algorithm,
        fresh=fresh,
        output=Path(keep) if keep is not None else None,
    )
    outcome = measure(request)
    if outcome.profile.measurements:
        _print(outcome.profile, outcome.path, output, ended=outcome.ended, new=outcome.new)
    if outcome.signal:
        sys.exit(128 + outcome.signal)
    if not any(item.status == "ok" for item in outcome.profile.measurements):
        sys.exit(1)


def _print(profile: Any, path: Path, output: str, **facts: Any) -> None:  # noqa: ANN401 - WorkloadProfile, loaded lazily
    if output == "text":
        click.echo(path)
    else:
        click.echo(json.dumps({"path": str(path), **facts, "profile": json.loads(profile.to_json())}, indent=1))


def _recalibrate(run_dir: Path, keep: str | None, output: str) -> None:
    from gmiflow.commands.profile_view import result
    from gmiflow.profiles import store
    from gmiflow.profiling.recalibrate import RecalibrationError, recalibrate

    try:
        profile, measured, path = recalibrate(run_dir)
        if keep is not None:
            path = store.save_workload(profile, Path(keep))
    except RecalibrationError as problem:
        raise click.UsageError(str(problem)) from problem
    except OSError as error:
        raise unwritable("the profile", Path(error.filename or run_dir), error) from error
    click.echo(f"{measured.point}: {result(measured)}", err=True)
    _print(profile, path, output, ended="recalibrated", new=1)
