"""Options that several commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gmiflow.pipeline import Options

F = TypeVar("F", bound=Callable[..., Any])

SHORTCUTS: dict[str, str] = {
    "num_env": "workflow.num_env",
    "horizon": "workflow.horizon",
    "seed": "workflow.seed",
    "iterations": "workflow.iterations",
    "execution": "workflow.execution",
    "gmi_per_gpu": "target.gmi_per_gpu",
    "mapping": "target.mapping",
    "backend": "target.backend",
}
"""Command-line shortcut to the `--set` path that it stands for."""


def compile_options(function: F) -> F:
    """`-w`, `--target`, `--set` and the shortcuts; the command gets them as `**chosen`."""
    for name in reversed(SHORTCUTS):
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, name, metavar="VALUE", help=f"Short for --set {SHORTCUTS[name]}=VALUE.")(function)
    function = click.option(
        "--set", "settings", metavar="PATH=VALUE", multiple=True, help="Set a param, workflow setting or target field."
    )(function)
    function = click.option("--target", metavar="NAME", help="Target in the file or in std.targets.")(function)
    return click.option("-w", "--workflow", metavar="NAME", help="Workflow, if the file has several.")(function)


def profile_options(function: F) -> F:
    """`--profile`, `--require-profile`, `--algorithm`: what `auto` is decided by."""
    function = click.option(
        "--algorithm",
        type=click.Choice(["improved", "paper"]),
        help="How sizes are searched: `improved` by default; `paper` is Algorithm 1 as published.",
    )(function)
    function = click.option(
        "--require-profile", is_flag=True, help="Refuse to decide `auto` by defaults: something must be measured."
    )(function)
    return click.option(
        "--profile",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Decide by this profile, not by the one that was kept for this machine.",
    )(function)


def chosen_options(chosen: dict[str, Any]) -> Options:
    """The compiler's options from what `compile_options` and `profile_options` collected.

    Raises:
        click.UsageError: for a `--set` without "=".
    """
    overrides: list[tuple[str, str]] = []
    for setting in chosen["settings"]:
        path, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set {setting}: expected PATH=VALUE, for example --set num_env=8192")
        overrides.append((path.strip(), value.strip()))
    overrides += [(path, chosen[name]) for name, path in SHORTCUTS.items() if chosen.get(name) is not None]
    if chosen.get("deterministic"):
        overrides.append(("workflow.deterministic", "true"))
    return Options(
        workflow=chosen["workflow"],
        target=chosen["target"],
        overrides=tuple(overrides),
        profile=chosen.get("profile"),
        require_profile=bool(chosen.get("require_profile")),
        algorithm=chosen.get("algorithm") or "improved",
    )


format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="How diagnostics are written.",
)
