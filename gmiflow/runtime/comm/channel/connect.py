"""How a GMI joins its channels."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from gmiflow.plan import ChannelPlan
from gmiflow.runtime.comm.channel.dispenser import Dispenser
from gmiflow.runtime.comm.channel.migrator import Link
from gmiflow.runtime.comm.channel.packer import Memory, SlotLayout
from gmiflow.runtime.comm.channel.ring import Ring, RingShape
from gmiflow.runtime.comm.channel.steps import step_kinds
from gmiflow.runtime.program import Program
from gmiflow.runtime.rendezvous import Rendezvous

if TYPE_CHECKING:  # it needs a driver
    from gmiflow.runtime.comm.channel.device import DeviceSlots

__all__ = ["open_link", "open_links", "weights_path"]


def open_links(
    program: Program, rendezvous: Rendezvous, device: torch.device, timeout_s: float, stack: contextlib.ExitStack
) -> tuple[Link, ...]:
    """Join all channels of a GMI, in the order of the plan; waits for nobody but the owner of slots on a GPU.

    Args:
        program: of the GMI.
        rendezvous: names the shared memory.
        device: of the GMI.
        timeout_s: how long any wait may last.
        stack: closes them when joining fails.

    Raises:
        GMIError: E0704, E0705, E0710, E0711.
    """
    links: list[Link] = []
    own = program.gmi.id
    for plan in (channel for channel in program.channels if own == channel.consumer or own in channel.producers):
        links.append(open_link(plan, program, own, rendezvous.segment(plan.name), device, timeout_s, stack))
    return tuple(links)


def weights_path(rendezvous: Rendezvous, training: str) -> str:
    """Name of the shared memory of the weights of a training."""
    return rendezvous.segment(f"{training}.weights")


def open_link(
    plan: ChannelPlan,
    program: Program,
    member: int,
    segment: str,
    device: torch.device,
    timeout_s: float,
    stack: contextlib.ExitStack,
) -> Link:
    """Join one channel of a training as ``member``; see `open_links`.

    Args:
        plan: of the channel.
        program: of a GMI of the training.
        member: GMI id: the consumer, or a producer.
        segment: name of the shared memory.
        device: of the member.
        timeout_s: how long any wait may last.
        stack: closes it.
    """
    training = program.training
    steps = plan.carries == "step"
    kinds = step_kinds(training) if steps else Dispenser(training).kinds
    layout = SlotLayout(kinds, plan.groups, horizon=1 if steps else training.horizon, num_env=plan.num_env)
    shape = RingShape(
        name=plan.name,
        producers=plan.producers,
        consumer=plan.consumer,
        slots=1 if steps else min(plan.depth, training.max_staleness) + 1,
        drop=plan.on_full == "drop_oldest",
        replaceable=program.replaceable,
        where="host" if plan.kind == "host" else "device",
    )
    ring = Ring(shape, member, segment, layout, timeout_s=timeout_s)
    leaving = contextlib.ExitStack()  # may be closed twice: by its user, and by `stack`
    stack.callback(leaving.close)
    leaving.callback(ring.close)
    memory: Memory = ring
    far: DeviceSlots | None = None
    if plan.kind != "host":
        from gmiflow.runtime.comm.channel.device import DeviceSlots

        memory = DeviceSlots(ring, shape.slots * layout.slot_bytes, device, consumer=member == plan.consumer)
        leaving.callback(memory.close)
        far = None if memory.near else memory
    tensors = tuple(layout.tensors(memory, slot * layout.slot_bytes) for slot in range(shape.slots))
    return Link(plan=plan, ring=ring, layout=layout, memory=memory, slots=tensors, leave=leaving.close, far=far)
