"""`--launcher` and its options, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from gmiflow.runtime.launchers.base import Launcher
    from gmiflow.runtime.supervisor import Limits

F = TypeVar("F", bound=Callable[..., Any])

NAMES = ("local", "mpi", "slurm", "attach")
SILENCE_S = 6.0
"""A rank that says nothing for so long and does no work has stalled; on several machines nobody else notices."""

_USED_BY = {
    "hostfile": ("mpi",),
    "nodes": ("slurm",),
    "launcher_option": ("mpi", "slurm"),
    "ranks_per_node": ("mpi", "attach"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The launcher of the command line; see `launcher_options`."""

    name: str
    hostfile: str | None
    nodes: int | None
    options: tuple[str, ...]
    ranks_per_node: int | None

    def launcher(self) -> Launcher | None:
        """What starts the processes; None for this machine's own."""
        from gmiflow.runtime.launchers.mpi import AttachLauncher, MPILauncher

        if self.name == "mpi":
            hostfile = Path(self.hostfile) if self.hostfile is not None else None
            return MPILauncher(hostfile, self.options, self.ranks_per_node or 0)
        return AttachLauncher(self.ranks_per_node or 0) if self.name == "attach" else None

    def arguments(self) -> tuple[str, ...]:
        """The options of the command line that choose this launcher."""
        if self.name == "local":
            return ()
        found = ["--launcher", self.name]
        for flag, value in (
            ("--hostfile", self.hostfile),
            ("--nodes", self.nodes),
            ("--ranks-per-node", self.ranks_per_node),
            *(("--launcher-option", word) for word in self.options),
        ):
            # With "=", because a word for mpirun may start with a dash.
            found += [f"{flag}={value}"] if value is not None else []
        return tuple(found)

    def limits(self) -> Limits | None:
        """How long to be patient; None for the usual."""
        from gmiflow.runtime.supervisor import Limits

        return Limits(silence_s=SILENCE_S) if self.name in ("mpi", "attach") else None


def launcher_options(function: F) -> F:
    """`--launcher` and what belongs to it; the command gets a `Chosen` from `chosen_launcher`."""
    count = click.IntRange(min=1)
    for option in (
        click.option(
            "--ranks-per-node",
            type=count,
            metavar="N",
            help="mpi, attach: N ranks share memory. Default: by host name.",
        ),
        click.option(
            "--launcher-option", multiple=True, metavar="WORD", help="mpi: a word for mpirun; slurm: an #SBATCH option."
        ),
        click.option("--nodes", type=count, metavar="N", help="slurm: spread over N machines. Default: one."),
        click.option("--hostfile", metavar="FILE", type=click.Path(), help="mpi: Open MPI's list of machines."),
        click.option(
            "--launcher",
            type=click.Choice(NAMES),
            default="local",
            show_default=True,
            help="mpi: start one rank per GMI with mpirun; slurm: write a job script; attach: wait for ranks.",
        ),
    ):
        function = option(function)
    return function


def chosen_launcher(chosen: dict[str, Any]) -> Chosen:
    """Take the launcher's options out of ``chosen``.

    Raises:
        click.UsageError: for an option that the launcher does not have.
    """
    name = chosen.pop("launcher")
    values = {option: chosen.pop(option) for option in _USED_BY}
    for option, users in _USED_BY.items():
        if values[option] and name not in users:
            flag = f"--{option.replace('_', '-')}"
            raise click.UsageError(f"{flag} goes with --launcher {' or '.join(users)}, not {name}")
    return Chosen(
        name=name,
        hostfile=values["hostfile"],
        nodes=values["nodes"],
        options=tuple(values["launcher_option"]),
        ranks_per_node=values["ranks_per_node"],
    )
