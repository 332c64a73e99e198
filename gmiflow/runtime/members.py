"""What the supervisor knows of each GMI, and how it judges silence and endings."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gmiflow.plan import GMIPlan
from gmiflow.runtime.linux import RUNNABLE
from gmiflow.runtime.messages import Done, Ready

_LOG_LINES = 30
_LOG_BYTES = 16384


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How long the supervisor is patient.

    Attributes:
        silence_s: a GMI that says nothing for so long and uses no processor time has stalled.
            (Heartbeats come from a thread, so a long compilation is not silence.)
        busy_silence_s: the same for one that does use processor time: a library may keep the
            interpreter from running other threads.
        consequence_s: when a GMI reports that a peer is missing, how long to wait for the peer's own story (its end
            ends the wait).
        interrupt_s: how long a run that was sent SIGTERM or SIGHUP may take to the end of its iteration and its
            checkpoint.
        terminate_s: between SIGTERM and SIGKILL of a GMI.
        collective_s: how long a GMI waits for a peer in a collective.
        start_s: until the fork server has loaded torch and forked every GMI.
        slow_s: a call of a stage that takes longer is mentioned.
        stuck_s: a call of a stage that takes longer counts as hanging.
        server_s: between SIGKILL to the GMIs and SIGKILL to the server that should have passed it on.
    """

    silence_s: float = 10.0
    busy_silence_s: float = 180.0
    consequence_s: float = 5.0
    interrupt_s: float = 20.0
    terminate_s: float = 2.0
    collective_s: float = 300.0
    start_s: float = 300.0
    slow_s: float = 60.0
    stuck_s: float = 900.0
    server_s: float = 5.0

    @property
    def replaced_s(self) -> float:
        """As ``stuck_s``, of a GMI that another replaces: half the time that others wait for it."""
        return min(self.stuck_s, self.collective_s / 2)


@dataclass
class Member:
    """What is known of one GMI.

    Attributes:
        pid: 0 until the fork server has started it.
        buffer: the beginning of a message whose end has not arrived.
        heard: when the last message arrived.
        ticks: processor time when it had been silent for a while; -1 while it talks.
        failed: it has told its failure, or was found silent.
        slow: the call of a stage that it is in has been mentioned as slow.
        slice: the proof of its slice.
        spawned: when it was started again in place of a lost one; 0.0 for the first.
        replaced: how often it was.
        hanging: how it hangs, once it has been killed so that another can take its place.
    """

    plan: GMIPlan
    pid: int = 0
    running: bool = False
    connection: socket.socket | None = None
    buffer: bytes = b""
    heard: float = 0.0
    ticks: int = -1
    ready: Ready | None = None
    done: Done | None = None
    failed: bool = False
    slow: bool = False
    slice: dict[str, object] = field(default_factory=dict[str, object])
    spawned: float = 0.0
    replaced: int = 0
    hanging: str = ""

    def start_again(self, now: float) -> None:
        """Forget the process that was lost; another one takes its place."""
        self.pid, self.running, self.buffer = 0, True, b""
        self.heard = self.spawned = now
        self.ticks = -1
        self.ready = self.done = None
        self.failed = self.slow = False
        self.hanging = ""
        self.replaced += 1


def judge_silence(
    member: Member, silent_s: float, limits: Limits, look: Callable[[], tuple[str, int] | None]
) -> str | None:
    """What is wrong with a GMI that has said nothing for ``silent_s`` seconds; None when nothing is.

    Notes the processor time that it has used when half the patience is over, and compares later; ``look``
    finds out its state and that time. Who could run and gets no processor, on a machine with too much to do, is
    not idle.
    """
    if silent_s < limits.silence_s / 2:
        return None
    looked = look()
    if looked is None:
        return None
    state, ticks = looked
    if member.ticks < 0:
        member.ticks = ticks
    stopped = state in "Tt"
    idle = stopped or (state != RUNNABLE and ticks == member.ticks)
    if silent_s < (limits.silence_s if idle else limits.busy_silence_s):
        return None
    return "is stopped" if stopped else "gave no sign of life"


def ending(status: int) -> str:
    """How a process ended, by its exit status; negative means a signal."""
    if status >= 0:
        return f"ended with status {status}"
    named = -status in {known.value for known in signal.Signals}
    return f"killed by {signal.Signals(-status).name if named else f'signal {-status}'}"


def was(ended: str) -> str:
    """`ending` as a predicate: "ended with status 3" or "was killed by SIGKILL"."""
    return f"was {ended}" if ended.startswith("killed") else ended


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log file; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-_LOG_LINES:])


def integers(value: object) -> list[int]:
    """The whole numbers of a list that came as JSON."""
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []  # type: ignore[reportUnknownVariableType]
