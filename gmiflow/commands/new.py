"""`gmiflow new`: a project that runs at once."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

import click

from gmiflow.syntax.words import KEYWORDS

TEMPLATES = Path(__file__).parent / "project"
FILES = {
    "workflow.gmi.txt": "{name}.gmi",
    "simulator.py.txt": "{name}_sim.py",
    "README.md.txt": "README.md",
    "gitignore.txt": ".gitignore",
}
"""Template to the file that is made from it."""

MAX_LENGTH = 40
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = frozenset(("sim", "actor", "learner", "train", "local", "ppo", "targets", "num_env"))
"""Names that the project's own `.gmi` file uses for something else."""


@click.command(name="new")
@click.argument("path", metavar="NAME", type=click.Path())
def command(path: str) -> None:
    """Make a folder NAME with a workflow, a simulator in plain torch, a README and a .gitignore.

    NAME may have folders before it. A folder that exists must be empty.
    """
    folder = Path(path)
    name = folder.name
    problem = wrong_with(name) or _occupied(folder)
    if problem:
        raise click.UsageError(problem)
    try:
        write(folder, name)
    except OSError as error:
        raise click.UsageError(f"cannot write {folder}: {error.strerror}") from error
    click.echo(f"made {folder}; try it with: gmiflow run {folder / name}.gmi", err=True)


def wrong_with(name: str) -> str | None:
    """Why ``name`` cannot be the name of a project, or None."""
    if not _NAME.fullmatch(name):
        return f"'{name}' is not a project name: use lower-case letters, digits and `_`, starting with a letter"
    if len(name) > MAX_LENGTH:
        return f"'{name}' is longer than {MAX_LENGTH} characters"
    if name in KEYWORDS or keyword.iskeyword(name) or name in _TAKEN:
        return f"'{name}' has a meaning of its own; choose another name"
    return None


def write(folder: Path, name: str) -> None:
    """Write the project's files into ``folder``, which is made when it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"name": name, "class_name": class_name(name)}
    for template, target in FILES.items():
        text = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
        (folder / target.format(name=name)).write_text(text, encoding="utf-8")


def class_name(name: str) -> str:
    """The simulator's class: `air_hockey` becomes `AirHockey`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _occupied(folder: Path) -> str | None:
    if folder.is_dir():
        return f"{folder} exists and is not empty" if any(folder.iterdir()) else None
    return f"{folder} exists and is no folder" if folder.exists() else None
