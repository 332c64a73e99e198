"""Bytes between the members of a group, over any communicator that reduces host tensors.

`ipc`, `rp` and `hybrid` exchange handles with it when they start. Hot paths do not use it.
"""

from __future__ import annotations

import json
from typing import Any

import torch

from gmiflow.runtime.comm.collectives.base import Collective
from gmiflow.runtime.failure import LAUNCH_FAILED, error

_WORDS = 256


class HostExchange:
    """All-gather of small messages and a barrier among the members of a host communicator.

    Attributes:
        rank: index of this process in the group.
        size: members of the group.
    """

    def __init__(self, communicator: Collective) -> None:
        """Use a collective whose `all_reduce` takes i64 tensors on the CPU."""
        self._communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.size

    def gather(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The JSON messages of all members, in rank order.

        Raises:
            GMIError: E0711 when a message is longer than 2 KiB; the communicator's errors.
        """
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > 8 * _WORDS:
            raise error(LAUNCH_FAILED, f"a start-up message of {len(data)} bytes is too long")
        table = torch.zeros(self.size, _WORDS, dtype=torch.int64)
        row = table[self.rank].view(torch.uint8)
        row[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self._communicator.all_reduce(table.view(-1), "sum")  # every row has one contributor
        rows = [bytes(table[rank].view(torch.uint8).tolist()).rstrip(b"\0") for rank in range(self.size)]
        return [json.loads(row) for row in rows]

    def barrier(self) -> None:
        """Return when all members have called it."""
        self._communicator.barrier()

    def lost_peer(self) -> int | None:
        """GMI of a member whose process has ended without leaving, or None."""
        return self._communicator.lost_peer()
