"""The policy server: an asyncio front that reads frames, and workers behind it that act.

Nothing grows without bound: a client that has enough requests under way, or that does not read its answers, is not
read from until that changes, and while too many rows wait nobody is. So pressure goes back to whoever makes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from gmiflow.serving import protocol
from gmiflow.serving.batching import Answer, Batcher, Request, Result
from gmiflow.serving.protocol import ProtocolError, Reason, Terms
from gmiflow.serving.statistics import Latencies

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 100
"""Connections that are accepted before others are looked after; that many may be open beyond `Limits.clients`, until
they are told that they are too many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much a server takes on.

    Attributes:
        clients: connections at the same time.
        waiting_rows: observations that wait for a worker; while there are more, nothing is read.
        batch_rows: observations of one batch.
        hello_s: time that a new connection has to say hello.
        unread_bytes: answers of one client that wait to be sent; while there are more, it is not read from.
        stop_s: time for answers that are on their way when the server stops.
    """

    clients: int = 1024
    waiting_rows: int = 65_536
    batch_rows: int = 4096
    hello_s: float = 5.0
    unread_bytes: int = 1 << 20
    stop_s: float = 5.0


class PolicyServer:
    """Listens, answers, and stops in order. One event loop, one thread per worker.

    Attributes:
        terms: what clients are told.
        latencies: from the arrival of a request's last byte to its answer's hand-over to the socket.
        refusals: how often each `Reason` was given.
    """

    def __init__(self, answers: Sequence[Answer], terms: Terms, token: str, limits: Limits = Limits()) -> None:
        """Prepare; `start` listens.

        Args:
            answers: one per worker: observations f32 [rows, O] to actions f32 [rows, A].
            terms: sizes and limits for clients.
            token: what a client must know.
            limits: see `Limits`.
        """
        self.terms = terms
        self.limits = limits
        self.latencies = Latencies()
        self.refusals: dict[Reason, int] = {}
        self._answers = answers
        self._token = token.encode()
        self._connections: set[_Connection] = set()
        self._listeners: list[asyncio.Server] = []
        self._paused: set[_Connection] = set()
        self._stopping = False

    async def start(self, *, path: Path | None = None, port: int | None = None) -> list[str]:
        """Listen on a Unix socket, on a TCP port of the loopback address (0: any free one), or both.

        Returns:
            Where: paths and "127.0.0.1:PORT".

        Raises:
            OSError: an address is taken or not allowed.
        """
        self._loop = asyncio.get_running_loop()
        self._batcher = Batcher(self._answers, batch_rows=self.limits.batch_rows, deliver=self._hand_over)
        places: list[str] = []
        try:
            if path is not None:
                await self._listen(_bound(path))
                places.append(str(path))
            if port is not None:
                listener = _bound(port)
                await self._listen(listener)
                places.append(f"127.0.0.1:{listener.getsockname()[1]}")
        except OSError:
            await self.stop()
            raise
        return places

    async def _listen(self, listener: socket.socket) -> None:
        """Accept a few at a time, while many may wait to be accepted: who comes in a crowd is not turned away."""
        server = await self._loop.create_server(self._connect, sock=listener, backlog=ACCEPTED_AT_ONCE)
        self._listeners.append(server)
        listener.listen(max(ACCEPTED_AT_ONCE, self.limits.clients))

    async def stop(self) -> None:
        """Take nothing new, answer what was read, hang up."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.pause()
        await self._close_batcher()
        deadline = time.monotonic() + self.limits.stop_s
        while any(connection.unsent for connection in self._connections) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        for connection in tuple(self._connections):
            connection.hang_up()

    async def _close_batcher(self) -> None:
        """Wait for the workers; on a thread that does not keep the process when it ends at once instead."""
        closed = self._loop.create_future()

        def close() -> None:
            self._batcher.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: closed.done() or closed.set_result(None))

        threading.Thread(target=close, daemon=True).start()
        await closed

    @property
    def clients(self) -> int:
        """Connections now."""
        return len(self._connections)

    def totals(self) -> dict[str, Any]:
        """Counts since the start, as in the server's last event."""
        done = self._batcher.totals()
        batches = sum(done.batches)
        return {
            "requests": sum(done.requests),
            "rows": sum(done.rows),
            "batches": batches,
            "rows_per_batch": round(sum(done.rows) / batches, 2) if batches else None,
            "rows_per_worker": list(done.rows),
            "refused": {reason.name.lower(): count for reason, count in sorted(self.refusals.items())},
            "latency_ms": self.latencies.summary_ms(),
        }

    # ---- of the connections -----------------------------------------------------------------------------------

    def authentic(self, token: str) -> bool:
        """Whether a client knows the token; takes the same time for any that does not."""
        return hmac.compare_digest(token.encode(), self._token)

    def admit(self, connection: _Connection) -> bool:
        """Count a connection in, unless there are too many."""
        if self._stopping or len(self._connections) >= self.limits.clients:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        self._paused.discard(connection)

    @property
    def takes_requests(self) -> bool:
        """Whether frames are read: not while too many rows wait, nor when the server stops."""
        return not self._stopping and self._batcher.waiting_rows <= self.limits.waiting_rows

    def put(self, request: Request) -> None:
        """Queue a request; when too many rows wait, everybody is paused until the workers have caught up."""
        self._batcher.put(request)
        if not self.takes_requests:
            for connection in self._connections:
                connection.pause()
            self._paused.update(self._connections)

    def count(self, reason: Reason) -> None:
        """A frame was refused."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def _connect(self) -> _Connection:
        return _Connection(self)

    def _hand_over(self, results: Sequence[Result]) -> None:
        """From a worker's thread to the event loop, a batch at a time."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server was killed while it stopped
            self._loop.call_soon_threadsafe(self._send, results)

    def _send(self, results: Sequence[Result]) -> None:
        now = time.monotonic()
        for request, result in results:
            cast("_Connection", request.owner).answer(request.number, result)
            self.latencies.add(now - request.arrived_s)
        if self._paused and self._batcher.waiting_rows <= self.limits.waiting_rows // 2:
            for connection in tuple(self._paused):
                self._paused.discard(connection)
                connection.resume()


