"""The board of a training's weights: what its writer and its readers share, in shared memory; see `weights`.

A sequence lock over two buffers: the writer says which version it begins and which one is whole; readers look at both.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Generator, Mapping
from typing import Final, cast

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.packer import PAGE_BYTES
from gmiflow.runtime.comm.channel.presence import BLOCK_WORDS, Presence, Watch
from gmiflow.runtime.comm.channel.staging import Staging
from gmiflow.runtime.comm.channel.tensor_table import Entry, size_of, views_of
from gmiflow.runtime.comm.shared_memory import Segment, directory, make_fence

__all__ = ["NewBoard", "WeightsBoard", "Word", "open_segment"]

_WORD_BYTES = 8


class Word:
    """Numbers of words: the first group in the writer's block, the second one in that of a reader."""

    VERSION: Final = 0
    """Readers look at it again and again, so nothing else is in its cache line."""
    BEGUN: Final = 16
    ENDED: Final = 17
    CHECKPOINT: Final = 18
    START: Final = 19
    CLOSED: Final = 20

    SERVED: Final = 0
    ENV_OFFSET: Final = 16
    NUM_ENV: Final = 17
    EPISODES: Final = 18
    RETURN_SUM: Final = 19


class WeightsBoard:
    """What writer and readers share; see `weights`.

    Attributes:
        watch: looks after the members that this one waits for.
    """

    def __init__(self, name: str, segment: Segment, readers: tuple[int, ...], entries: list[Entry]) -> None:
        self._segment = segment
        self._readers = readers
        self._fence = make_fence()
        self.watch = Watch(f"the weights of {name}", math.inf)
        blocks = (1 + len(readers)) * BLOCK_WORDS
        self._view = memoryview(segment.memory)[: blocks * _WORD_BYTES]
        words = self._view.cast("q")
        self._words = words
        self._writer = Presence(words, 0)
        self._reader_blocks = [Presence(words, 1 + index) for index in range(len(readers))]
        self._entries = entries
        self._staging: Staging | None = None
        first, size = _header_pages(len(readers), entries), size_of(entries)
        memory = torch.frombuffer(segment.memory, dtype=torch.uint8)
        self._buffers = [memory[start : start + size] for start in (first, first + size)]
        self._tensors = [views_of(entries, buffer) for buffer in self._buffers]

    @property
    def version(self) -> int:
        """Number of the newest whole version; the first is 0."""
        return self._writer.words[Word.VERSION]

    def publish(self, weights: Mapping[str, Tensor]) -> int:
        """Write the next version; returns its number. On a GPU waits until the copy has arrived.

        One GMI does so at a time.
        """
        version = self.version + 1
        self._copy(weights, version)
        return version

    def _copy(self, weights: Mapping[str, Tensor], version: int) -> None:
        staged = self._staged(weights)
        with self._writing(version) as buffer:
            if staged is not None:
                self._buffers[buffer].copy_(staged)
            else:
                for name, target in self._tensors[buffer].items():
                    target.copy_(weights[name])

    @contextlib.contextmanager
    def _writing(self, version: int) -> Generator[int]:
        """The number of the buffer to write ``version`` into; readers take it once that is done."""
        words = self._writer.words
        words[Word.BEGUN] = version
        self._fence()
        yield version % 2
        self._fence()
        words[Word.VERSION] = version

    def _copy_newest(self, copy: Callable[[Tensor], object]) -> int:
        """Have ``copy`` take the bytes of the newest version, whole; its number."""
        while True:
            version = self.version
            self._fence()
            copy(self._buffers[version % 2])
            self._fence()
            if self._writer.words[Word.BEGUN] < version + 2:  # else the writer has come round to this buffer meanwhile
                return version

    def _staged(self, weights: Mapping[str, Tensor]) -> Tensor | None:
        """The bytes of weights of a GPU in host memory; None for weights that are there already."""
        device = next((value.device for value in weights.values() if value.device.type == "cuda"), None)
        if device is None:
            return None
        if self._staging is None:
            self._staging = Staging(self._entries, device)
        return self._staging.to_host(weights)

    def close(self) -> None:
        """Let go of the memory."""
        self._buffers.clear()
        self._tensors.clear()
        for presence in (self._writer, *self._reader_blocks):
            presence.release()
        self._words.release()
        self._view.release()
        with contextlib.suppress(BufferError):
            self._segment.memory.close()


class NewBoard(WeightsBoard):
    """A board in the hands of who makes it: the trainer, or who mirrors the trainer's on another machine."""

    def __init__(self, name: str, path: str, readers: tuple[int, ...], entries: list[Entry], start: int) -> None:
        """Make a board for tensors that ``entries`` lay out; nobody finds it before `show`.

        Args:
            name: of the training.
            path: name of the shared memory.
            readers: GMI ids.
            entries: table of the tensors.
            start: iterations made before, by an earlier run.

        Raises:
            GMIError: E0711 when there is too little shared memory.
        """
        super().__init__(name, _make_segment(path, readers, entries), readers, entries)
        self._path = path
        self._writer.words[Word.CHECKPOINT], self._writer.words[Word.START] = -1, start

    def show(self) -> None:
        """Let the readers find it, now that it is whole."""
        self._writer.announce()
        self._segment.path.rename(directory() / self._path)
        self._segment.path = directory() / self._path

    def close(self) -> None:
        """Leave and remove the name."""
        self._segment.unlink()
        self._writer.leave()
        super().close()


def _make_segment(path: str, readers: tuple[int, ...], entries: list[Entry]) -> Segment:
    """Shared memory for a board with the table of its tensors, under a name that nobody looks for."""
    first, size = _header_pages(len(readers), entries), size_of(entries)
    segment = Segment(f"{path}.new", first + 2 * size)
    text = json.dumps(entries).encode()
    table = (1 + len(readers)) * BLOCK_WORDS * _WORD_BYTES
    segment.memory[table : table + 8 + len(text)] = len(text).to_bytes(8, "little") + text
    return segment


def open_segment(path: str, readers: int) -> tuple[Segment, list[Entry]]:
    """A board that is there, and the table of its tensors."""
    segment = Segment(path, (directory() / path).stat().st_size)
    start = (1 + readers) * BLOCK_WORDS * _WORD_BYTES
    count = int.from_bytes(segment.memory[start : start + 8], "little")
    return segment, cast("list[Entry]", json.loads(segment.memory[start + 8 : start + 8 + count]))


def _header_pages(readers: int, entries: list[Entry]) -> int:
    """Bytes before the first buffer: the words of all members, and the table of the tensors."""
    size = (1 + readers) * BLOCK_WORDS * _WORD_BYTES + 8 + len(json.dumps(entries).encode())
    return -(-size // PAGE_BYTES) * PAGE_BYTES
