"""`gmiflow serve`: answer action requests from a trained policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gmiflow.commands.report import finish
from gmiflow.diagnostics import Diagnostic

if TYPE_CHECKING:
    from gmiflow.serving.server import PolicyServer

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux."""


@click.command(name="serve")
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--training", metavar="NAME", help="Which training of the run; needed where it has several.")
@click.option("--socket", "path", type=click.Path(path_type=Path), help="Unix socket.  [default: RUN/serve.sock]")
@click.option("--tcp", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Also on 127.0.0.1:PORT; 0: any.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Token to ask for.  [default: a new one, beside the socket: RUN/serve.token]",
)
@click.option("--gmis", type=click.IntRange(1, 64), default=1, show_default=True, help="Workers with a policy each.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="auto: a GPU if any.")
@click.option("--max-clients", type=click.IntRange(min=1), default=1024, show_default=True, help="Connections at once.")
@click.option("--max-rows", type=click.IntRange(1, 65536), default=4096, show_default=True, help="Of one request.")
@click.option("--max-in-flight", type=click.IntRange(min=1), default=16, show_default=True, help="Of one client.")
@click.option("--queue-rows", type=click.IntRange(min=1), default=65_536, show_default=True, help="That may wait.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(run: Path, path: Path | None, token_file: Path | None, form: str, **options: Any) -> None:  # noqa: ANN401
    """Answer action requests with the policy of RUN, a run directory or one checkpoint in it.

    Clients (`gmiflow.serving.PolicyClient`, or anything that speaks the protocol of the serving guide) send raw
    observations and get actions without exploration. Whatever waits when a worker is free is one batch. A token is
    made for every start unless --token-file names one. Ctrl-C or SIGTERM answers what was read and ends.
    """
    folder = _folder(run)
    path = path or folder / "serve.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        hint = f"choose a shorter one with --socket ({SOCKET_PATH_BYTES} bytes at most)"
        raise click.UsageError(f"{path}: too long for a Unix socket; {hint}")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {path.parent}")
    # A server with a socket of its own has a token of its own: another one of the same run keeps its own.
    with _Addresses(path, path.with_name(f"{path.name.removesuffix('.sock')}.token"), token_file) as token:
        server = _server(run.resolve(), token, options)
        asyncio.run(_serve(server, path, options["port"], form))


def _folder(run: Path) -> Path:
    run = run.resolve()
    return next((place for place in (run, *run.parents) if (place / "plan.json").is_file()), run)


class _Addresses:
    """The socket's and the token's files: nobody else's is taken away, and ours are gone at the end."""

    def __init__(self, path: Path, own_token: Path, given_token: Path | None) -> None:
        self._path, self._own_token, self._given = path, own_token, given_token

    def __enter__(self) -> str:
        if self._path.exists():
            self._remove_stale()
        if self._given is not None:
            token = self._given.read_text(encoding="utf-8", errors="replace").strip()
            if not 16 <= len(token) <= 512:
                raise click.UsageError(f"{self._given}: a token has 16 to 512 characters")
            return token
        token = secrets.token_urlsafe(32)
        with contextlib.suppress(FileNotFoundError):
            self._own_token.unlink()
        with open(os.open(self._own_token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
        return token

    def __exit__(self, *_: object) -> None:
        for file in (self._path, *([self._own_token] if self._given is None else [])):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()

    def _remove_stale(self) -> None:
        """A socket that nobody listens on is what a killed server left."""
        import socket
        import stat

        if not stat.S_ISSOCK(self._path.stat().st_mode):
            raise click.UsageError(f"{self._path} exists and is not a socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(os.fspath(self._path)) == 0:
                raise click.UsageError(f"another server listens on {self._path}; choose another with --socket")
        self._path.unlink()


def _server(run: Path, token: str, options: dict[str, Any]) -> PolicyServer:
    import torch

    from gmiflow.runtime.failure import GMIError
    from gmiflow.serving.policy_runner import make_runners, sizes
    from gmiflow.serving.protocol import Terms
    from gmiflow.serving.server import Limits, PolicyServer

    wanted = options["device"]
    if wanted == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: torch sees no GPU here")
    device = torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)  # a policy is small: threads would only wait for each other
    try:
        runners = make_runners(run, options["training"], device, options["gmis"])
        observation, action = sizes(run, options["training"], runners[0])
    except GMIError as failure:
        finish([Diagnostic(code=failure.failure.code, message=failure.failure.message, span=None)])
        raise SystemExit(1) from failure
    terms = Terms(observation, action, options["max_rows"], options["max_in_flight"])
    return PolicyServer(
        runners, terms, token, Limits(clients=options["max_clients"], waiting_rows=options["queue_rows"])
    )


async def _serve(server: PolicyServer, path: Path, port: int | None, form: str) -> None:
    stop = asyncio.Event()
    with _signals(stop):
        places = await server.start(path=path, port=port)
        terms = server.terms
        if form == "json":
            _event("Ready", listening=places, observation=terms.observation, action=terms.action)
        else:
            click.echo(
                f"serving {terms.observation} numbers -> {terms.action} actions on {', '.join(places)}", err=True
            )
        await stop.wait()
        await server.stop()
    totals = server.totals()
    if form == "json":
        _event("Stopped", **totals)
    else:
        latency = "".join(f", {name} {value} ms" for name, value in totals["latency_ms"].items() if value is not None)
        click.echo(f"answered {totals['requests']} requests ({totals['rows']} rows){latency}", err=True)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _event(name: str, **values: Any) -> None:  # noqa: ANN401 - JSON
    click.echo(json.dumps({"event": name, **values}))
