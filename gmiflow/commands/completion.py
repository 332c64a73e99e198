"""`gmiflow completion`: the script that lets a shell complete gmiflow's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  gmiflow completion bash > ~/.local/share/bash-completion/completions/gmiflow
    zsh:   gmiflow completion zsh > "${fpath[1]}/_gmiflow"
    fish:  gmiflow completion fish > ~/.config/fish/completions/gmiflow.fish
    """  # noqa: D301 - \b is click's sign for lines that stay as they are
    from gmiflow.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, "the choices are shells that click knows"
    completion = kind(main, {}, "gmiflow", "_GMIFLOW_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
