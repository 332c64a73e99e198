"""One end of what joins two machines: it stands in for a GMI of the other one, and is driven by a `Bridge`."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence

from gmiflow.runtime.comm.channel.post import Bytes, Post

__all__ = ["FarEnd"]


class _Kind(enum.IntEnum):
    """First number of a head."""

    HELLO = 1
    NEWS = 2
    DONE = 3
    BROKEN = 4


class FarEnd(ABC):
    """Says hello, exchanges news, says goodbye; nothing here waits.

    Attributes:
        gmi: id of the GMI at the other end.
        greeted: whether it has said hello.
        left: whether it has said goodbye, in order or not.
    """

    def __init__(self, post: Post) -> None:
        self.gmi = post.gmi
        self.greeted = self.left = False
        self._post = post
        self._finishing = self._said_hello = self._said_goodbye = False
        self._body = False

    @property
    def done(self) -> bool:
        """Whether both ends have said goodbye, and all that was sent has gone."""
        return self.left and self.told

    def step(self) -> bool:
        """Read what has arrived, send what is new; whether anything moved."""
        moved = not self.left and self._post.arrived
        if moved:
            self._receive()
        return (not self._said_goodbye and self._post.free and self._send()) or moved

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._body or not self._post.free

    def finish(self) -> None:
        """Say goodbye when everything has been sent."""
        self._finishing = True

    @property
    def told(self) -> bool:
        """Whether this end has said goodbye, and it has gone."""
        return self._said_goodbye and self._post.free

    def lose(self) -> None:
        """Nothing more can come from the other end: let nobody here wait for it."""
        self._peer_left(in_order=False)

    def give_up(self) -> None:
        """Say goodbye at once, because something went wrong here; not heard when something else is under way."""
        if not self._said_goodbye and self._post.free:
            self._said_goodbye = True
            self._post.send(_Kind.BROKEN)

    @abstractmethod
    def close(self) -> None:
        """Leave the memory of this machine."""

    def _greeting(self) -> Sequence[int]:
        """What the other end has to know first."""
        return ()

    @abstractmethod
    def _open(self, greeting: Sequence[int]) -> None:
        """The other end is there: join the memory of this machine in its place."""

    @abstractmethod
    def _news(self) -> tuple[Sequence[int], Bytes | None] | None:
        """What to tell the other end now, numbers and bytes; None when there is nothing new.

        The bytes must stay as they are until `_news` is called again.
        """

    @abstractmethod
    def _hear(self, words: Sequence[int]) -> Bytes | None:
        """Take the numbers of news; where to put the bytes that follow, or None when none do."""

    @abstractmethod
    def _take(self) -> None:
        """The bytes that `_hear` has made room for are there."""

    @abstractmethod
    def _peer_left(self, *, in_order: bool) -> None:
        """The other end has said goodbye."""

    def _receive(self) -> None:
        if self._body:
            self._body = False
            self._take()
            self._post.expect_head()
            return
        kind, words = self._post.head[0], self._post.head[1:]
        if kind == _Kind.HELLO:
            self._open(words)
            self.greeted = True
        elif kind == _Kind.NEWS:
            body = self._hear(words)
            if body is not None:
                self._body = True
                self._post.expect(body)
                return
        else:
            self.left = True
            self._peer_left(in_order=kind == _Kind.DONE)
            return
        self._post.expect_head()

    def _send(self) -> bool:
        if not self._said_hello:
            self._said_hello = True
            self._post.send(_Kind.HELLO, *self._greeting())
            return True
        news = self._news() if self.greeted and not self.left else None
        if news is not None:
            words, body = news
            self._post.send(_Kind.NEWS, *words, body=body)
            return True
        if self._finishing and (self.greeted or self.left):
            self._said_goodbye = True
            self._post.send(_Kind.DONE)
            return True
        return False
