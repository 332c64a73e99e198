"""Rollouts of several trainings at once, with the simulator that they share: called and captured like any `Part`.

At each step every member acts for itself and the simulator steps the environments of all::

    member 0   .-> act .            .-> store, act .
    member 1   |-> act |            |-> store, act |
    group      '       '-> step -->-'              '-> step --> ...

On a GPU the members' streams fork from the group's and join it again, by events alone: captured, the members are
parallel branches of one CUDA graph. Memory that a branch has allocated is used again by the same branch only, and
no branch begins before the group's stream has what the one before left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gmiflow.api import Ports
from gmiflow.runtime.execution.collector import Collector
from gmiflow.runtime.execution.replay import Part, Span
from gmiflow.runtime.execution.rollout import Rollout
from gmiflow.runtime.joint import JointGroup, JointSeat


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What a member brings to a joint rollout.

    Attributes:
        stream: where it acts; None on the CPU.
        reason: why its part must not be captured, or "".
        planned: whether it is to be captured at all.
    """

    gmi: int
    collector: Collector
    rollout: Rollout
    stream: torch.cuda.Stream | None
    reason: str
    planned: bool


class JointRollout:
    """The rollout of all members that are there; one per set of buffers."""

    def __init__(self, name: str, group: JointGroup, shares: Mapping[int, Share]) -> None:
        """Prepare for the members of the first call. Later ones have no others, and may have fewer."""
        self._group = group
        self._shares = shares  # kept: a graph goes on using the memory of members that have left
        self._present: tuple[Share, ...] = ()
        self._problems: dict[int, Exception] = {}
        self._inputs: dict[str, Tensor] = {}
        self._rows: dict[str, list[Tensor]] = {}
        reason = next((share.reason for share in shares.values() if share.reason), "")
        planned = all(share.planned for share in shares.values())
        self._part: Part[None] = Part(
            name, self._run, stream=group.stream, pool=group.pool, reason=reason, planned=planned
        )
        group.closers.append(self._part.close)

    def __call__(self, shares: Mapping[int, Share]) -> Mapping[int, Span | Exception]:
        """Collect for ``shares``; when it ran, or why a member failed, by GMI."""
        self._present = tuple(self._shares[gmi] for gmi in shares)
        self._problems = {}
        self._part()
        span = self._part.span
        assert span is not None, "a part that was called has a span"
        return {gmi: self._problems.get(gmi, span) for gmi in shares}

    @property
    def captured(self) -> bool:
        """Whether calls replay a graph."""
        return self._part.captured

    def _run(self) -> None:
        """Enqueue a whole rollout on the group's stream, which is the current one."""
        simulator, horizon = self._group.require_simulator(), self._present[0].collector.horizon
        outputs: list[dict[str, Any]] | None = None
        for step in range(horizon):
            self._each(functools.partial(self._take_and_act, step=step, outputs=outputs))
            if not self._present:
                return
            for share in self._present:
                share.collector.enter_simulator()
            outputs = self._group.split(simulator.step(self._inputs))
        self._each(functools.partial(self._take_and_finish, step=horizon, outputs=outputs))

    def _each(self, work: Callable[[Share], None]) -> None:
        """``work`` of every member, side by side on their streams; a member that fails drops out."""
        main, present = self._group.stream, self._present
        if main is not None:
            for share in present:
                assert share.stream is not None, "members of a GPU have streams"
                share.stream.wait_stream(main)
        for share in present:
            try:
                with torch.cuda.stream(share.stream):
                    work(share)
            except Exception as problem:  # of its agent: it is told in its own thread, and the others go on
                self._problems[share.gmi] = problem
        if main is not None:
            for share in present:
                assert share.stream is not None, "members of a GPU have streams"
                main.wait_stream(share.stream)
        if self._problems:
            self._present = tuple(share for share in present if share.gmi not in self._problems)

    def _take(self, share: Share, step: int, outputs: list[dict[str, Any]] | None) -> None:
        """Record what the step before ``step`` gave."""
        if outputs is not None:
            share.collector.store(share.rollout, step - 1, outputs[self._index(share)])

    def _take_and_act(self, share: Share, *, step: int, outputs: list[dict[str, Any]] | None) -> None:
        self._take(share, step, outputs)
        self._put(share, share.collector.act(share.rollout, step))

    def _take_and_finish(self, share: Share, *, step: int, outputs: list[dict[str, Any]] | None) -> None:
        self._take(share, step, outputs)
        share.collector.finish(share.rollout)

    def _put(self, share: Share, inputs: Ports) -> None:
        """Copy a member's inputs of the simulator to its rows."""
        for port, value in inputs.items():
            assert isinstance(value, Tensor), "a port that a simulator reads is a tensor"
            if port not in self._inputs:
                self._allocate(port, value)
            self._rows[port][self._index(share)].copy_(value)

    def _allocate(self, port: str, value: Tensor) -> None:
        """Make what the simulator reads at ``port``, of which ``value`` is one member's.

        That is in the first call, which is never captured. Members that have forked wait for the zeros, which else
        could come after what they put there.
        """
        count, main = len(self._group.members), self._group.stream
        with torch.cuda.stream(main):
            self._inputs[port] = value.new_zeros((count * value.shape[0], *value.shape[1:]))
        self._rows[port] = list(self._inputs[port].chunk(count))
        for share in self._present:
            if main is not None and share.stream is not None:
                share.stream.wait_stream(main)

    def _index(self, share: Share) -> int:
        return self._group.members.index(share.gmi)


class JointCollect:
    """A member's `Part` of the joint rollouts: every call meets those of the other members.

    Attributes:
        span: time of the latest call.
    """

    def __init__(self, name: str, seat: JointSeat, share: Share) -> None:
        """Prepare; members that meet give their parts one name."""
        self.name = name
        self.span: Span | None = None
        self._seat = seat
        self._share = share

    def __call__(self) -> None:
        """Collect together with the other members."""
        seat = self._seat
        self.span = seat.group.meet(seat.gmi, self._share, self._lead, self._share.stream)

    def close(self) -> None:
        """Nothing: the group closes what all share when the last member leaves."""

    @property
    def lowering(self) -> str:
        """As of `Part`, and with how many it is shared."""
        share, count = self._share, len(self._seat.group.members)
        joint = f"joint with {count - 1} other training{'s' if count > 2 else ''}" if count > 1 else "joint with none"
        if not share.planned:
            return f"eager, {joint}"
        return f"eager: {share.reason}; {joint}" if share.reason else f"graph, {joint}"

    def _lead(self, shares: Mapping[int, Share]) -> Mapping[int, Span | Exception]:
        rollout = self._seat.group.rollouts.get(self.name)
        if rollout is None:
            rollout = self._seat.group.rollouts[self.name] = JointRollout(self.name, self._seat.group, shares)
        return rollout(shares)
