"""The launcher's end of what GMIs say: a socket to call, one connection for each, lines that become messages."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from gmiflow.runtime.members import Member
from gmiflow.runtime.messages import Message, decode

_CHUNK_BYTES = 1 << 20


class Connections:
    """Listens for GMIs and to them; they never wait for it."""

    def __init__(
        self,
        place: Path,
        members: Mapping[int, Member],
        selector: selectors.BaseSelector,
        receive: Callable[[Member, Message], None],
    ) -> None:
        """Listen at ``place``; ``receive`` gets every message, with who sent it.

        Args:
            place: of a Unix socket that is not there yet.
            members: by GMI id.
            selector: whose keys' data are called when something can be read.
            receive: takes a message.
        """
        self._members = members
        self._selector = selector
        self._receive = receive
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(place))
        self._listener.listen(len(members))
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def adopt(self, connection: socket.socket) -> None:
        """Listen to a GMI that has not said yet which it is."""
        connection.setblocking(False)
        unknown = Member(next(iter(self._members.values())).plan, connection=connection)  # until it says which it is
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(unknown))

    def tell_all(self, words: bytes) -> None:
        """Send to every GMI that has called."""
        for member in self._members.values():
            if member.connection is not None:
                with contextlib.suppress(OSError):  # it is just ending
                    member.connection.send(words)

    def hear_out(self, member: Member) -> None:
        """Read what a GMI that has ended wrote before."""
        while member.connection is not None:
            before = len(member.buffer)
            connection = member.connection
            self._read(member)
            if member.connection is connection and len(member.buffer) == before and not _readable(connection):
                break  # somebody it started still holds the connection

    def hang_up(self, member: Member) -> None:
        """Close the connection of a GMI, if it has one."""
        if member.connection is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(member.connection)
            member.connection.close()
            member.connection = None

    def close(self) -> None:
        """Hang up on all, and listen no more."""
        for member in self._members.values():
            self.hang_up(member)
        self._listener.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self.adopt(connection)

    def _read(self, member: Member) -> None:
        """Hand over what a connection has to say."""
        connection = member.connection
        if connection is None:
            return
        try:
            data = connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.hang_up(member)
            return
        *lines, rest = (member.buffer + data).split(b"\n")
        member.buffer = rest
        for line in lines:
            message = decode(line)
            if member is not self._members[message.gmi]:
                member = self._introduce(message.gmi, connection, rest)
            self._receive(member, message)

    def _introduce(self, gmi: int, connection: socket.socket, rest: bytes) -> Member:
        """The connection belongs to the GMI whose first message has come."""
        member = self._members[gmi]
        member.connection = connection
        member.buffer = rest
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._read(member))
        return member


def _readable(connection: socket.socket) -> bool:
    """Whether there is something to read right now."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except (BlockingIOError, ConnectionResetError):
        return False
