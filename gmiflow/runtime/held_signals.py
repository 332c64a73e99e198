"""Signals to a launcher wait in a socket until the supervisor reads them: nothing is cut short half-way.

What a run starts and takes down (slices, daemons, processes, places to meet) is so taken down whenever a signal comes:
before the supervisor is at work, it is the first thing that it hears, and after that nothing is left to stop.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Generator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held_signals(*, pass_on: bool) -> Generator[socket.socket | None]:
    """Keep Ctrl-C, SIGTERM and SIGHUP in a socket, as bytes that are their numbers.

    What is ignored stays ignored: `nohup` and background jobs rely on it.

    Args:
        pass_on: raise afterwards what nobody has read, for who handles signals outside of this.

    Yields:
        The socket to read from; None outside of Python's main thread, where signals go on as before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    reading, writing = socket.socketpair()
    for end in (reading, writing):
        end.setblocking(False)

    def handle(number: int, frame: FrameType | None) -> None:
        """Python writes the number to the wake-up descriptor; nothing else is to do."""

    watched = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous_wakeup = signal.set_wakeup_fd(writing.fileno())
    previous = {number: signal.signal(number, handle) for number in watched}
    try:
        yield reading
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_wakeup)
        unread = _unread(reading)
        for end in (reading, writing):
            end.close()
        if pass_on and unread:
            signal.raise_signal(unread[0])


def _unread(reading: socket.socket) -> bytes:
    try:
        return reading.recv(64)
    except BlockingIOError:
        return b""
