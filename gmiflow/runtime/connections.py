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
        self._strangers: dict[socket.socket, bytes] = {}  # what each has said so far
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(str(place))
        self._listener.listen(len(members))
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def adopt(self, connection: socket.socket) -> None:
        """Listen to a GMI that has not said yet which it is."""
        connection.setblocking(False)
        self._strangers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._meet(connection))

    def tell_all(self, words: bytes) -> None:
        """Send to every GMI that has called."""
        for member in self._members.values():
            if member.connection is not None:
                with contextlib.suppress(OSError):  # it is just ending
                    member.connection.send(words)

    def hear_out(self, member: Member) -> None:
        """Read what a GMI that has ended wrote before; it may have called and failed while nobody listened."""
        if member.connection is None:
            self._accept()
            for connection in tuple(self._strangers):
                self._meet(connection)
        while member.connection is not None:
            before = len(member.buffer)
            connection = member.connection
            self._read(member)
            if member.connection is connection and len(member.buffer) == before and not _readable(connection):
                break  # somebody it started still holds the connection

    def hang_up(self, member: Member) -> None:
        """Close the connection of a GMI, if it has one."""
        if member.connection is not None:
            self._drop(member.connection)
            member.connection = None

    def close(self) -> None:
        """Hang up on all, and listen no more."""
        for member in self._members.values():
            self.hang_up(member)
        for connection in tuple(self._strangers):
            self._drop(connection)
        self._listener.close()

    def _drop(self, connection: socket.socket) -> None:
        self._strangers.pop(connection, None)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()

    def _accept(self) -> None:
        """Let in all that have called."""
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                self.adopt(connection)

    def _meet(self, connection: socket.socket) -> None:
        """Hear a connection whose first message tells which GMI it is.

        The selector may have found it readable before `hear_out` heard it: then it is a member's by now, or closed.
        """
        if connection not in self._strangers:
            return
        data = _received(connection)
        if data is None:
            self._drop(connection)
            return
        heard = self._strangers[connection] = self._strangers[connection] + data
        first, end, _ = heard.partition(b"\n")
        if not end:
            return
        member = self._members[decode(first).gmi]
        member.connection, member.buffer = connection, b""
        del self._strangers[connection]
        self._selector.modify(connection, selectors.EVENT_READ, lambda: self._read(member))
        self._take(member, heard)

    def _read(self, member: Member) -> None:
        """Hear a GMI that is known."""
        if member.connection is None:
            return
        data = _received(member.connection)
        if data is None:
            self.hang_up(member)
        else:
            self._take(member, data)

    def _take(self, member: Member, data: bytes) -> None:
        """Hand over the messages that are whole."""
        *lines, member.buffer = (member.buffer + data).split(b"\n")
        for line in lines:
            self._receive(member, decode(line))


def _received(connection: socket.socket) -> bytes | None:
    """What there is to read, maybe nothing; None when the other end has hung up."""
    try:
        return connection.recv(_CHUNK_BYTES) or None
    except BlockingIOError:
        return b""
    except ConnectionResetError:
        return None


def _readable(connection: socket.socket) -> bool:
    """Whether there is something to read right now."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except (BlockingIOError, ConnectionResetError):
        return False
