"""Processes named so that a reused process id is never mistaken for the process that had it before."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
"""How often a waiting loop looks again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessIdentity:
    """A process for good: its id together with its start time.

    Attributes:
        pid: process id.
        start_ticks: field 22 of /proc/PID/stat: clock ticks from boot to the start of the process.
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this id now, or None when there is none (a zombie counts as none)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat[stat.rfind(")") + 2 :].split()  # the name in parentheses may hold spaces
        return None if fields[0] in "ZX" else cls(pid=pid, start_ticks=int(fields[19]))

    @classmethod
    def own(cls) -> ProcessIdentity:
        """This process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise OSError("/proc is not mounted: processes cannot be told apart")
        return identity

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # it ended in between

    def environment(self) -> dict[str, str]:
        """The variables the process was started with; empty when they cannot be read."""
        try:
            block = Path(f"/proc/{self.pid}/environ").read_bytes()
        except OSError:
            return {}
        pairs = (item.split(b"=", 1) for item in block.split(b"\0") if b"=" in item)
        return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}

    def command_line(self) -> str:
        """The words the process was started with, separated by spaces."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Look at ``condition`` until it holds; False after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True
