"""What a launch plan must say of devices: which there are, and through which memory GMIs may exchange data.

For `plan_check`. The compiler writes no other plans; one that was edited is refused before its GMIs are started.
"""

from __future__ import annotations

from collections import Counter

from gmiflow.compatibility import incompatibilities
from gmiflow.plan import Backend, ChannelPlan, CollectivePlan, GMIPlan, LaunchPlan, PlanError

__all__ = ["require_devices"]


def require_devices(plan: LaunchPlan) -> None:
    """Look through what a plan says of devices; all members of collectives and channels are GMIs of the plan.

    Raises:
        PlanError: with the JSON path of the first field that is wrong.
    """
    for gmi in plan.gmis:
        _gmi(plan, gmi, f"plan.gmis[{gmi.id}]")
    for index, group in enumerate(plan.collectives):
        _collective(group, [plan.gmis[member] for member in group.members], f"plan.collectives[{index}].kind")
    for index, channel in enumerate(plan.channels):
        members = [plan.gmis[member] for member in (*channel.producers, channel.consumer)]
        _channel(channel, members, f"plan.channels[{index}].kind")


def _gmi(plan: LaunchPlan, gmi: GMIPlan, path: str) -> None:
    count = plan.target.devices
    has = f"has {count} devices, 0 to {count - 1}" if count > 1 else "has one device, 0"
    if gmi.device >= count:
        raise PlanError(f"{path}.device: the target {has}, and GMI {gmi.id} is on device {gmi.device}")
    if (gmi.backend == "cpu") != (plan.target.device == "cpu"):
        raise PlanError(f"{path}.backend: {gmi.backend!r} is no backend of the device {plan.target.device!r}")


def _collective(group: CollectivePlan, members: list[GMIPlan], path: str) -> None:
    """The primitive can join these members."""
    on_each = Counter(gmi.device for gmi in members)
    backends: set[Backend] = {gmi.backend for gmi in members}
    for backend in sorted(backends):
        found = incompatibilities(backend, group.kind, members_per_gpu=max(on_each.values()), gpus=len(on_each))
        if found:
            raise PlanError(f"{path}: {found[0].reason}; {found[0].mend}")


def _channel(channel: ChannelPlan, members: list[GMIPlan], path: str) -> None:
    """Slots on a GPU are for processes that may map its memory."""
    if channel.kind == "host":
        return
    for gmi in members:
        if gmi.backend not in ("mps", "timeshare"):
            raise PlanError(
                f"{path}: {channel.kind!r} is memory of a GPU, and GMI {gmi.id} is {gmi.backend}; use 'host'"
            )
        if gmi.host is not None:
            raise PlanError(f"{path}: {channel.kind!r} is between processes, and GMI {gmi.id} shares one; use 'host'")
    if channel.kind == "ipc" and len({gmi.device for gmi in members}) > 1:
        raise PlanError(f"{path}: 'ipc' is memory of one GPU, and the members are on several; use 'p2p' or 'host'")
