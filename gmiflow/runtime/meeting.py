"""Threads of GMIs that meet: one of them works for all, on the host in turn and on a GPU in order.

The first of them does the work while the others wait: always the same thread, so that what libraries keep per thread
(the handles of cuBLAS) is there when a graph is captured.

On a GPU a meeting is on the host only. Shared work is enqueued on the meeting's stream, which waits for what every
member has enqueued before; the members' streams then wait for it::

    member 0   ---- update ----.            .---- update ----
    member 1   ---- update ---.|            |.--- update ----
    meeting                   ''-> rollout -''

Between two meetings that stream is idle, so a member may read its part on its own stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from gmiflow.runtime.failure import PEER_LOST, error
from gmiflow.runtime.turn import Turn

__all__ = ["Meeting"]

Offer = TypeVar("Offer")
Outcome = TypeVar("Outcome")


class Meeting:
    """A place where the GMIs of one process meet again and again; used by a thread per GMI.

    Attributes:
        stream: where shared work is enqueued; None on the CPU.
    """

    def __init__(self, gmis: Sequence[int], turn: Turn, stream: torch.cuda.Stream | None = None) -> None:
        """Expect the GMIs ``gmis`` of the process that takes turns by ``turn``."""
        self.stream = stream
        self._turn = turn
        self._changed = threading.Condition()
        self._staying = set(gmis)
        self._offers: dict[int, tuple[Any, torch.cuda.Stream | None]] = {}
        self._outcomes: dict[int, Any] = {}
        self._leading = False

    def meet(
        self,
        gmi: int,
        offer: Offer,
        work: Callable[[Mapping[int, Offer]], Mapping[int, Outcome | Exception]],
        stream: torch.cuda.Stream | None,
    ) -> Outcome:
        """Wait until every member that stays has come, then let the first of them work for all.

        Args:
            gmi: who comes.
            offer: what it brings.
            work: from all offers, by GMI in order of id, to what each member gets; an exception is raised there.
                Members that meet pass work that does the same.
            stream: where the member's work before and after the meeting is enqueued.

        Returns:
            What the work gave for this member.
        """
        with self._turn.yielded():
            leads = self._arrive(gmi, (offer, stream))
        if leads:
            self._lead(work)
        with self._changed:
            outcome: Outcome | Exception = self._outcomes.pop(gmi)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def leave(self, gmi: int) -> None:
        """``gmi`` comes no more, and the others do not wait for it; may be called again."""
        with self._turn.mine():
            with self._changed:
                if gmi not in self._staying:
                    return
                self._staying.discard(gmi)
                self._changed.notify_all()
            if not self._staying:
                self._left()

    def _arrive(self, gmi: int, offer: tuple[Any, torch.cuda.Stream | None]) -> bool:
        """Come to the meeting; whether this thread is the one that works. Otherwise the work is done."""
        with self._changed:
            self._offers[gmi] = offer
            self._changed.notify_all()
            self._changed.wait_for(lambda: gmi in self._outcomes or self._leads(gmi))
            if gmi in self._outcomes:
                return False
            self._leading = True
            return True

    def _leads(self, gmi: int) -> bool:
        """Whether all have come and it is ``gmi`` that works."""
        return not self._leading and self._staying <= self._offers.keys() and gmi == min(self._staying)

    def _lead(self, work: Callable[[Mapping[int, Any]], Mapping[int, Any]]) -> None:
        """Work for all that came, and hand out what each gets."""
        came = sorted(self._offers.items())
        offers = {gmi: offer for gmi, (offer, _) in came}
        try:
            outcomes = self._on_stream(offers, [stream for _, (_, stream) in came], work)
        except Exception as problem:
            outcomes = _blamed(problem, list(offers))
        with self._changed:
            self._offers.clear()
            self._outcomes.update({gmi: outcomes.get(gmi) for gmi in offers})
            self._leading = False
            self._changed.notify_all()

    def _on_stream(
        self,
        offers: Mapping[int, Any],
        streams: Sequence[torch.cuda.Stream | None],
        work: Callable[[Mapping[int, Any]], Mapping[int, Any]],
    ) -> Mapping[int, Any]:
        """``work(offers)`` on the meeting's stream: after what the members' streams have, and before what they get."""
        if self.stream is None:
            return work(offers)
        own = [stream for stream in streams if stream is not None]
        for stream in own:
            self.stream.wait_stream(stream)
        with torch.cuda.stream(self.stream):
            outcomes = work(offers)
        for stream in own:
            stream.wait_stream(self.stream)
        return outcomes

    def _left(self) -> None:
        """Called when the last member has left."""


def _blamed(problem: Exception, gmis: Sequence[int]) -> dict[int, Exception]:
    """Who reports a failure of shared work: the first member; for the others it is a consequence."""
    first, *others = gmis
    lost = f"the simulator that it shares with GMI {first} failed there"
    return {first: problem} | {gmi: error(PEER_LOST, f"GMI {gmi} cannot go on: {lost}") for gmi in others}