def _bound(place: Path | int) -> socket.socket:
    """A socket at a path or a TCP port of the loopback address; closed again when it cannot be had."""
    listener = socket.socket(socket.AF_INET if isinstance(place, int) else socket.AF_UNIX)
    try:
        if isinstance(place, int):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", place))
        else:
            mask = os.umask(0o177)  # only the owner may connect, from the first moment on
            try:
                listener.bind(os.fspath(place))
            finally:
                os.umask(mask)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"127.0.0.1:{place}" if isinstance(place, int) else place) from error
    return listener


class _Connection(asyncio.Protocol):
    """One client: frames in, frames out."""

    def __init__(self, server: PolicyServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._in_flight = 0
        self._welcomed = self._full = self._ended = self._last = False
        self._timer: asyncio.TimerHandle | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client and give it some time to say hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._server.limits.unread_bytes)
        if not self._server.admit(self):
            self._refuse(0, Reason.TOO_MANY_CLIENTS, "the server has as many clients as it takes")
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._server.limits.hello_s, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; answers that are still on their way are dropped."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take the whole frames out of what has come."""
        self._buffer += data
        self._read_frames()

    def eof_received(self) -> bool:
        """The client sends no more; it may still read the answers to what it has sent."""
        self._last = True
        return self._in_flight > 0

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._full = True
        self.pause()

    def resume_writing(self) -> None:
        """It reads again."""
        self._full = False
        self.resume()

    # of the server

    @property
    def unsent(self) -> bool:
        """Whether answers wait to be sent."""
        return not self._ended and self._transport.get_write_buffer_size() > 0

    def pause(self) -> None:
        """Read no more for now."""
        if not self._ended and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on, unless there is another reason not to; first what was left in the buffer."""
        self._read_frames()
        if not self._ended and self._may_read and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()

    def answer(self, number: int, result: Any) -> None:  # noqa: ANN401 - an array or an exception
        """Send actions, or say that acting failed."""
        self._in_flight -= 1
        if self._ended:
            return
        if isinstance(result, Exception):
            log.error("acting failed: %s", result)
            self._refuse(number, Reason.FAILED, "the policy could not act on this")
        else:
            values = np.ascontiguousarray(result, dtype="<f4").tobytes()
            self._transport.write(protocol.frame(protocol.actions(number, values)))
        if self._last:
            if not self._in_flight:
                self.hang_up()
        elif self._in_flight == self._server.terms.in_flight_limit - 1:
            self.resume()

    def hang_up(self) -> None:
        """End; what is already in the transport is still sent."""
        if not self._ended:
            self._transport.close()

    # inside

    @property
    def _may_read(self) -> bool:
        server = self._server
        return server.takes_requests and not self._full and self._in_flight < server.terms.in_flight_limit

    def _read_frames(self) -> None:
        while not self._ended and not self._transport.is_closing():
            if self._welcomed and not self._may_read:
                self.pause()
                return
            body = self._next_body()
            if body is None:
                return
            try:
                self._on_act(body) if self._welcomed else self._on_hello(body)
            except ProtocolError as problem:
                number = int.from_bytes(body[1:5], "little") if self._welcomed and len(body) >= 5 else 0
                self._refuse(number, problem.reason, str(problem))

    def _next_body(self) -> bytes | None:
        """The next frame's body, or None while it is not all there."""
        head = protocol.LENGTH.size
        if len(self._buffer) < head:
            return None
        (length,) = protocol.LENGTH.unpack_from(self._buffer)
        limit = protocol.act_bytes_limit(self._server.terms) if self._welcomed else protocol.HELLO_BYTES_LIMIT
        if length > limit:
            self._refuse(0, Reason.OVERSIZED, f"a frame of {length} bytes; at most {limit} are taken here")
            return None
        if len(self._buffer) < head + length:
            return None
        body = bytes(self._buffer[head : head + length])
        del self._buffer[: head + length]
        return body

    def _on_hello(self, body: bytes) -> None:
        if not self._server.authentic(protocol.read_hello(body)):
            raise ProtocolError(Reason.UNAUTHENTICATED, "the token is wrong")
        self._welcomed = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.write(protocol.frame(protocol.welcome(self._server.terms)))

    def _on_act(self, body: bytes) -> None:
        terms = self._server.terms
        number, rows = protocol.read_act(body, terms)
        values = np.frombuffer(body, dtype="<f4", offset=protocol.ACT_HEADER_BYTES).reshape(rows, terms.observation)
        if not np.isfinite(values).all():
            raise ProtocolError(Reason.NOT_FINITE, "the observations hold numbers that are not finite")
        self._in_flight += 1
        self._server.put(Request(values, self, number))

    def _refuse(self, number: int, reason: Reason, message: str) -> None:
        self._server.count(reason)
        self._transport.write(protocol.frame(protocol.refused(number, reason, message)))
        if reason.final:
            self._buffer.clear()
            self._transport.close()
