"""Turns: of the GMIs that share a process, one at a time works on the device."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Turn"]


class Turn:
    """Who may enqueue work; one per process, held while a GMI's stages run and given up while it waits.

    Two things bind a whole process and would break when threads did them at the same time: recording a
    CUDA graph, around which torch synchronises the device and returns its memory; and Warp's current
    stream, which is the device's and not the thread's. Once an iteration is a few graph replays, holding
    the turn takes microseconds, while the GPU works for all GMIs side by side.
    """

    def __init__(self) -> None:
        """Free."""
        self._lock = threading.Lock()
        self._holder: int | None = None

    @property
    def held(self) -> bool:
        """Whether somebody works; a GMI that is at work without it waits for its peers."""
        return self._holder is not None

    @contextmanager
    def mine(self) -> Generator[None]:
        """Wait for the turn and hold it; a thread that holds it goes on."""
        if self._holder == threading.get_ident():
            yield
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def yielded(self) -> Generator[None]:
        """Let the others have it meanwhile, if this thread holds it: around everything that waits for them."""
        if self._holder != threading.get_ident():
            yield
            return
        self._give()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        self._lock.acquire()
        self._holder = threading.get_ident()

    def _give(self) -> None:
        self._holder = None
        self._lock.release()
