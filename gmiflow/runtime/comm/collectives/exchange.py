"""Bytes between the members of a group, over any communicator that reduces host tensors.

`ipc`, `rp` and `hybrid` exchange handles with it when they start. Hot paths do not use it.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from gmiflow.api import Communicator
from gmiflow.runtime.failure import LAUNCH_FAILED, error

_WORDS = 256


class HostExchange:
    """All-gather of small messages and a barrier among some ranks of a host communicator.

    All ranks of the communicator call together, also those of other groups: the calls are collective
    over the communicator, the answers are of the group.

    Attributes:
        rank: index of this process in the group.
        size: members of the group.
    """

    def __init__(self, communicator: Communicator, ranks: tuple[int, ...] | None = None) -> None:
        """Group the given ranks of ``communicator`` (default: all); this process must be one of them."""
        self._communicator = communicator
        self._ranks = tuple(range(communicator.size)) if ranks is None else ranks
        self.rank = self._ranks.index(communicator.rank)
        self.size = len(self._ranks)

    def gather(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The JSON messages of all members, in rank order.

        Raises:
            GMIError: E0711 when a message is longer than 2 KiB; the communicator's errors.
        """
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > 8 * _WORDS:
            raise error(LAUNCH_FAILED, f"a start-up message of {len(data)} bytes is too long")
        table = torch.zeros(self._communicator.size, _WORDS, dtype=torch.int64)
        row = table[self._communicator.rank].view(torch.uint8)
        row[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._communicator.all_reduce(table.view(-1), "sum")  # every row has one contributor
        rows = [bytes(table[rank].view(torch.uint8).tolist()).rstrip(b"\0") for rank in self._ranks]
        return [json.loads(row) for row in rows]

    def barrier(self) -> None:
        """Return when all ranks of the communicator have called it."""
        self._communicator.barrier()
