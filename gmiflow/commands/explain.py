"""`gmiflow explain`: what a code means, or why the compiler chose what it chose."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from gmiflow import resources
from gmiflow.codes import TITLES
from gmiflow.commands.compile import emitted
from gmiflow.commands.options import chosen_options, compile_options, profile_options
from gmiflow.commands.report import finish
from gmiflow.diagnostics import closest
from gmiflow.ir.workflow import Workflow
from gmiflow.pipeline import compile_file

STAGES = ("mapping", "sizing", "comm")


@click.command(name="explain")
@click.argument("what", metavar="CODE|mapping|sizing|comm")
@click.argument("file", required=False, type=click.Path())
@click.option("--all", "show_all", is_flag=True, help="List every point of the sizing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@compile_options
@profile_options
def command(
    what: str,
    file: str | None,
    show_all: bool,
    form: str,
    **chosen: Any,  # noqa: ANN401 - click
) -> None:
    """Explain a CODE such as E0302, or a decision about FILE.

    `mapping`, `sizing` and `comm` show what was chosen for FILE, where each number comes from, and what was
    rejected for which reason.
    """
    if what in STAGES:
        if file is None:
            raise click.UsageError(f"`gmiflow explain {what}` needs a FILE")
        click.echo(_decision(what, file, chosen, form, show_all=show_all), nl=False)
        return
    if file is not None:
        raise click.UsageError(f"`gmiflow explain {what}` takes no FILE")
    text = page(what)
    code = what.strip().upper()
    data = {"code": code, "title": TITLES[code], "page": text}
    click.echo(json.dumps(data, indent=1, ensure_ascii=False) + "\n" if form == "json" else text, nl=False)


def _decision(what: str, file: str, chosen: dict[str, Any], form: str, *, show_all: bool) -> str:
    """What a stage decided about a file."""
    if what == "sizing":
        from gmiflow.commands import explain_sizing

        return explain_sizing.explained(file, chosen_options(chosen), form, show_all=show_all)
    compilation = compile_file(file, chosen_options(chosen), stop_after=what)
    finish(compilation.diagnostics, form if compilation.failed else "text")
    if compilation.workflow is None:
        raise click.UsageError(f"{file} has no workflow")
    if what == "mapping":
        from gmiflow.commands import explain_mapping

        return explain_mapping.explained(compilation, form)
    _note_damage(compilation.workflow)
    if form == "text":
        return emitted(compilation, what)
    comm = compilation.comm
    assert comm is not None
    data = {
        "workflow": comm.sized.mapped.workflow.name,
        "collectives": [dataclasses.asdict(group) for group in comm.collectives],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _note_damage(workflow: Workflow) -> None:
    """Say when the calibration of this machine cannot be read: nothing else would tell why times are modelled."""
    from gmiflow.hardware import detect
    from gmiflow.profiles.store import damaged_collectives

    damaged = damaged_collectives(detect(), workflow.target.device)
    if damaged is not None:
        mend = "`gmiflow bench collective --calibrate` measures again"
        click.echo(f"note: {damaged} is damaged, and built-in times are taken; {mend}", err=True)


def page(code: str) -> str:
    """The page about a code, as Markdown.

    Raises:
        click.UsageError: for a code that does not exist, with the nearest one that does.
    """
    code = code.strip().upper()
    if code not in TITLES:
        close = closest(code, TITLES) or next((known for known in TITLES if known.startswith(code[:3])), None)
        hint = f" Did you mean {close} ({TITLES[close]})?" if close else ""
        known = ", ".join(STAGES)
        raise click.UsageError(f"there is no code {code}.{hint} Other things to explain: {known}.")
    path = resources.error_pages_path() / f"{code}.md"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return f"# {code}: {TITLES[code]}\n"
