"""One CUDA graph per part of an iteration: captured once, replayed ever after.

A part is a function without arguments that works on static buffers only. On a device without
graphs, or for a part that may not be captured, `Part` calls the function instead, so a lowering
reads the same either way and everything but the capture itself runs in tests without a GPU.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from gmiflow.api import Agent, Simulator, Trainer

_log = logging.getLogger(__name__)

T = TypeVar("T")

NO_DEVICE = "no CUDA device"
"""Why nothing is captured on the CPU."""

WARM_UP = 2
"""Plain calls before the capture: kernels are compiled and the allocator has settled. They count as iterations."""


def stream_of(device: torch.device) -> torch.cuda.Stream | None:
    """The current stream of a GPU, None on the CPU."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


def obstacle_of(stage: Simulator | Agent | Trainer, call: str) -> str:
    """Why a method of a stage cannot be captured, or ""; its class says whether it only enqueues work."""
    return "" if stage.capturable else f"{type(stage).__name__}.{call} may wait for the device (capturable is False)"


def lowering_of(reason: str, *, planned: bool) -> str:
    """How a part runs, as reported to the user: "graph", "eager" as planned, or "eager: " and the reason."""
    if not planned:
        return "eager"
    return f"eager: {reason}" if reason else "graph"


class Span:
    """When one call of a part began and ended: on its CUDA stream, or on the host's clock."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        """Begin now (on a stream: when the work enqueued so far is done)."""
        self._stream = stream
        if stream is None:
            self._start_s = time.perf_counter()
            return
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._start.record(stream)

    def close(self) -> None:
        """End now."""
        if self._stream is None:
            self._elapsed_s = time.perf_counter() - self._start_s
        else:
            self._end.record(self._stream)

    def seconds(self) -> float:
        """Length; waits for the end of the part on its stream."""
        if self._stream is None:
            return self._elapsed_s
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1000.0


BROKEN_PROMISE = (
    "it was being recorded as a CUDA graph, which `capturable = True` allows: work that waits for the device, copies "
    "from the host (torch.tensor of numbers) or has shapes that depend on data belongs into `setup`; without that "
    "attribute, or with `execution = eager`, everything runs as it is"
)
"""What is added to an error of a function that cannot be captured."""


class Part(Generic[T]):
    """A function of static buffers that becomes a CUDA graph after `WARM_UP` calls.

    Attributes:
        captured: whether calls now replay a graph.
        reason: why the function will never be captured, or "".
        span: time of the latest call; None before it, and of a part that is not timed.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], T],
        *,
        stream: torch.cuda.Stream | None,
        pool: Any = None,  # noqa: ANN401 - torch's opaque handle
        reason: str = "",
        planned: bool = True,
        settle: Callable[[], None] | None = None,
        timed: bool = True,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            name: for messages.
            function: enqueues work on the current stream; what it returns are its own static tensors.
            stream: where it runs and is captured; None without a GPU.
            pool: memory pool of the graph. Graphs that may run at the same time need different pools.
            reason: why it must not be captured, or "".
            planned: whether it is to be captured at all.
            settle: called between the capture and the first replay.
            timed: whether calls have a span. Its two events cost some microseconds: too much for a part of one step.
        """
        self.name = name
        self.reason = reason or ("" if stream is not None else NO_DEVICE)
        self.captured = False
        self.span: Span | None = None
        self._planned = planned
        self._settle = settle
        self._timed = timed
        self._function = function
        self._stream = stream
        self._pool = pool
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: T | None = None

    def __call__(self) -> T:
        """Run on the part's stream; capture first when the warm-up is over. Returns the function's result."""
        with torch.cuda.stream(self._stream):
            if self._graph is None and self._planned and not self.reason and self._calls >= WARM_UP:
                self._capture()
            self._calls += 1
            span = Span(self._stream) if self._timed else None
            if self._graph is None:
                result = self._function()
            else:
                self._graph.replay()
                result = self._result
            if span is not None:
                span.close()
        self.span = span
        return result  # type: ignore[return-value]

    def close(self) -> None:
        """Destroy the graph; no call may follow.

        A communicator of NCCL is not destroyed before the graphs that hold its kernels: its end waits for theirs.
        """
        if self._graph is None:
            return
        graph, self._graph, self._result = self._graph, None, None
        try:
            graph.reset()
        except RuntimeError as broken:  # after a fault of the device, whose memory goes with the process
            _log.warning("%s is not released in order: %s", self.name, str(broken).partition("\n")[0])

    @property
    def lowering(self) -> str:
        """How the part runs; see `lowering_of`."""
        return lowering_of(self.reason, planned=self._planned)

    def _capture(self) -> None:
        """Record the function's work without running it."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                self._result = self._function()
        except Exception as problem:
            problem.add_note(BROKEN_PROMISE)
            raise
        if self._settle is not None:
            self._settle()
        self._graph = graph
        self.captured = True
        _log.info("captured %s as a CUDA graph", self.name)
