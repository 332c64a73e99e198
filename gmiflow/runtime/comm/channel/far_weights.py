"""Weights between two machines: the board of the trainer's machine is mirrored on the other one, by version.

`WeightsOut` reads the board as a reader does and sends the newest version; one that was overtaken is not sent.
`WeightsIn` writes the mirror as the trainer writes the board, for all agents of its machine. What the agents write,
that they are there and have served a checkpoint, goes the other way. A version arrives before the end of the training
that came after it, and what an agent says of its slice before the word that it has served.
"""

from __future__ import annotations

import json
import time
from array import array
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from gmiflow.runtime.comm.channel.board import NewBoard, WeightsBoard, Word, open_segment
from gmiflow.runtime.comm.channel.far_end import FarEnd
from gmiflow.runtime.comm.channel.post import Bytes, Post, bytes_of, require_sendable
from gmiflow.runtime.comm.channel.presence import LIVENESS_S
from gmiflow.runtime.comm.channel.tensor_table import Entry, size_of
from gmiflow.runtime.comm.shared_memory import directory

__all__ = ["FoundBoard", "WeightsIn", "WeightsOut"]

_TABLE, _WEIGHTS, _STATE = 0, 1, 2
"""What the trainer's machine tells: the number of bytes of the table, which follow; a version, what `decided` and
`closed` say, and the bytes of the weights; the version that was sent last, and what `decided` says."""
_SAID = (Word.ENV_OFFSET, Word.NUM_ENV, Word.EPISODES, Word.RETURN_SUM)
_READER_WORDS = 3 + len(_SAID)
"""Of a reader in a message: whether it has come, whether it has left, what it has served, what it said with that."""


class FoundBoard(WeightsBoard):
    """A board that somebody else has made."""

    @classmethod
    def find(cls, name: str, path: str, readers: tuple[int, ...]) -> FoundBoard | None:
        """The board of the training ``name``, once it is there."""
        if not (directory() / path).exists():
            return None
        segment, entries = open_segment(path, len(readers))
        return cls(name, segment, readers, entries)

    @property
    def table(self) -> bytes:
        """Names, types and places of the tensors, as JSON."""
        return json.dumps(self._entries).encode()

    @property
    def size(self) -> int:
        """Bytes of one version."""
        return size_of(self._entries)

    @property
    def decided(self) -> tuple[int, int, int]:
        """What the trainer has decided: whether it has ended, the checkpoint that is due, where the run began."""
        words = self._writer.words
        found = words[Word.ENDED], words[Word.CHECKPOINT], words[Word.START]
        self._fence()
        return found

    @property
    def closed(self) -> int:
        """Whether no rollout may begin any more: to be read after a version."""
        self._fence()
        return self._writer.words[Word.CLOSED]

    def copy_newest(self, target: np.ndarray) -> int:
        """Copy the bytes of the newest version, whole, in this thread alone; its number."""
        return self._copy_newest(lambda buffer: np.copyto(target, buffer.numpy()))

    def note_reader(self, index: int, came: int, left: int, served: int, *said: int) -> None:
        """Write what reader number ``index`` says on its machine."""
        block = self._reader_blocks[index]
        if came and not block.attached:
            block.announce()
        for word, value in zip(_SAID, said, strict=True):
            block.words[word] = value
        self._fence()
        block.words[Word.SERVED] = served
        if left:
            block.leave()

    def reader_left(self, index: int) -> None:
        """Say that no more will come from reader number ``index``."""
        self._reader_blocks[index].leave()


class _Mirror(NewBoard):
    """The board on a machine without the trainer that writes it."""

    def __init__(self, name: str, path: str, readers: tuple[int, ...], entries: list[Entry], start: int) -> None:
        super().__init__(name, path, readers, entries, start)
        self._next_look_s = 0.0
        self._gone: set[int] = set()

    def write(self, version: int, weights: np.ndarray, closed: int) -> None:
        """Take over a version; see `WeightsBoard.publish` and `WeightsWriter.admit_no_more`."""
        self._writer.words[Word.CLOSED] = closed
        with self._writing(version) as buffer:
            np.copyto(self._buffers[buffer].numpy(), weights)

    def decide(self, ended: int, checkpoint: int) -> None:
        """Take over what the trainer has decided after the version that was written last."""
        self._fence()
        self._writer.words[Word.CHECKPOINT], self._writer.words[Word.ENDED] = checkpoint, ended

    def readers(self, here: Sequence[int]) -> list[int]:
        """What the readers with the numbers ``here`` say, one after the other; see `FoundBoard.note_reader`."""
        now = time.monotonic()
        if now >= self._next_look_s:
            self._next_look_s = now + LIVENESS_S
            self._gone.update(index for index in here if self._reader_blocks[index].gone)
        found: list[int] = []
        for index in here:
            block = self._reader_blocks[index]
            served = block.words[Word.SERVED]
            self._fence()
            said = (block.words[word] for word in _SAID)
            found += [block.attached, index in self._gone, served, *said]
        return found

    def leave(self) -> None:
        """Say that no more will come."""
        self._writer.leave()


