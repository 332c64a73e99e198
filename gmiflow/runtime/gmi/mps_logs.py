"""What the logs of an MPS server and the errors of its clients say about the health of a GPU.

A fatal fault of one client hits every client of that GPU, and the server turns new ones away until all of
them have gone. The server says so in its log; the clients see CUDA errors 805 to 811. Both are read here,
as text, so that a recorded log can be replayed without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

EventKind: TypeAlias = Literal["fatal_fault", "client_inactive", "client_faulted", "device_affected"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    """One line of a server log that matters.

    Attributes:
        kind: `fatal_fault`: the server began to handle a fault. `client_inactive`: a client of the faulted
            GPU, which can only exit. `client_faulted`: a client with a sticky error. `device_affected`: index of a
            GPU as the server numbers them.
        server: process id of the server that wrote the line, 0 when the line does not say.
        subject: process id of the client, or the index of the device; 0 for `fatal_fault`.
    """

    kind: EventKind
    server: int
    subject: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientError:
    """A CUDA error that only clients of MPS see.

    Attributes:
        code: CUDA's number, 805 to 811.
        name: CUDA's name without prefix.
        meaning: one sentence.
        fault: whether the whole cohort of the GPU has to go before anything works again.
    """

    code: int
    name: str
    meaning: str
    fault: bool


CLIENT_ERRORS: Final = {
    error.code: error
    for error in (
        ClientError(code=805, name="MPS_CONNECTION_FAILED", meaning="the MPS daemon cannot be reached", fault=False),
        ClientError(code=806, name="MPS_RPC_FAILURE", meaning="the MPS server stopped answering", fault=True),
        ClientError(
            code=807, name="MPS_SERVER_NOT_READY", meaning="the MPS server is recovering from a GPU fault", fault=True
        ),
        ClientError(
            code=808, name="MPS_MAX_CLIENTS_REACHED", meaning="the GPU has no room for one more client", fault=False
        ),
        ClientError(
            code=809, name="MPS_MAX_CONNECTIONS_REACHED", meaning="the GPU has no connection left", fault=False
        ),
        ClientError(code=810, name="MPS_CLIENT_TERMINATED", meaning="the MPS server ended this client", fault=False),
        ClientError(
            code=811, name="CDP_NOT_SUPPORTED", meaning="a kernel starts kernels, which MPS cannot do", fault=False
        ),
    )
}
"""CUDA error number to what it means for a GMI."""

_PHRASES: Final = {
    805: "failed to connect to the mps control daemon",
    806: "remote procedural call between the mps server and the mps client",
    807: "mps server is not ready to accept new mps client requests",
    808: "hardware resources required to create mps client",
    809: "hardware resources required to support device connections",
    810: "mps client has been terminated by the server",
    811: "device runtime functionality is not supported",
}
"""A distinctive part of each error's text, in lower case: frameworks print the text and drop the number."""

_PREFIX = re.compile(r"^\[\S+ \S+ +(?P<role>\w+) +(?P<pid>\d+)\]\s*(?P<text>.*)$")
# The forms of older and of newer (CUDA 13) servers: {17, 1} and {PID: 17, Context ID: 1}.
_INACTIVE = re.compile(r"[Ss]tatus of client \{(?:PID: )?(\d+),[^}]*\} is INACTIVE")
_LISTED = re.compile(r"(?:Volta MPS(?: Server)?:)?\s*(\d+)\s*$")
_LISTS: Final[dict[str, EventKind]] = {
    "The following clients have a sticky error set": "client_faulted",
    "The following client process have a sticky error set": "client_faulted",
    "The following devices": "device_affected",
}


def parse_server_log(lines: Iterable[str]) -> tuple[ServerEvent, ...]:
    """The events in a server log, in order. Lines of other kinds and damaged lines are passed over."""
    events: list[ServerEvent] = []
    listing: EventKind | None = None
    for line in lines:
        match = _PREFIX.match(line.rstrip())
        server, text = (int(match["pid"]), match["text"]) if match else (0, line.strip())
        heading: EventKind | None = next((_LISTS[title] for title in _LISTS if title in text), None)
        if heading:
            listing = heading
        elif listing and (item := _LISTED.fullmatch(text)):
            events.append(ServerEvent(kind=listing, server=server, subject=int(item[1])))
        elif "Server is handling a fatal GPU error" in text:
            listing = None
            events.append(ServerEvent(kind="fatal_fault", server=server))
        elif inactive := _INACTIVE.search(text):
            listing = None
            events.append(ServerEvent(kind="client_inactive", server=server, subject=int(inactive[1])))
        else:
            listing = None
    return tuple(events)


def client_error(text: str) -> ClientError | None:
    """The MPS error that a client's output ends with, or None.

    Args:
        text: the last lines of the client's log or of its exception.

    CUDA's own name, its English text, or "error 8xx" each count; the last one mentioned wins.
    """
    lowered = text.lower()
    best: tuple[int, int] | None = None
    for code, error in CLIENT_ERRORS.items():
        camel = error.name.replace("_", "").lower()
        places = [lowered.rfind(mark) for mark in (_PHRASES[code], error.name.lower(), "cudaerror" + camel)]
        places += [match.start() for match in re.finditer(rf"error\W{{1,4}}(?:code\W{{1,2}})?{code}\b", lowered)]
        place = max(places)
        if place >= 0 and (best is None or place > best[0]):
            best = (place, code)
    return CLIENT_ERRORS[best[1]] if best else None


def is_out_of_memory(text: str) -> bool:
    """Whether a client's output says that an allocation on the GPU failed."""
    lowered = text.lower()
    marks = ("cuda out of memory", "cudaerrormemoryallocation", "cuda_error_out_of_memory", "torch.outofmemoryerror")
    return any(mark in lowered for mark in marks)


class LogTail:
    """Reads what was appended to a log since the last look; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of ``path``."""
        self._path = path
        self._offset = 0

    def events(self) -> tuple[ServerEvent, ...]:
        """Events in the complete lines that are new since the last call."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._offset)
                fresh = log.read()
        except FileNotFoundError:
            return ()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        return parse_server_log(whole.decode(errors="replace").splitlines())
