"""How commands show diagnostics and end."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Sequence

import click

from gmiflow.diagnostics import Diagnostic, in_order, render_text

ERRORS_FOUND = 1
"""Exit code when a file has errors or a run failed."""


def color_wanted() -> bool:
    """Whether messages on stderr may be coloured (a terminal, and NO_COLOR unset)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def show(diagnostics: Sequence[Diagnostic], output: str = "text", *, by_place: bool = True) -> None:
    """Write diagnostics, by place or as they come: text to stderr; JSON and SARIF, which are data, to stdout."""
    ordered = in_order(diagnostics) if by_place else tuple(diagnostics)
    if output == "text":
        click.echo(render_text(ordered, color=color_wanted()), err=True, nl=False)
        return
    from gmiflow.diagnostic_formats import render_json, render_sarif

    click.echo(render_json(ordered) if output == "json" else render_sarif(ordered), nl=False)


def finish(diagnostics: Sequence[Diagnostic], output: str = "text") -> None:
    """Show diagnostics and exit with 1 if any is an error; else return."""
    show(diagnostics, output)
    if any(d.severity == "error" for d in diagnostics):
        sys.exit(ERRORS_FOUND)


@contextlib.contextmanager
def unless_unwritable() -> Generator[None]:
    """Go on without messages when stdout or stderr cannot be written (a full disk, a reader that has gone)."""
    try:
        yield
    except OSError:
        drop_broken_streams()


def drop_broken_streams() -> None:
    """Let what is left for a stream that cannot be written go nowhere; Python would fail with it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