class WeightsOut(FarEnd):
    """In the process of the first trainer: stands in for the agents of another machine."""

    def __init__(self, post: Post, name: str, path: str, readers: tuple[int, ...], far: tuple[int, ...]) -> None:
        """Send what the board ``path`` of the training ``name`` shows; of its ``readers``, ``far`` are over there."""
        super().__init__(post)
        self._board: FoundBoard | None = None
        self._where = (name, path, readers)
        self._far = [readers.index(gmi) for gmi in far]
        self._version = -1
        self._decided = (0, -1, 0)
        self._readers = array("q", bytes(8 * _READER_WORDS * len(far)))

    def _open(self, greeting: Sequence[int]) -> None:
        """Nothing: the trainer may not have made the board yet."""

    def _news(self) -> tuple[Sequence[int], Bytes | None] | None:
        board = self._board
        if board is None:
            return self._find()
        decided = board.decided  # before the version, so that no end is told before the last version
        if board.version > self._version:
            self._version = board.copy_newest(self._staged.numpy())
            self._decided = decided
            return (_WEIGHTS, self._version, *decided, board.closed), bytes_of(self._staged)
        if decided != self._decided:
            self._decided = decided
            return (_STATE, self._version, *decided), None
        return None

    def _find(self) -> tuple[Sequence[int], Bytes | None] | None:
        board = self._board = FoundBoard.find(*self._where)
        if board is None:
            return None
        require_sendable(f"a version of the weights of {self._where[0]}", board.size)
        self._staged = torch.zeros(board.size, dtype=torch.uint8)
        table = board.table
        return (_TABLE, len(table)), memoryview(bytearray(table))

    def _hear(self, words: Sequence[int]) -> Bytes:
        del words
        return memoryview(self._readers).cast("B")

    def _take(self) -> None:
        assert self._board is not None
        for place, index in enumerate(self._far):
            said = self._readers[place * _READER_WORDS : (place + 1) * _READER_WORDS]
            self._board.note_reader(index, *said)

    def _peer_left(self, *, in_order: bool) -> None:
        del in_order  # whoever waits for these agents waits in vain
        if self._board is not None:
            for index in self._far:
                self._board.reader_left(index)

    def close(self) -> None:
        """Let go of the memory."""
        if self._board is not None:
            self._board.close()


class WeightsIn(FarEnd):
    """In the process of the first agent of a machine: stands in for the trainer."""

    def __init__(self, post: Post, name: str, path: str, readers: tuple[int, ...], here: tuple[int, ...]) -> None:
        """Make a board ``path`` of the training ``name``; of its ``readers``, ``here`` are on this machine."""
        super().__init__(post)
        self._mirror: _Mirror | None = None
        self._shown = False
        self._where = (name, path, readers)
        self._here = [readers.index(gmi) for gmi in here]
        self._words: Sequence[int] = ()
        self._readers = array("q", bytes(8 * _READER_WORDS * len(here)))

    def _open(self, greeting: Sequence[int]) -> None:
        """Nothing: the board is made when the weights are known."""

    def _hear(self, words: Sequence[int]) -> Bytes | None:
        self._words = tuple(words)
        what = self._words[0]
        if what == _TABLE:
            self._table = bytearray(self._words[1])
            return memoryview(self._table)
        if what == _WEIGHTS:
            return bytes_of(self._arrived)
        self._decide()
        return None

    def _take(self) -> None:
        what, version = self._words[:2]
        if what == _TABLE:
            self._entries = cast("list[Entry]", json.loads(self._table))
            self._arrived = torch.zeros(size_of(self._entries), dtype=torch.uint8)
            return
        start, closed = self._words[4:6]
        if self._mirror is None:
            self._mirror = _Mirror(*self._where, self._entries, start)
        self._mirror.write(version, self._arrived.numpy(), closed)
        self._decide()
        if not self._shown:
            self._shown = True
            self._mirror.show()

    def _decide(self) -> None:
        assert self._mirror is not None
        ended, checkpoint = self._words[2:4]
        self._mirror.decide(ended, checkpoint)

    def _news(self) -> tuple[Sequence[int], Bytes | None] | None:
        if self._mirror is None:
            return None
        said = array("q", self._mirror.readers(self._here))
        if said == self._readers:
            return None
        self._readers = said
        return (len(self._here),), memoryview(said).cast("B")

    def _peer_left(self, *, in_order: bool) -> None:
        if not in_order and self._mirror is not None:
            self._mirror.leave()

    def close(self) -> None:
        """Leave, and remove the name of the board."""
        if self._mirror is not None:
            self._mirror.close()
