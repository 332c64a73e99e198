"""`gmiflow lsp`: the language server, for an editor to start."""

from __future__ import annotations

import click


@click.command(name="lsp")
@click.option("--stdio", is_flag=True, help="Speak over stdin and stdout: the only way, so it may be left out.")
def command(stdio: bool) -> None:
    """Start the language server: editors speak to it over stdin and stdout.

    How to set up VS Code, Neovim and Helix: docs/editors.md.
    """
    try:
        from gmiflow.lsp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs"):
            raise
        raise click.ClickException(
            "the language server needs pygls, which is not installed: pip install 'gmiflow[lsp]'"
        ) from error
    serve()
