"""How a GMI's messages leave its process, without the GMI ever waiting for their reader."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from typing import Protocol

from gmiflow.runtime.execution.clock import StageClock
from gmiflow.runtime.launchers.contact import Contact
from gmiflow.runtime.messages import Done, Heartbeat, Message, Progress, Saved, encode
from gmiflow.runtime.rendezvous import Rendezvous

logger = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
STOP = b"stop\n"
"""What the supervisor writes to ask for a stop at the next iteration boundary."""


def call_supervisor(rendezvous: Rendezvous) -> socket.socket | None:
    """A connection to the supervisor, on this machine or another; None when programs are started by hand.

    Raises:
        OSError: when it does not listen.
    """
    if rendezvous.socket.exists():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(rendezvous.socket))
        return connection
    if rendezvous.contact.exists():
        return Contact.read(rendezvous.contact).call(gmi=True)
    return None


class Reporter(Protocol):
    """Where a GMI's messages go. Sending never waits."""

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked for a stop at the next iteration boundary."""
        ...

    def send(self, message: Message) -> None:
        """Hand over a message."""
        ...


class SocketReporter:
    """Sends to the supervisor from a thread, which also sends a heartbeat when there is nothing else."""

    def __init__(self, connection: socket.socket, gmi: int, clock: StageClock) -> None:
        """Report to the supervisor at the other end of ``connection``."""
        self.stop_requested = False
        self._gmi = gmi
        self._clock = clock
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._socket = connection
        self._sender = threading.Thread(target=self._send_all, name="reporter", daemon=True)
        self._sender.start()
        threading.Thread(target=self._listen, name="listener", daemon=True).start()

    def send(self, message: Message) -> None:
        """Queue a message."""
        self._queue.put(message)

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued, then hang up."""
        self._queue.put(None)
        self._sender.join(timeout_s)
        self._socket.close()

    def _send_all(self) -> None:
        try:
            while (message := self._next()) is not None:
                self._socket.sendall(encode(message))
        except OSError as problem:
            logger.warning("the supervisor does not listen any more: %s", problem)

    def _next(self) -> Message | None:
        try:
            return self._queue.get(timeout=HEARTBEAT_S)
        except queue.Empty:
            clock = self._clock
            stage = clock.names[clock.current]
            return Heartbeat(gmi=self._gmi, stage=stage, stage_s=clock.since_entered(), waiting=clock.is_waiting())

    def _listen(self) -> None:
        """Wait for a request to stop; the supervisor's end is one too."""
        try:
            self._socket.recv(len(STOP))
        except OSError as problem:
            logger.warning("the supervisor cannot be heard any more: %s", problem)
        self.stop_requested = True


class LogReporter:
    """For programs that are started by hand: the log is the only reader."""

    stop_requested = False

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def send(self, message: Message) -> None:
        """Log what a person wants to see."""
        match message:
            case Progress():
                mean = message.return_sum / message.episodes if message.episodes else float("nan")
                logger.info(
                    "iteration %d: %.0f env steps/s, %d episodes ended, mean return %.3f",
                    message.iteration, message.env_steps / message.iteration_s, message.episodes, mean,
                )  # fmt: skip
            case Saved():
                logger.info("checkpoint %s", message.path)
            case Done():
                elapsed = time.perf_counter() - self._start
                logger.info(
                    "done after %d iterations, %.1f s, weights %s", message.iteration, elapsed, message.checksum
                )
            case _:
                logger.debug("%s", message)

    def close(self) -> None:
        """Nothing is queued."""
