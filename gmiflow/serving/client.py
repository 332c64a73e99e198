"""A client of a policy server that needs NumPy alone."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from gmiflow.serving import protocol

SOCKET_NAME, TOKEN_NAME = "serve.sock", "serve.token"
"""Where a server of a run listens and keeps its token, in the run directory."""


class RefusedError(RuntimeError):
    """The server refused a request.

    Attributes:
        reason: of the protocol.
    """

    def __init__(self, problem: protocol.ProtocolError) -> None:
        super().__init__(str(problem))
        self.reason = problem.reason


class PolicyClient:
    """One connection; one request at a time. Not for use by several threads.

        with PolicyClient.of_run("runs/hover") as policy:
            action = policy.act(observation)

    Attributes:
        terms: sizes that the server told.
    """

    def __init__(self, address: str | Path | tuple[str, int], token: str, *, timeout_s: float = 10.0) -> None:
        """Connect and say hello.

        Args:
            address: path of a Unix socket, or (host, port).
            token: what the server's token file holds.
            timeout_s: longest wait for connecting and for each answer.

        Raises:
            OSError: nobody listens there; TimeoutError when no answer comes.
            RefusedError: the token is wrong, or the server has too many clients.
        """
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._number = 0
        try:
            self._socket.settimeout(timeout_s)
            self._connect(address if isinstance(address, tuple) else os.fspath(address), timeout_s)
            if family == socket.AF_INET:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(BrokenPipeError):  # who is one too many is told so and hung up on at once
                self._socket.sendall(protocol.frame(protocol.hello(token)))
            body = self._receive()
            if body[:1] == bytes([protocol.Kind.REFUSED]):
                self._raise(body)
            self.terms = protocol.read_welcome(body)
        except BaseException:
            self._socket.close()
            raise

    @classmethod
    def of_run(cls, run: str | Path, *, timeout_s: float = 10.0) -> PolicyClient:
        """Connect to the server that serves a run directory from this machine; raises as the constructor does."""
        folder = Path(run)
        try:
            token = (folder / TOKEN_NAME).read_text(encoding="utf-8").strip()
            return cls(folder / SOCKET_NAME, token, timeout_s=timeout_s)
        except (FileNotFoundError, ConnectionRefusedError) as problem:  # it ended, or it was killed
            raise type(problem)(f"nobody serves {run}: start `gmiflow serve {run}`") from problem

    def act(self, observation: NDArray[np.floating]) -> NDArray[np.float32]:
        """Actions, without exploration unless the server was started with --stochastic.

        Args:
            observation: raw numbers, [O] or [rows, O]; at most ``terms.rows_limit`` rows.

        Returns:
            f32, [A] or [rows, A].

        Raises:
            ValueError: wrong shape.
            RefusedError: the server refused, for example numbers that are not finite.
            OSError: the connection is lost; TimeoutError when no answer comes. Then make a new client.
        """
        single = np.ndim(observation) == 1
        rows = np.ascontiguousarray(np.atleast_2d(observation), dtype="<f4")
        if rows.ndim != 2 or rows.shape[1] != self.terms.observation or not 1 <= len(rows) <= self.terms.rows_limit:
            size, most = self.terms.observation, self.terms.rows_limit
            shape = list(np.shape(observation))
            raise ValueError(f"expected observations of {size} numbers, [{size}] or [1 to {most}, {size}]; got {shape}")
        self._number = self._number % 0xFFFFFFFF + 1
        self._socket.sendall(protocol.frame(protocol.act(self._number, rows.tobytes())))
        number, answer = protocol.read_answer(self._receive())
        if isinstance(answer, protocol.ProtocolError):
            raise RefusedError(answer)
        if number != self._number:
            raise ConnectionError(f"expected the answer to request {self._number}, got that to {number}")
        values = np.frombuffer(answer, dtype="<f4").astype(np.float32).reshape(len(rows), self.terms.action)
        return values[0] if single else values

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> PolicyClient:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        """Hang up."""
        self.close()

    def _connect(self, address: str | tuple[str, int], timeout_s: float) -> None:
        """Connect; waits while as many others as the kernel keeps waiting are not accepted yet."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._socket.connect(address)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"too many others wait for the server at {address}") from error
                time.sleep(0.01)

    def _raise(self, body: bytes) -> None:
        _, problem = protocol.read_answer(body)
        if isinstance(problem, protocol.ProtocolError):
            raise RefusedError(problem)

    def _receive(self) -> bytes:
        """The next body."""
        (length,) = protocol.LENGTH.unpack(self._read(protocol.LENGTH.size))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the server has closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
