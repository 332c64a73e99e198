"""Numbers that leave the device after each iteration, without making the device wait for the host.

On a GPU they are copied to pinned memory behind the work that makes them and read one iteration
later; on the CPU they are there at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gmiflow.runtime.execution.replay import Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistics:
    """One iteration of one GMI.

    Attributes:
        episodes, return_sum, length_sum: over the episodes that ended in this iteration.
        metrics: of the trainer.
        collect_s, learn_s: device time of the two parts; on the CPU host time.
    """

    episodes: int
    return_sum: float
    length_sum: float
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    collect_s: float
    learn_s: float


@dataclass(frozen=True, slots=True)
class _Pending:
    totals: Tensor
    names: list[str]
    values: Tensor
    events: list[torch.cuda.Event]
    collect: Span | None
    learn: Span | None


class StatisticsQueue:
    """First in, first out; `depth` iterations may be on their way."""

    def __init__(self, device: torch.device) -> None:
        self.depth = 1 if device.type == "cuda" else 0
        self._pending: deque[_Pending] = deque()
        self._before = (0.0, 0.0, 0.0)

    def push(
        self,
        totals: Tensor,
        metrics: Mapping[str, Tensor],
        *,
        collect: Span | None,
        learn: Span | None,
        collect_stream: torch.cuda.Stream | None = None,
        learn_stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Start copying one iteration's numbers.

        Args:
            totals: f64 [3], running sums of `EpisodeStatistics`, written on ``collect_stream``.
            metrics: 0-d tensors, written on ``learn_stream``.
            collect: when the rollout ran.
            learn: when the update ran.
            collect_stream: None on the CPU.
            learn_stream: None on the CPU.
        """
        events: list[torch.cuda.Event] = []
        with torch.cuda.stream(collect_stream):
            host_totals = _to_host(totals, events, collect_stream)
        with torch.cuda.stream(learn_stream):
            values = list(metrics.values())
            stacked = torch.stack([value.detach().double() for value in values]) if values else totals.new_empty(0)
            host_values = _to_host(stacked, events, learn_stream)
        self._pending.append(_Pending(host_totals, list(metrics), host_values, events, collect, learn))

    def ready(self, *, flush: bool = False) -> list[Statistics]:
        """The iterations whose turn it is to be read, oldest first; with ``flush`` all of them."""
        done: list[Statistics] = []
        while len(self._pending) > (0 if flush else self.depth):
            done.append(self._read(self._pending.popleft()))
        return done

    def _read(self, pending: _Pending) -> Statistics:
        for event in pending.events:
            event.synchronize()
        totals = pending.totals.tolist()
        episodes, return_sum, length_sum = (now - then for now, then in zip(totals, self._before, strict=True))
        self._before = (totals[0], totals[1], totals[2])
        return Statistics(
            episodes=round(episodes),
            return_sum=return_sum,
            length_sum=length_sum,
            metrics=dict(zip(pending.names, pending.values.tolist(), strict=True)),
            collect_s=pending.collect.seconds() if pending.collect else 0.0,
            learn_s=pending.learn.seconds() if pending.learn else 0.0,
        )


def _to_host(value: Tensor, events: list[torch.cuda.Event], stream: torch.cuda.Stream | None) -> Tensor:
    """A copy in host memory; on a GPU it is complete when the event that this adds is."""
    if stream is None:
        return value.clone()
    host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    host.copy_(value, non_blocking=True)
    event = torch.cuda.Event(blocking=True)  # whoever waits for it sleeps: other GMIs need the core
    event.record(stream)
    events.append(event)
    return host
