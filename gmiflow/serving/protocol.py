"""What travels between a policy server and its clients. No torch, no sockets.

A frame is its body's length (u32) and the body; a body is one kind (u8) and what the kind has. All numbers are
little-endian. A client says HELLO, gets WELCOME, and then sends ACTs, of which several may be under way; each is
answered by ACTIONS or REFUSED with its number, in any order. docs/guides/serving.md has the table.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
LENGTH = struct.Struct("<I")

HELLO_BYTES_LIMIT = 1024
"""A HELLO's body is at most this long: until it is accepted, a stranger can make the server keep no more."""

_HELLO = struct.Struct("<BH")
_WELCOME = struct.Struct("<BHIIII")
_ACT = struct.Struct("<BI")
_REFUSED = struct.Struct("<BIH")

ACT_HEADER_BYTES = _ACT.size


class Kind(IntEnum):
    """The first byte of a body."""

    HELLO = 1
    WELCOME = 2
    ACT = 3
    ACTIONS = 4
    REFUSED = 5


class Reason(IntEnum):
    """Why a frame was refused. Below 10 the server closes the connection; from 10 on it goes on."""

    UNAUTHENTICATED = 1
    VERSION = 2
    OVERSIZED = 3
    MALFORMED = 4
    TOO_MANY_CLIENTS = 5
    NOT_FINITE = 10
    FAILED = 11

    @property
    def final(self) -> bool:
        """Whether the connection ends."""
        return self < 10


class ProtocolError(ValueError):
    """A body that is not what it should be.

    Attributes:
        reason: what to tell the sender.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Terms:
    """What a server tells in WELCOME.

    Attributes:
        observation: numbers in one observation.
        action: numbers in one action.
        rows_limit: observations in one ACT at most.
        in_flight_limit: ACTs of one client that the server holds; it reads on when one is answered.
    """

    observation: int
    action: int
    rows_limit: int
    in_flight_limit: int


def frame(body: bytes) -> bytes:
    """A body with its length in front."""
    return LENGTH.pack(len(body)) + body


def hello(token: str) -> bytes:
    """Body of HELLO."""
    return _HELLO.pack(Kind.HELLO, VERSION) + token.encode()


def read_hello(body: bytes) -> str:
    """The token of a HELLO.

    Raises:
        ProtocolError: UNAUTHENTICATED for anything else, VERSION for another version.
    """
    if len(body) < _HELLO.size or body[0] != Kind.HELLO:
        raise ProtocolError(Reason.UNAUTHENTICATED, "the first frame must be HELLO with the token")
    _, version = _HELLO.unpack_from(body)
    if version != VERSION:
        raise ProtocolError(Reason.VERSION, f"this server speaks version {VERSION}, not {version}")
    try:
        return body[_HELLO.size :].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(Reason.UNAUTHENTICATED, "the token is not UTF-8") from error


def welcome(terms: Terms) -> bytes:
    """Body of WELCOME."""
    sizes = (terms.observation, terms.action, terms.rows_limit, terms.in_flight_limit)
    return _WELCOME.pack(Kind.WELCOME, VERSION, *sizes)


def read_welcome(body: bytes) -> Terms:
    """The terms of a WELCOME.

    Raises:
        ProtocolError: it is not one.
    """
    if len(body) != _WELCOME.size or body[0] != Kind.WELCOME:
        raise ProtocolError(Reason.MALFORMED, "the server did not say WELCOME")
    return Terms(*_WELCOME.unpack(body)[2:])


def act(number: int, observations: bytes) -> bytes:
    """Body of ACT: a number of the client's choice, and f32 [rows, observation] in rows."""
    return _ACT.pack(Kind.ACT, number) + observations


def read_act(body: bytes, terms: Terms) -> tuple[int, int]:
    """Number and rows of an ACT; the observations begin at `ACT_HEADER_BYTES`.

    Raises:
        ProtocolError: MALFORMED when it is no ACT or does not hold 1 to ``rows_limit`` whole observations.
    """
    if len(body) < _ACT.size or body[0] != Kind.ACT:
        raise ProtocolError(Reason.MALFORMED, "expected ACT")
    row_bytes = 4 * terms.observation
    rows, rest = divmod(len(body) - _ACT.size, row_bytes)
    if rest or not 1 <= rows <= terms.rows_limit:
        raise ProtocolError(
            Reason.MALFORMED,
            f"ACT holds 1 to {terms.rows_limit} observations of {row_bytes} bytes, "
            f"not {len(body) - _ACT.size} bytes in all",
        )
    return _ACT.unpack_from(body)[1], rows


def act_bytes_limit(terms: Terms) -> int:
    """Longest body of an ACT."""
    return _ACT.size + 4 * terms.observation * terms.rows_limit


def actions(number: int, values: bytes) -> bytes:
    """Body of ACTIONS: f32 [rows, action] for the ACT of this number."""
    return _ACT.pack(Kind.ACTIONS, number) + values


def refused(number: int, reason: Reason, message: str) -> bytes:
    """Body of REFUSED; number 0 when no ACT is meant."""
    return _REFUSED.pack(Kind.REFUSED, number, reason) + message.encode()


def read_answer(body: bytes) -> tuple[int, bytes | ProtocolError]:
    """Number of the ACT that is answered, and the actions or the refusal.

    Raises:
        ProtocolError: it is no answer.
    """
    if len(body) >= _ACT.size and body[0] == Kind.ACTIONS:
        return _ACT.unpack_from(body)[1], body[_ACT.size :]
    if len(body) >= _REFUSED.size and body[0] == Kind.REFUSED:
        _, number, reason = _REFUSED.unpack_from(body)
        return number, ProtocolError(Reason(reason), body[_REFUSED.size :].decode(errors="replace"))
    raise ProtocolError(Reason.MALFORMED, "the server sent something that is no answer")
