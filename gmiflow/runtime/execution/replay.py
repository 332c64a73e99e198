"""One CUDA graph per part of an iteration: captured once, replayed ever after.

A part is a function without arguments that works on static buffers only. On a device without
graphs, or for a part that may not be captured, `Part` calls the function instead, so a lowering
reads the same either way and everything but the capture itself runs in tests without a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

_log = logging.getLogger(__name__)

T = TypeVar("T")

WARM_UP = 2
"""Plain calls before the capture: kernels are compiled and the allocator has settled. They count as iterations."""


class Part(Generic[T]):
    """A function of static buffers that becomes a CUDA graph after `WARM_UP` calls.

    Attributes:
        captured: whether calls now replay a graph.
        reason: why the function will never be captured, or "".
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], T],
        *,
        stream: torch.cuda.Stream | None,
        pool: tuple[int, int] | None,
        reason: str = "",
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            name: for messages.
            function: enqueues work on the current stream; what it returns are its own static tensors.
            stream: where it runs and is captured; None without a GPU.
            pool: memory pool of the graph. Graphs that may run at the same time need different pools.
            reason: why it must not be captured, or "".
        """
        self.name = name
        self.reason = reason or ("" if stream is not None else "no CUDA device")
        self.captured = False
        self._function = function
        self._stream = stream
        self._pool = pool
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T | None = None

    def __call__(self) -> T:
        """Run on the current stream, which must be the part's own; capture first when the warm-up is over."""
        if self._graph is not None:
            self._graph.replay()
            return self._result  # type: ignore[return-value]
        if self.reason or self._calls < WARM_UP:
            self._calls += 1
            return self._function()
        self._capture()
        assert self._graph is not None
        self._graph.replay()
        return self._result  # type: ignore[return-value]

    def _capture(self) -> None:
        """Record the function's work without running it."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            self._result = self._function()
        self._graph = graph
        self.captured = True
        _log.info("captured %s as a CUDA graph", self.name)
