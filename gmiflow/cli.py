"""The command line: a table of commands, each loaded when it is called.

`gmiflow --help` imports click and nothing else of weight. Every command lives in a file of its own
under `gmiflow.commands`; stdout is data, stderr is messages; exit codes are 0 for success, 1 for
errors found, 2 for wrong usage, 3 when a plan differs, and 128 plus its number after a signal.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

COMMANDS: dict[str, tuple[str, str]] = {
    "new": ("gmiflow.commands.new", "Start a project with a simulator of its own."),
    "check": ("gmiflow.commands.check", "Check a .gmi file and show every mistake in it."),
    "fmt": ("gmiflow.commands.fmt", "Format .gmi files."),
    "lint": ("gmiflow.commands.lint", "Warn about unused names and suspicious sizes."),
    "graph": ("gmiflow.commands.graph", "Draw a workflow as Mermaid, DOT or SVG."),
    "doc": ("gmiflow.commands.doc", "Write the Markdown reference of a file or a std module."),
    "compile": ("gmiflow.commands.compile", "Compile a .gmi file to a launch plan and one program per GMI."),
    "profile": ("gmiflow.commands.profile", "Measure a workflow at the sizes that it leaves open."),
    "plan": ("gmiflow.commands.plan", "Show what would run, what it is expected to do, and why."),
    "run": ("gmiflow.commands.run", "Compile and train, or run a plan.json."),
    "serve": ("gmiflow.commands.serve", "Answer action requests from a trained policy."),
    "eval": ("gmiflow.commands.eval", "Try a trained policy: returns, and what it does."),
    "tasks": ("gmiflow.commands.tasks", "List the benchmark tasks, or show one."),
    "render": ("gmiflow.commands.render", "Draw a picture or a movie of a benchmark task."),
    "doctor": ("gmiflow.commands.doctor", "Say what this machine has, what is missing, and the mend."),
    "explain": ("gmiflow.commands.explain", "Explain a code, or why the compiler chose what it chose."),
    "bench": ("gmiflow.commands.bench", "Measure collectives, channels and trainings on this machine."),
    "lsp": ("gmiflow.commands.lsp", "Start the language server that editors speak to."),
    "completion": ("gmiflow.commands.completion", "Print the completion script of a shell."),
}
"""Name to (module, one-line help). The module has a click command called `command`."""


_ECHO_S = 0.25
"""A second signal this soon is the first once more, as in `Supervisor`."""


class Ended(BaseException):
    """SIGTERM came, or SIGHUP: what the command has started is taken down on the way out.

    Attributes:
        signal: its number.
    """

    def __init__(self, number: int) -> None:
        """Ended by signal ``number``."""
        super().__init__(f"signal {number}")
        self.signal = number


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called, not for `--help`."""

    def main(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 - as click has it
        """As click does, with one line for what files and streams of the machine refuse."""
        _open_missing_streams()
        try:
            try:
                with _signals_end():
                    return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except Ended as end:
            _leave(end.signal)
        except (OSError, UnicodeError) as error:
            _say(error)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """As click does; Ctrl-C ends with 130, and no traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _leave(signal.SIGINT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        command.short_help = COMMANDS[cmd_name][1]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names from the table, so that completing one imports no command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = [(name, text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [CompletionItem(name, help=text) for name, text in found]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with "did you mean" for a name that is nearly right."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            raise click.UsageError(f"No such command '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@contextlib.contextmanager
def _signals_end() -> Generator[None]:
    """Have SIGTERM and SIGHUP raise `Ended` where they would kill; a second one does kill, unless it is an echo.

    So nothing of a command stays behind: no daemon, no process of a simulator, no shared memory. Commands that have a
    better answer (`run`, `serve`, `profile`) handle signals themselves while they are at work.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first_s: float | None = None

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal first_s
        if first_s is None:
            first_s = time.monotonic()
            raise Ended(number)
        if time.monotonic() - first_s >= _ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    watched = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in watched:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in watched:
            signal.signal(number, signal.SIG_DFL)


def _leave(number: int) -> NoReturn:
    """End as shells have it for a signal, with 128 and its number."""
    from gmiflow.commands.report import unless_unwritable

    with unless_unwritable():
        click.echo("interrupted", err=True)
    sys.exit(128 + number)


class _Closed(io.RawIOBase):
    """A stream that the caller closed, for reading."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - a buffer
        raise OSError(errno.EBADF, "stdin is closed")


def _open_missing_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr some that lead nowhere.

    Else Python has None there, and the next file that is opened becomes what others take for the stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed()))
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process


def _say(error: OSError | UnicodeError) -> None:
    """One line about what went wrong, when stderr can be written at all."""
    from gmiflow.commands.report import drop_broken_streams, unless_unwritable

    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror.lower() + (f": {error.filename}" if error.filename is not None else "")
    drop_broken_streams()
    with unless_unwritable():
        try:
            os.getcwd()
        except FileNotFoundError:
            text = f"the working directory is not there any more ({text})"
        click.echo(f"error: {text}", err=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gmiflow", prog_name="gmiflow")
def main() -> None:
    """Compile reinforcement-learning workflows to GPU slices, and run them.

    Start with `gmiflow run examples/quickstart.gmi`.
    """


if __name__ == "__main__":
    main()
