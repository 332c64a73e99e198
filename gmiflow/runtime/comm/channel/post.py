"""Messages between two GMIs of different machines, by MPI, with which the ends of a bridge speak.

A message is a head of a few numbers, and bytes after it when the head says so. Both are received into memory that is
there already. MPI keeps the order of what one process sends another one by one tag, so a head is always before its
bytes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor

from gmiflow.runtime.failure import NOT_SUPPORTED, error

if TYPE_CHECKING:
    from gmiflow.runtime.comm.mpi_world import MPIWorld

__all__ = ["HEAD_WORDS", "Bytes", "Post", "bytes_of", "require_sendable"]

HEAD_WORDS = 8
LARGEST_BYTES = 2**31 - 1
"""Of one message: MPI counts in C's int."""

Bytes: TypeAlias = memoryview


def bytes_of(tensor: Tensor) -> Bytes:
    """The bytes of a contiguous tensor of the host."""
    numbers: Any = tensor.numpy()  # memoryview takes it; stubs do not say so
    return memoryview(numbers).cast("B")


def require_sendable(what: str, size: int) -> None:
    """Raise `GMIError` E0710 for something of ``size`` bytes that is too large for one message."""
    if size > LARGEST_BYTES:
        raise error(
            NOT_SUPPORTED,
            f"{what} has {size / 2**30:.1f} GiB, and between machines at most 2 GiB go at once",
            "use a smaller `horizon` or more agents, or one machine",
        )


class Post:
    """One way to a GMI of another machine and back; one message at a time goes either way.

    Attributes:
        gmi: id of the other one.
    """

    def __init__(self, world: MPIWorld, gmi: int, tag: int) -> None:
        """Open the way by ``tag``, which the other one uses too; the first head is awaited at once."""
        self.gmi = gmi
        self._world, self._tag = world, tag
        self._sent_head, self._read_head = (array("q", bytes(8 * HEAD_WORDS)) for _ in range(2))
        self._outgoing: list[Any] = []
        self._incoming: Any = None
        self.expect_head()

    @property
    def free(self) -> bool:
        """Whether the message before is on its way and its memory may be written again."""
        self._outgoing = [request for request in self._outgoing if not self._world.complete(request)]
        return not self._outgoing

    def send(self, *words: int, body: Bytes | None = None) -> None:
        """Send a head of at most `HEAD_WORDS` numbers, and ``body`` after it; only when `free`."""
        head = memoryview(self._sent_head)
        for index, word in enumerate(words):
            head[index] = word
        for part in (head.cast("B"), *([] if body is None else [body])):
            self._outgoing.append(self._world.send(self.gmi, self._tag, part))

    def expect_head(self) -> None:
        """Await the next head."""
        self.expect(memoryview(self._read_head).cast("B"))

    def expect(self, body: Bytes) -> None:
        """Await the bytes that a head has announced."""
        self._incoming = self._world.receive(self.gmi, self._tag, body)

    @property
    def arrived(self) -> bool:
        """Whether what is awaited is there."""
        return self._world.complete(self._incoming)

    @property
    def head(self) -> array[int]:
        """The head that has arrived."""
        return self._read_head
