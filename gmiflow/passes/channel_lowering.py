"""Channels of a split mapping: which GMIs feed which, and what is packed together.

Part of communication lowering. A trainer has one channel, whose slots hold all its environments and which all its
agents fill; where the oldest rollout may be dropped it has one from each agent, since then they are not in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gmiflow.ir.comm import Channel
from gmiflow.ir.sized import SizedWorkflow, Slice
from gmiflow.ir.workflow import Component, Edge, TensorType
from gmiflow.passes.crossing import memory_between, step_bytes, tensors_of, why_host
from gmiflow.passes.packing import best_grouping

__all__ = ["lower_channels"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """One kind of experience: its name in the plan, its type at one step, and whether it is stacked over time."""

    name: str
    type: TensorType
    lift: bool

    def bytes(self, horizon: int, num_env: int) -> int:
        return step_bytes(self.type, num_env) * (horizon if self.lift else 1)

    def may_share(self, other: _Kind) -> bool:
        """Equal element types, and the same leading axes."""
        mine, theirs = (("env" in kind.type.shape, kind.lift, kind.type.dtype) for kind in (self, other))
        return mine == theirs


def lower_channels(sized: SizedWorkflow, component: Component) -> list[Channel]:
    """The channels of one component, in order of consumer; none where agent and trainer share their GMIs."""
    parts = [(index, part) for index, part in enumerate(sized.slices) if part.component == component.name]
    trainers = [(index, part) for index, part in parts if "trainer" in part.group and "agent" not in part.group]
    agents = [(index, part) for index, part in parts if "agent" in part.group and "trainer" not in part.group]
    kinds = _kinds(component)
    edges = _edges(component)
    depth = max((edge.depth for edge in edges), default=1)
    # Where nothing may be stale a rollout is trained on before the next one begins: there is nothing to drop.
    drops = sized.mapped.workflow.max_staleness > 0 and any(edge.on_full == "drop_oldest" for edge in edges)
    found: list[Channel] = []
    for consumer, trainer in trainers:
        feeding = [(index, part) for index, part in agents if _overlap(part, trainer)[1] > 0]
        for producers in [[item] for item in feeding] if drops else [feeding]:
            found.append(_channel(sized, component.name, kinds, producers, (consumer, trainer), depth, drops=drops))
    return found


def _channel(
    sized: SizedWorkflow,
    component: str,
    kinds: Sequence[_Kind],
    producers: Sequence[tuple[int, Slice]],
    consumer: tuple[int, Slice],
    depth: int,
    *,
    drops: bool,
) -> Channel:
    index, trainer = consumer
    offset, count = _overlap(producers[0][1], trainer) if drops else (trainer.env_offset, trainer.num_env)
    sizes = tuple(kind.bytes(sized.mapped.workflow.horizon, count) for kind in kinds)
    grouping, value = _grouping(tuple(kinds), sizes)
    source = f"{producers[0][0]}." if drops else ""
    on_full: Literal["block", "drop_oldest"] = "drop_oldest" if drops else "block"
    members = [trainer, *(part for _, part in producers)]
    return Channel(
        name=f"{component}.experience.{source}{index}",
        component=component,
        kind=memory_between(sized, members),
        producers=tuple(index for index, _ in producers),
        consumer=index,
        depth=depth,
        on_full=on_full,
        env_offset=offset,
        num_env=count,
        groups=tuple(tuple(kinds[kind].name for kind in group) for group in grouping),
        bytes=sum(sizes),
        top_mov=value,
        reason=why_host(sized, members),
    )


@lru_cache(maxsize=64)
def _grouping(kinds: tuple[_Kind, ...], sizes: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], float]:
    """As `best_grouping`; replicas and trainers ask the same again and again, and it takes a tenth of a second."""
    return best_grouping(sizes, lambda i, j: kinds[i].may_share(kinds[j]))


def _overlap(one: Slice, other: Slice) -> tuple[int, int]:
    """First environment and number of those that two slices have in common."""
    first = max(one.env_offset, other.env_offset)
    return first, min(one.env_offset + one.num_env, other.env_offset + other.num_env) - first


def _edges(component: Component) -> list[Edge]:
    trainer = component.stage("trainer")
    return [edge for edge in component.edges if trainer is not None and edge.target_stage == trainer.name]


def _kinds(component: Component) -> list[_Kind]:
    """Every kind once, in the order of the edges; names as `gmiflow.runtime` makes them."""
    found: dict[str, _Kind] = {}
    for edge in _edges(component):
        for label, kind in tensors_of(edge):
            name = label if edge.lift else f"{label}@last"
            found.setdefault(name, _Kind(name=name, type=kind, lift=edge.lift))
    return list(found.values())
