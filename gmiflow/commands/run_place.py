"""Where a run writes and what it goes on from: looked at before anything is shown, written or started."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click

LOCK = ".lock"
"""In a run directory: locked while a run is at work in it; its content is the process id."""

_FOLDERS = ("logs", "programs", "checkpoints", "tensorboard")
_FILES = ("plan.json", "params.json", "metrics.jsonl", "report.json")


def unwritable(what: str, path: Path, error: OSError) -> click.UsageError:
    """The mistake of a user who names a place where nothing can be written."""
    place = f"{error.filename}: " if error.filename is not None and str(error.filename) != str(path) else ""
    return click.UsageError(f"cannot write {what} {path}: {place}{(error.strerror or str(error)).lower()}")


def require_writable(directory: Path) -> None:
    """Try whether a run can write ``directory``, without making it.

    Raises:
        click.UsageError: with what is in the way.
    """
    existing = next((f for f in (directory, *directory.parents) if os.path.lexists(f)), Path("."))
    folders = [directory / name for name in _FOLDERS if os.path.lexists(directory / name)]
    try:
        for folder in (existing, *folders):
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
            _try_to_write(folder)
        for name in _FILES:
            if (directory / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(directory / name))
    except OSError as error:
        raise unwritable("the run directory", directory, error) from error


def _try_to_write(folder: Path) -> None:
    """Permissions do not tell (root, read-only and made-up file systems): a file without a name does."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


def unused(directory: Path, *, make: bool) -> Path:
    """``directory``, or the first of ``directory-2``, ``-3``, ... that does not exist.

    Args:
        directory: the first choice.
        make: make it, so that another run that starts in the same second takes the next.

    Raises:
        click.UsageError: it cannot be made.
    """
    candidate, number = directory, 1
    while True:
        try:
            if make:
                candidate.mkdir(parents=True)
                return candidate
            if not os.path.lexists(candidate):
                return candidate
        except FileExistsError:
            pass
        except OSError as error:
            raise unwritable("the run directory", candidate, error) from error
        number += 1
        candidate = directory.with_name(f"{directory.name}-{number}")


def require_fresh(directory: Path, file: str | None) -> None:
    """Refuse to start a new run where one has been; its records would be mixed with the new ones.

    A directory with nothing but the very plan that is to run is fresh: a job script starts in such a one. So is one
    whose run came to nothing, since there is nothing in it to go on from.

    Raises:
        click.UsageError: with the mend.
    """
    if came_to_nothing(directory):
        return
    plan = directory / "plan.json"
    own = file is not None and plan.exists() and Path(file).exists() and plan.samefile(file)
    saved = (directory / "checkpoints").exists()
    if saved:
        raise click.UsageError(
            f"{directory} holds a run already: choose another --run-dir, or go on with it: --resume {directory}"
        )
    if (directory / "metrics.jsonl").exists() or (plan.exists() and not own):
        raise click.UsageError(f"{directory} holds a run already, without a checkpoint: choose another --run-dir")


def came_to_nothing(directory: Path) -> bool:
    """Whether a run ended in ``directory`` before its first iteration was over: with a report, and nothing of value."""
    metrics = directory / "metrics.jsonl"
    empty = not metrics.exists() or (metrics.is_file() and metrics.stat().st_size == 0)
    return (directory / "report.json").is_file() and empty and not (directory / "checkpoints").exists()


def clear(directory: Path) -> None:
    """Remove the records of a run that came to nothing, which the next one would be mixed with."""
    if came_to_nothing(directory):
        for name in ("logs", "tensorboard"):
            shutil.rmtree(directory / name, ignore_errors=True)
        for name in ("telemetry.jsonl", "report.json"):
            (directory / name).unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(directory: Path, option: str = "--run-dir") -> Generator[None]:
    """Make ``directory``, and keep other runs out of it meanwhile.

    Args:
        directory: to be made.
        option: of the command line that names it.

    Raises:
        click.UsageError: it cannot be made, or another run is at work in it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unwritable("the run directory", directory, error) from error
    with os.fdopen(lock, "r+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = file.read().strip() or "unknown"
            raise click.UsageError(
                f"another run (process {who}) is at work in {directory}: choose another {option}"
            ) from error
        except OSError:
            pass  # a file system without locks: two runs at once are not noticed there
        try:
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise unwritable("the run directory", directory, error) from error
        yield


def params_beside(plan: Path) -> list[dict[str, Any]]:
    """The parameters of the `.gmi` file as an earlier run wrote them; what is damaged is left out with a note."""
    path = plan.parent / "params.json"
    if not os.path.lexists(path):
        return []
    try:
        data = json.loads(_text_of(path) or "")
    except (ValueError, RecursionError):
        data = None
    names = {"name", "value", "origin"}
    if not isinstance(data, list) or not all(isinstance(item, dict) and names <= item.keys() for item in data):
        click.echo(f"note: {path} is damaged; it is left out", err=True)
        return []
    return data


def sources_beside(plan: Path) -> list[tuple[str, str]]:
    """Name and text of the `.gmi` files beside a plan; what cannot be read is left out with a note."""
    found: list[tuple[str, str]] = []
    for path in sorted(plan.parent.glob("*.gmi")):
        text = _text_of(path)
        if text is None:
            click.echo(f"note: {path} cannot be read as text; it is left out", err=True)
        else:
            found.append((path.name, text))
    return found


def _text_of(path: Path) -> str | None:
    """None for what cannot be read as text; a pipe is not tried, since reading one waits for its writer."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError):
        return None
