"""`gmiflow lint`: what is legal and probably not meant."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gmiflow.commands.options import format_option
from gmiflow.commands.report import ERRORS_FOUND, show
from gmiflow.diagnostics import Diagnostic, apply_edits
from gmiflow.hardware import detect
from gmiflow.passes.lint import lint

MAX_ROUNDS = 10
"""Fixes can make others possible: a parameter is unused once the stage that used it is gone."""


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE...")
@click.option("--fix", "mend", is_flag=True, help="Make the changes that need no thought, then report what is left.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@format_option
def command(files: tuple[str, ...], mend: bool, strict: bool, output: str) -> None:
    """Warn about unused names, names that hide others, and suspicious sizes in each FILE.

    A warning is silenced by `// gmi: allow(W0203) reason` on its line or the line before; an allow comment
    that silences nothing is a warning itself.
    """
    hardware = detect()
    found: list[Diagnostic] = []
    for name in files:
        if mend:
            _mend(name)
        found += lint(name, hardware=hardware)
    show(found, output)
    if any(strict or diagnostic.severity == "error" for diagnostic in found):
        sys.exit(ERRORS_FOUND)


def _mend(name: str) -> None:
    """Apply the first fix of every warning until there are none, and write the file if that changed it."""
    text = mended(name)
    if text is not None:
        Path(name).write_bytes(text.encode("utf-8"))
        click.echo(f"mended {name}", err=True)


def mended(name: str) -> str | None:
    """The text of a file with the fixes of its warnings applied, or None when there are none (or errors)."""
    hardware = detect()
    text: str | None = None
    for _ in range(MAX_ROUNDS):
        found = lint(name, text=text, hardware=hardware)
        warnings = [d for d in found if d.severity == "warning" and d.fixes]
        if len(warnings) < len(found) and any(d.severity == "error" for d in found):
            return text
        edits = [edit for diagnostic in warnings for edit in diagnostic.fixes[0].edits]
        if not edits:
            return text
        text = apply_edits(edits[0].span.source.text, edits)
    return text
