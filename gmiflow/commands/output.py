"""Files that a command writes because the user named them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import click


def write_output(output: str, text: str) -> None:
    """Write a text where ``-o`` or the like says.

    Raises:
        click.UsageError: it cannot be written; what was there before is still there.
    """
    replace_output(output, lambda path: path.write_text(text, encoding="utf-8"))


def replace_output(output: str, write: Callable[[Path], object]) -> None:
    """Have a file written beside ``output``, and put it in its place when it is whole.

    So a full disk costs nobody the file that was there. What is no plain file (a pipe, /dev/stdout), or lies where no
    other can be made, is written at once.

    Args:
        output: as the user named it.
        write: writes the file of the path that it is given, whose name ends as that of ``output`` does.

    Raises:
        click.UsageError: it cannot be written.
    """
    target = Path(output)
    try:
        place = Path(os.path.realpath(target))  # a link stays one
        if target.exists() and not (target.is_file() and os.access(place.parent, os.W_OK)):
            write(target)
            return
        with tempfile.TemporaryDirectory(prefix=".gmiflow-", dir=place.parent) as folder:
            fresh = Path(folder) / place.name
            write(fresh)
            if place.exists():
                fresh.chmod(place.stat().st_mode & 0o7777)
            fresh.replace(place)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {(error.strerror or str(error)).lower()}") from error
