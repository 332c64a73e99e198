"""The weights' way back: a board in shared memory with two buffers, written in turn, each with its version.

A trainer writes version v into buffer ``v mod 2`` while readers take version v - 1 from the other one. A reader
looks again after copying: if the writer has begun version v + 2 meanwhile, what it has is torn, and it takes the
newer one. On a GPU the weights cross as one buffer, in one copy (`staging`).

The board also says what the trainer decides for the whole training: that a checkpoint is due, that the end has come.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from gmiflow.runtime.comm.channel.board import NewBoard, WeightsBoard, Word, open_segment
from gmiflow.runtime.comm.channel.presence import LONG_SLEEP_S, wait_for
from gmiflow.runtime.comm.channel.staging import Staging
from gmiflow.runtime.comm.channel.tensor_table import Entry, entries_of
from gmiflow.runtime.comm.shared_memory import Segment, directory
from gmiflow.runtime.failure import COLLECTIVE_TIMED_OUT, error

__all__ = [
    "Collected",
    "Ending",
    "WeightsBoard",
    "WeightsPublisher",
    "WeightsReader",
    "WeightsWriter",
]

Ending: TypeAlias = Literal["no", "finished", "stopped"]
_ENDINGS: tuple[Ending, ...] = ("no", "finished", "stopped")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a reader says with its slice of a checkpoint: its environments, and episodes since the checkpoint before."""

    env_offset: int
    num_env: int
    episodes: int
    return_sum: float


class WeightsWriter(NewBoard):
    """The first trainer's end."""

    def __init__(
        self,
        name: str,
        path: str,
        readers: tuple[int, ...],
        weights: Mapping[str, Tensor],
        *,
        start: int = 0,
        replaceable: bool = False,
        timeout_s: float,
    ) -> None:
        """Make the board with version 0 of ``weights``; readers find it only when it is whole.

        Args:
            name: of the training.
            path: name of the shared memory.
            readers: GMI ids.
            weights: what `Trainer.weights` returns.
            start: iterations made before, by an earlier run.
            replaceable: a reader that dies is started again.
            timeout_s: how long any wait may last.

        Raises:
            GMIError: E0711 when there is too little shared memory.
        """
        super().__init__(name, path, readers, entries_of(weights), start)
        for gmi, presence in zip(readers, self._reader_blocks, strict=True):
            self.watch.add(gmi, presence, replaceable=replaceable)
        self.watch.timeout_s = timeout_s
        self._copy(weights, 0)
        self.show()

    def request_checkpoint(self, iteration: int) -> None:
        """Ask every reader to write its slice of the checkpoint of ``iteration`` at its next rollout boundary."""
        self._writer.words[Word.CHECKPOINT] = iteration

    def served(self) -> bool:
        """Whether all have written it."""
        wanted = self._writer.words[Word.CHECKPOINT]
        return all(block.words[Word.SERVED] == wanted + 1 for block in self._reader_blocks)

    def collected(self) -> tuple[Collected, ...]:
        """What the readers said when they served, in order."""
        return tuple(
            Collected(
                block.words[Word.ENV_OFFSET],
                block.words[Word.NUM_ENV],
                block.words[Word.EPISODES],
                _as_float(block.words[Word.RETURN_SUM]),
            )
            for block in self._reader_blocks
        )

    def look(self, waited_s: float) -> None:
        """Raise when a reader that has not written its slice does not come; see `Watch.look`."""
        wanted = self._writer.words[Word.CHECKPOINT]
        self.watch.look(waited_s, lambda presence: presence.words[Word.SERVED] != wanted + 1)

    def await_readers(self, look: Callable[[float], None] = lambda waited_s: None) -> None:
        """Return when all readers have come.

        Args:
            look: called now and then with the seconds waited; raises when one will not come.

        Raises:
            GMIError: E0705 when one does not come.
        """

        def look_here_too(waited_s: float) -> None:
            look(waited_s)
            self.watch.look(waited_s, lambda presence: not presence.attached)

        wait_for(lambda: all(block.attached for block in self._reader_blocks), look_here_too)

    def admit_no_more(self) -> None:
        """Let no rollout begin from now on: said before the next version, it comes no later than that."""
        self._writer.words[Word.CLOSED] = 1

    def end(self, how: Ending) -> None:
        """Tell the readers that no more rollouts are wanted."""
        self._writer.words[Word.ENDED] = _ENDINGS.index(how)


