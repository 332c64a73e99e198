"""`gmiflow fmt`: the one layout of a `.gmi` file."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from pathlib import Path

import click

from gmiflow.commands.report import ERRORS_FOUND, show
from gmiflow.diagnostics import Diagnostic
from gmiflow.source import Source
from gmiflow.syntax.formatter import FormatterError, format_source
from gmiflow.syntax.parser import accept_text, read

STDIN = "-"


@click.command(name="fmt")
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE...")
@click.option("--check", "check_only", is_flag=True, help="Write nothing; name the files that would change, exit 1.")
@click.option("--diff", "as_diff", is_flag=True, help="Write nothing; print the changes.")
def command(files: tuple[str, ...], check_only: bool, as_diff: bool) -> None:
    """Format each FILE in place; `-` reads stdin and writes stdout.

    The layout has no options. A file is written only when the result says the same, a second run would
    change nothing, and every comment is still there. Files with syntax errors are left alone.
    """
    failed = changed = False
    for name in files:
        source = _source(name)
        if isinstance(source, Diagnostic):
            show([source])
            failed = True
            continue
        text = _formatted(source)
        if text is None:
            failed = True
            continue
        if as_diff:
            click.echo(_difference(source, text), nl=False)
        if text != _original(name, source):
            changed = True
            _report_or_write(name, text, check_only=check_only, as_diff=as_diff)
        elif name == STDIN and not (check_only or as_diff):
            _write_stdout(text)
    if failed or (changed and check_only):
        sys.exit(ERRORS_FOUND)


def _source(name: str) -> Source | Diagnostic:
    if name != STDIN:
        return read(Path(name), name)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"stdin is not UTF-8 text (byte {error.start})"
        return Diagnostic(code="E0105", message=message, span=None)
    return accept_text(text, "<stdin>")


def _formatted(source: Source) -> str | None:
    """The formatted text, or None after showing why there is none."""
    try:
        result = format_source(source)
    except FormatterError as error:
        click.echo(f"internal error: {source.name}: {error}; it was left alone. Please report this file.", err=True)
        return None
    if result.text is None:
        show(result.diagnostics)
    return result.text


def _original(name: str, source: Source) -> str:
    """The text as it is in the file: with the byte-order mark that `Source` lacks."""
    if name != STDIN and Path(name).read_bytes().startswith(b"\xef\xbb\xbf"):
        return "\ufeff" + source.text
    return source.text


def _report_or_write(name: str, text: str, *, check_only: bool, as_diff: bool) -> None:
    if check_only:
        click.echo(f"would reformat {name}", err=True)
    elif as_diff:
        return
    elif name == STDIN:
        _write_stdout(text)
    else:
        _replace(Path(name), text)
        click.echo(f"reformatted {name}", err=True)


def _write_stdout(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8"))


def _replace(path: Path, text: str) -> None:
    """Write through a temporary file, so that a crash leaves the old file or the new one."""
    target = path.resolve()
    mode = target.stat().st_mode
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode("utf-8"))
    os.chmod(partial, mode)
    os.replace(partial, target)


def _difference(source: Source, text: str) -> str:
    lines = difflib.unified_diff(
        source.text.splitlines(), text.splitlines(), source.name, f"{source.name} (formatted)", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)
