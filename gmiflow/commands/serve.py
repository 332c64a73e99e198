"""`gmiflow serve`: answer action requests from a trained policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gmiflow.commands.report import finish
from gmiflow.commands.serve_place import Place
from gmiflow.diagnostics import Diagnostic

if TYPE_CHECKING:
    from gmiflow.serving.server import PolicyServer

_OTHER_FILES = 32
"""Files that a server opens beside its connections, at most."""


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
@click.option(
    "--deterministic/--stochastic",
    default=True,
    help="The likeliest action, or one drawn as in training.  [default: deterministic]",
)
@click.option("--max-clients", type=click.IntRange(min=1), default=1024, show_default=True, help="Connections at once.")
@click.option("--max-rows", type=click.IntRange(1, 65536), default=4096, show_default=True, help="Of one request.")
@click.option("--max-in-flight", type=click.IntRange(min=1), default=16, show_default=True, help="Of one client.")
@click.option("--queue-rows", type=click.IntRange(min=1), default=65_536, show_default=True, help="That may wait.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(run: Path, path: Path | None, token_file: Path | None, form: str, **options: Any) -> None:  # noqa: ANN401
    """Answer action requests with the policy of RUN, a run directory or one checkpoint in it.

    Clients (`gmiflow.serving.PolicyClient`, or anything that speaks the protocol of the serving guide) send raw
    observations and get actions, without exploration unless --stochastic asks for it. Whatever waits when a worker
    is free is one batch. A token is made for every start unless --token-file names one. Ctrl-C, SIGTERM or a closed
    terminal answers what was read and ends; a second one ends at once.
    """
    place = Place(path or _folder(run) / "serve.sock", token_file)
    server = _server(run.resolve(), place.token, options)
    serve_at(place, server, options["port"], form, deterministic=options["deterministic"])


def serve_at(place: Place, server: PolicyServer, port: int | None, form: str, *, deterministic: bool = True) -> None:
    """Serve until a signal comes; nothing of the place is left behind.

    Args:
        place: where, with the token that the server asks for.
        server: not started yet.
        port: TCP port of the loopback address beside it, or None.
        form: "text" or "json", of what is said.
        deterministic: whether the server's actions are without exploration, which is said.

    Raises:
        click.UsageError: another server has taken the place meanwhile.
        OSError: the place or the port cannot be had.
        SystemExit: a second signal came before everything was answered.
    """
    try:
        asyncio.run(_serve(server, place, port, form, deterministic))
    finally:
        place.leave()


def _folder(run: Path) -> Path:
    run = run.resolve()
    return next((place for place in (run, *run.parents) if (place / "plan.json").is_file()), run)


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
        runners = make_runners(
            run, options["training"], device, options["gmis"], stochastic=not options["deterministic"]
        )
        observation, action = sizes(run, options["training"], runners[0])
    except GMIError as failure:
        told = failure.failure
        finish([Diagnostic(code=told.code, message=told.message, span=None, notes=told.notes)])
        raise SystemExit(1) from failure
    terms = Terms(observation, action, options["max_rows"], options["max_in_flight"])
    clients = _affordable_clients(options["max_clients"])
    return PolicyServer(runners, terms, token, Limits(clients=clients, waiting_rows=options["queue_rows"]))


def _affordable_clients(wanted: int) -> int:
    """As many clients as wanted, or fewer where the process may not open a file for each.

    Raises:
        click.UsageError: not even one.
    """
    import resource

    from gmiflow.serving.server import ACCEPTED_AT_ONCE

    needed = len(os.listdir("/proc/self/fd")) + ACCEPTED_AT_ONCE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + needed:
        soft = min(hard, wanted + needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    clients = min(wanted, soft - needed)
    if clients < 1:
        raise click.UsageError(f"a server needs {needed + 1} open files, and may have {soft}; raise `ulimit -n`")
    if clients < wanted:
        click.echo(f"note: at most {clients} clients, for lack of open files; raise `ulimit -n`", err=True)
    return clients


async def _serve(server: PolicyServer, place: Place, port: int | None, form: str, deterministic: bool) -> None:
    stop = asyncio.Event()
    with _signals(stop):
        with place.taken():
            places = await server.start(path=place.path, port=port)
        terms = server.terms
        if form == "json":
            sizes = {"observation": terms.observation, "action": terms.action}
            _event("Ready", listening=places, **sizes, deterministic=deterministic)
        else:
            how = "without exploration" if deterministic else "drawn as in training"
            answers = f"observations of {_count(terms.observation, 'number')} with actions of {terms.action}, {how}"
            click.echo(f"serving {answers}, on {', '.join(places)}", err=True)
        await stop.wait()
        await server.stop()
    totals = server.totals()
    if form == "json":
        _event("Stopped", **totals)
    else:
        latency = "".join(f", {name} {value} ms" for name, value in totals["latency_ms"].items() if value is not None)
        requests, rows = _count(totals["requests"], "request"), _count(totals["rows"], "observation")
        click.echo(f"answered {requests} ({rows}){latency}", err=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    from gmiflow.runtime.supervisor import ECHO_S

    loop = asyncio.get_running_loop()
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    asked_s = 0.0

    def on_signal(number: int) -> None:
        nonlocal asked_s
        if stop.is_set() and loop.time() - asked_s >= ECHO_S:
            raise SystemExit(128 + number)
        asked_s = loop.time() if not stop.is_set() else asked_s
        stop.set()

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _event(name: str, **values: Any) -> None:  # noqa: ANN401 - JSON
    click.echo(json.dumps({"event": name, **values}))
