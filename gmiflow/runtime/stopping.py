"""How processes are stopped: asked by SIGTERM, then by SIGKILL, and in the end with the server that started them."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence

from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.launchers.base import ProcessServer
from gmiflow.runtime.members import Limits, Member

_NEVER = float("inf")


class Stopping:
    """Ends the processes of a run, each step when its time has come.

    Attributes:
        begun: whether processes have been told to end: what they do then is no failure.
    """

    def __init__(
        self,
        processes: Mapping[int, Sequence[Member]],
        server: ProcessServer,
        backends: Mapping[str, GMIBackend],
        limits: Limits,
    ) -> None:
        """Stop nothing yet.

        Args:
            processes: the members that share each, by the id of the first.
            server: passes signals on.
            backends: by name; they take work off a device before a process is killed.
            limits: how long to wait between the steps.
        """
        self.begun = False
        self._processes = processes
        self._server = server
        self._backends = backends
        self._limits = limits
        self._terminate_at = self._kill_at = self._abandon_at = _NEVER

    def after(self, patience_s: float) -> None:
        """Begin in so many seconds, unless it is due earlier."""
        self._terminate_at = min(self._terminate_at, time.monotonic() + patience_s)

    def begin(self) -> None:
        """SIGTERM now, SIGKILL a little later."""
        if not self.begun:
            self.begun = True
            self._kill_at = time.monotonic() + self._limits.terminate_s
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)  # a stopped process does not see SIGTERM

    def look(self, now: float) -> None:
        """Take the steps that are due."""
        if now >= self._abandon_at:
            self._abandon_at = _NEVER
            self._server.kill()  # it does not pass signals on; its processes end with it
        if now >= self._kill_at:
            self._kill_all()
        elif now >= self._terminate_at:
            self.begin()

    def _kill_all(self) -> None:
        """SIGKILL to those that ignored SIGTERM, once their work is off the device."""
        self._kill_at, self._abandon_at = _NEVER, time.monotonic() + self._limits.server_s
        for members in self._processes.values():
            if members[0].running:
                self._backends[members[0].plan.backend].quiesce(members[0].pid)
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for first, members in self._processes.items():
            if members[0].running:
                self._server.signal(first, number)
