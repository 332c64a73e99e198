"""What is between the server and its client: messages that are no requests, streams that end, signals, the log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, BinaryIO, TypeVar, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import LanguageServerProtocol

_MISTAKES_OF_A_CLIENT = (JsonRpcException, json.JSONDecodeError, UnicodeDecodeError)
_LATE_CANCEL = 'Cancel notification for unknown message id "%s"'
"""What pygls logs when an editor cancels what is answered already, as editors do with every letter typed."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Protocol(LanguageServerProtocol):
    """The protocol, with an answer to every request: a client waits for it."""

    def structure_message(self, data: dict[str, Any]) -> Any:  # noqa: ANN401 - one class per message
        """Read a message; a request that has not the form of one is answered with what is wrong with it."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:  # noqa: ANN401 - also what is no message
        """Handle a message, but none before the welcome or after the goodbye, and nothing that is no message."""
        if not hasattr(message, "jsonrpc"):
            log.warning("what the client sent is no message of the protocol")
            return
        method = getattr(message, "method", None)
        refusal: JsonRpcException | None = None
        if self._shutdown:
            refusal = JsonRpcInvalidRequest("the server is shutting down")
        elif not hasattr(self, "client_capabilities"):
            refusal = JsonRpcServerNotInitialized("the first request is `initialize`")
        if refusal is None or method in (None, types.INITIALIZE, types.EXIT):
            super().handle_message(message)
        elif hasattr(message, "id"):
            self._send_response(message.id, error=refusal.to_response_error())


class EndingOutput:
    """A stream to the client. When the client no longer reads, the process ends: there is nobody to work for.

    Args:
        stream: where to write.
        clean: called before the process ends.
    """

    def __init__(self, stream: BinaryIO, clean: Callable[[], None]) -> None:
        self._stream = stream
        self._clean = clean

    def write(self, data: bytes) -> int:
        """Write all of it at once."""
        try:
            written = self._stream.write(data)
            self._stream.flush()
        except OSError:
            self._clean()
            os._exit(0)
        return written

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def end_on_signals(clean: Callable[[], None]) -> None:
    """End at once on Ctrl-C and when asked to: a thread waits for the client's next message and would go on waiting."""

    def end(number: int, _frame: FrameType | None) -> None:
        clean()
        os._exit(128 + number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end)


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a function that a thread works out. The process may end before the thread does."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not future.done():
            set_it(value)

    def work() -> None:
        try:
            set_it, value = future.set_result, cast("object", function())
        except Exception as error:
            set_it, value = future.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, set_it, value)

    threading.Thread(target=work, name="gmiflow-check", daemon=True).start()
    return await future


def log_briefly() -> None:
    """Log to stderr. A client's mistake, or a refused rename, is one line; a traceback is for our own mistakes."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.addFilter(_without_needless_traceback)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _without_needless_traceback(record: logging.LogRecord) -> bool:
    if record.msg == _LATE_CANCEL:
        return False
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, _MISTAKES_OF_A_CLIENT):
        record.msg, record.args, record.exc_info = f"not answered: {error}", (), None
    elif record.name.startswith("pygls.") and "Traceback" in record.getMessage():  # it also raises the error
        causes = [line.strip(" |") for line in record.getMessage().splitlines() if "Error: " in line]
        record.msg, record.args = f"a message cannot be read: {causes[-1] if causes else 'wrong form'}", ()
    return True
