"""`gmiflow explain`: what a code means, or why the compiler chose what it chose."""

from __future__ import annotations

from typing import Any

import click

from gmiflow import resources
from gmiflow.codes import TITLES
from gmiflow.commands.compile import emitted
from gmiflow.commands.options import chosen_options, compile_options
from gmiflow.commands.report import finish
from gmiflow.diagnostics import closest
from gmiflow.pipeline import compile_file

STAGES = ("mapping", "sizing", "comm")


@click.command(name="explain")
@click.argument("what", metavar="CODE|mapping|sizing|comm")
@click.argument("file", required=False, type=click.Path())
@compile_options
def command(what: str, file: str | None, **chosen: Any) -> None:  # noqa: ANN401 - click
    """Explain a CODE such as E0302, or a decision about FILE.

    `mapping`, `sizing` and `comm` show what was chosen for FILE, where each number comes from, and what was
    rejected for which reason.
    """
    if what in STAGES:
        if file is None:
            raise click.UsageError(f"`gmiflow explain {what}` needs a FILE")
        compilation = compile_file(file, chosen_options(chosen), stop_after=what)
        finish(compilation.diagnostics)
        if compilation.workflow is None:
            raise click.UsageError(f"{file} has no workflow")
        click.echo(emitted(compilation, what), nl=False)
        return
    if file is not None:
        raise click.UsageError(f"`gmiflow explain {what}` takes no FILE")
    click.echo(page(what), nl=False)


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
