"""Signals that end a session, also between two trials."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal came.

    Attributes:
        signal: its number.
    """

    def __init__(self, number: int) -> None:
        """Ended by signal ``number``."""
        super().__init__(f"signal {number}")
        self.signal = number


@contextlib.contextmanager
def signals_raise() -> Generator[None]:
    """Raise `Interrupted` where the main thread is, so that everything is taken down in order; elsewhere do nothing.

    What is ignored stays ignored. While a trial runs its supervisor handles the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    watched = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in watched}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
