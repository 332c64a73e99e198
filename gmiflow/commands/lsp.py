"""`gmiflow lsp`: the language server, for an editor to start."""

from __future__ import annotations

import sys

import click


@click.command(name="lsp")
@click.option("--stdio", is_flag=True, help="Speak over stdin and stdout: the only way, so it may be left out.")
def command(stdio: bool) -> None:
    """Start the language server: editors speak to it over stdin and stdout.

    How to set up VS Code, Neovim and Helix: docs/editors.md.
    """
    try:
        from gmiflow.lsp.server import serve
    except ImportError as error:  # also of a version that lacks what is imported
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise click.ClickException(
            "the language server needs pygls 2, which is not installed: pip install 'gmiflow[lsp]'"
        ) from error
    if sys.stdin.isatty():
        click.echo("An editor is expected on stdin (docs/editors.md says which and how); Ctrl-C ends this.", err=True)
    serve()
