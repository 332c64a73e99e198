"""Dynamic batching: whatever waits when a worker is free becomes its next batch. No torch, no sockets.

Nobody waits for a batch to fill up: under little load a request is a batch of its own, and under much load batches
grow by themselves, because more has come in while the last one was computed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answer = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Observations f32 [rows, O] to actions f32 [rows, A]; each worker has its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """Observations that wait for their actions.

    Attributes:
        observations: f32 [rows, O].
        owner: who asked, for whoever delivers.
        number: the owner's number for it.
        arrived_s: on the monotonic clock.
    """

    observations: NDArray[np.float32]
    owner: Any
    number: int
    arrived_s: float = field(default_factory=time.monotonic)


Result = tuple[Request, "NDArray[np.float32] | Exception"]
"""A request with its actions f32 [rows, A], or with what went wrong."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the workers have done.

    Attributes:
        requests, rows, batches: answered, per worker in the order of the workers.
    """

    requests: tuple[int, ...]
    rows: tuple[int, ...]
    batches: tuple[int, ...]


class Batcher:
    """A queue in order of arrival, and a thread per worker that takes from it."""

    def __init__(
        self,
        answers: Sequence[Answer],
        *,
        batch_rows: int,
        deliver: Callable[[Sequence[Result]], None],
    ) -> None:
        """Start the workers.

        Args:
            answers: one per worker.
            batch_rows: rows of one batch at most; a single request may have more.
            deliver: called with the results of each batch, by the worker's thread.
        """
        self._batch_rows = batch_rows
        self._deliver = deliver
        self._waiting: deque[Request] = deque()
        self._rows = 0
        self._condition = threading.Condition()
        self._closing = False
        self._counts = [[0, 0, 0] for _ in answers]
        self._threads = [
            threading.Thread(target=self._work, args=(index, answer), name=f"worker {index}", daemon=True)
            for index, answer in enumerate(answers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_rows(self) -> int:
        """Rows that no worker has taken yet."""
        return self._rows

    def put(self, request: Request) -> None:
        """Queue a request; never waits. After `close` it is not answered."""
        with self._condition:
            self._waiting.append(request)
            self._rows += len(request.observations)
            self._condition.notify()

    def totals(self) -> Totals:
        """Counts so far."""
        requests, rows, batches = zip(*self._counts, strict=True)
        return Totals(requests=requests, rows=rows, batches=batches)

    def close(self) -> None:
        """Answer what waits, then end the workers."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, index: int, answer: Answer) -> None:
        while batch := self._take():
            results = _answered(answer, batch)
            counts = self._counts[index]
            counts[0] += len(batch)
            counts[1] += sum(len(request.observations) for request in batch)
            counts[2] += 1
            self._deliver(results)

    def _take(self) -> list[Request]:
        """The oldest requests that fit one batch; waits for the first. Empty when closing and nothing is left."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._closing)
            batch: list[Request] = []
            rows = 0
            while self._waiting and (not batch or rows + len(self._waiting[0].observations) <= self._batch_rows):
                batch.append(self._waiting.popleft())
                rows += len(batch[-1].observations)
            self._rows -= rows
            return batch


def _answered(answer: Answer, batch: list[Request]) -> list[Result]:
    """Each request with its part of the batch's actions, or all with the same failure."""
    rows = batch[0].observations if len(batch) == 1 else np.concatenate([r.observations for r in batch])
    try:
        values = answer(rows)
    except Exception as problem:
        return [(request, problem) for request in batch]
    results: list[Result] = []
    first = 0
    for request in batch:
        last = first + len(request.observations)
        results.append((request, values[first:last]))
        first = last
    return results