class WeightsPublisher(WeightsBoard):
    """The end of a trainer that is not the first, where trainers publish in turn."""

    def __init__(self, name: str, path: str, readers: tuple[int, ...], writer: int, *, timeout_s: float) -> None:
        """Wait for the board of the training ``name``, which the trainer ``writer`` makes.

        Raises:
            GMIError: E0705 when there is none in time.
        """
        segment, entries = _open(path, len(readers), f"GMI {writer} gave no weights of {name}", timeout_s)
        super().__init__(name, segment, readers, entries)


class WeightsReader(WeightsBoard):
    """An agent's end."""

    def __init__(
        self,
        name: str,
        path: str,
        readers: tuple[int, ...],
        member: int,
        writer: int,
        *,
        device: torch.device,
        timeout_s: float,
    ) -> None:
        """Wait for the board of the training ``name`` and announce this reader, which wants weights on ``device``.

        Raises:
            GMIError: E0705 when there is none in time.
        """
        segment, entries = _open(path, len(readers), f"GMI {writer} gave no weights of {name}", timeout_s)
        super().__init__(name, segment, readers, entries)
        self.watch.timeout_s = timeout_s
        self.watch.add(writer, self._writer)
        self._own = self._reader_blocks[readers.index(member)]
        self._own.announce()
        self._own_copy = Staging(entries, device)

    def read(self) -> tuple[int, Mapping[str, Tensor]]:
        """The newest version and its weights, whole, on the reader's device; valid until the next call."""
        own = self._own_copy
        own.wait_writable()
        version = self._copy_newest(own.host.copy_)
        return version, own.to_device()

    @property
    def ended(self) -> Ending:
        """Whether the trainer wants no more, and why."""
        return _ENDINGS[self._writer.words[Word.ENDED]]

    @property
    def admits(self) -> bool:
        """Whether a rollout may begin with a version that was read before."""
        self._fence()
        return not self._writer.words[Word.CLOSED]

    @property
    def wanted_checkpoint(self) -> int | None:
        """Iteration of a checkpoint that this reader has yet to serve; None for none."""
        wanted = self._writer.words[Word.CHECKPOINT]
        return wanted if wanted >= 0 and self._own.words[Word.SERVED] != wanted + 1 else None

    def serve_checkpoint(self, iteration: int, collected: Collected) -> None:
        """Say that the slice of ``iteration`` is written."""
        words = self._own.words
        words[Word.ENV_OFFSET], words[Word.NUM_ENV] = collected.env_offset, collected.num_env
        words[Word.EPISODES], words[Word.RETURN_SUM] = collected.episodes, _as_word(collected.return_sum)
        self._fence()
        words[Word.SERVED] = iteration + 1

    @property
    def start(self) -> int:
        """Iterations made before the run that writes."""
        return self._writer.words[Word.START]

    def look(self, waited_s: float) -> None:
        """Raise when the writer is gone; see `Watch.look`."""
        self.watch.look(waited_s)

    def close(self) -> None:
        """Leave."""
        self._own.leave()
        super().close()


def _open(path: str, readers: int, missing: str, timeout_s: float) -> tuple[Segment, list[Entry]]:
    """Wait for the board and read the table of its tensors; E0705 with the text ``missing`` when it does not come."""
    file = directory() / path
    deadline = time.monotonic() + timeout_s
    while not file.exists():
        if time.monotonic() > deadline:
            raise error(COLLECTIVE_TIMED_OUT, f"{missing} within {timeout_s:g} s")
        time.sleep(LONG_SLEEP_S)
    return open_segment(path, readers)


def _as_word(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def _as_float(word: int) -> float:
    return float(struct.unpack("<d", word.to_bytes(8, "little", signed=True))[0])
