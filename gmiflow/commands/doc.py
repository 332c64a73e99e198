"""`gmiflow doc`: the Markdown reference of a module."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gmiflow import resources
from gmiflow.commands.output import write_output
from gmiflow.commands.report import ERRORS_FOUND, show
from gmiflow.diagnostics import Diagnostic, closest
from gmiflow.reference import reference
from gmiflow.syntax.parser import parse, read


@click.command(name="doc")
@click.argument("module", metavar="FILE|std.MODULE")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here instead of stdout.")
def command(module: str, output: str | None) -> None:
    """Write the Markdown reference of a FILE or of a module of the standard library.

    It lists parameters with types and defaults, ports, records, targets and workflows, with their `///`
    comments.
    """
    path, name = _find(module)
    source = read(path, module)
    if isinstance(source, Diagnostic):
        show([source])
        sys.exit(ERRORS_FOUND)
    parsed = parse(source)
    if parsed.diagnostics:
        show(parsed.diagnostics)
        sys.exit(ERRORS_FOUND)
    text = reference(parsed.module, name)
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text)


def _find(module: str) -> tuple[Path, str]:
    """File and title of a module."""
    if not module.startswith("std.") or Path(module).exists():
        return Path(module), Path(module).stem
    root = resources.stdlib_path()
    known = {
        ".".join(("std", *path.relative_to(root).with_suffix("").parts)): path for path in sorted(root.rglob("*.gmi"))
    }
    if module in known:
        return known[module], module
    close = closest(module, known)
    hint = f"did you mean {close}?" if close else "there are " + ", ".join(known)
    raise click.UsageError(f"there is no module {module}; {hint}")
