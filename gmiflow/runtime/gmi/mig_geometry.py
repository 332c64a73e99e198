"""MIG instances and profiles as NVML reports them, and the administrator's commands for a wanted geometry.

Nothing here changes a GPU: MIG mode and geometry belong to the administrator, and other jobs may use the instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from gmiflow.runtime.gmi.nvml import handle_of, optional, session, text


@dataclass(frozen=True, kw_only=True, slots=True)
class MIGProfile:
    """A size that a GPU can be cut into.

    Attributes:
        id: number that nvidia-smi takes.
        name: for example "1g.18gb".
        sm_count, memory_mib: of one instance.
        slices: compute slices of one instance.
        most: how many fit on an empty GPU.
    """

    id: int
    name: str
    sm_count: int
    memory_mib: int
    slices: int
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MIGInstance:
    """An instance that exists.

    Attributes:
        uuid: "MIG-...", for CUDA_VISIBLE_DEVICES.
        gpu_uuid: of the physical GPU.
        sm_count, memory_mib, slices: its size.
    """

    uuid: str
    gpu_uuid: str
    sm_count: int
    memory_mib: int
    slices: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MIGState:
    """MIG on one physical GPU.

    Attributes:
        index: NVML's number of the GPU.
        supported, enabled: whether the GPU knows MIG, and whether the mode is on.
        instances: those that exist, in NVML's order.
        profiles: those that the GPU offers, smallest first; empty where NVML does not list them.
    """

    index: int
    uuid: str
    supported: bool
    enabled: bool
    instances: tuple[MIGInstance, ...] = ()
    profiles: tuple[MIGProfile, ...] = ()

    @property
    def slices(self) -> int:
        """Compute slices of the whole GPU; 0 when unknown."""
        return max((profile.slices for profile in self.profiles), default=0)


def read_mig(gpu_uuid: str) -> MIGState | None:
    """MIG on one GPU, or None without a driver."""
    with session() as present:
        if not present:
            return None
        handle = handle_of(gpu_uuid)
        index = int(pynvml.nvmlDeviceGetIndex(handle))
        mode = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle))
        if mode is None:
            return MIGState(index=index, uuid=gpu_uuid, supported=False, enabled=False)
        enabled = mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        return MIGState(
            index=index,
            uuid=gpu_uuid,
            supported=True,
            enabled=enabled,
            instances=_instances(handle, gpu_uuid) if enabled else (),
            profiles=_profiles(handle),
        )


def mig_sm_count(uuid: str) -> int:
    """SMs of one MIG instance; 0 when NVML does not say."""
    with session() as present:
        attributes = optional(lambda: pynvml.nvmlDeviceGetAttributes(handle_of(uuid))) if present else None
        return int(attributes.multiprocessorCount) if attributes else 0


def geometry_problem(state: MIGState, wanted: Sequence[str]) -> str | None:
    """Why a GPU cannot be cut into these profiles, or None when nothing speaks against it.

    Placement rules beyond the number of slices are the driver's; nvidia-smi reports them.
    """
    offered = {profile.name: profile for profile in state.profiles}
    if unknown := sorted(set(wanted) - offered.keys()):
        return f"the GPU has no profile {unknown[0]}: it offers {', '.join(offered) or 'none'}"
    for name, count in Counter(wanted).items():
        if count > offered[name].most:
            return f"{count} instances of {name}, but at most {offered[name].most} fit"
    slices = sum(offered[name].slices for name in wanted)
    return f"{slices} slices, but the GPU has {state.slices}" if slices > state.slices else None


def geometry_commands(state: MIGState, wanted: Sequence[str]) -> tuple[str, ...]:
    """What an administrator types to cut a GPU into ``wanted`` profiles, in order.

    Raises:
        ValueError: with `geometry_problem`'s sentence.
    """
    if problem := geometry_problem(state, wanted):
        raise ValueError(problem)
    ids = {profile.name: profile.id for profile in state.profiles}
    commands = [] if state.enabled else [f"nvidia-smi -i {state.index} -mig 1"]
    if state.instances:
        commands += [f"nvidia-smi mig -i {state.index} -dci", f"nvidia-smi mig -i {state.index} -dgi"]
    listed = ",".join(str(ids[name]) for name in wanted)
    return (*commands, f"nvidia-smi mig -i {state.index} -cgi {listed} -C")


def even_geometry(state: MIGState, gmis: int, memory_mib: int = 0) -> tuple[str, ...]:
    """The largest profile of which ``gmis`` instances fit, ``gmis`` times; empty when there is none.

    Args:
        state: the GPU.
        gmis: instances wanted.
        memory_mib: what each needs at least.
    """
    fitting = [
        profile
        for profile in state.profiles
        if profile.most >= gmis and profile.slices * gmis <= state.slices and profile.memory_mib >= memory_mib
    ]
    if not fitting:
        return ()
    best = max(fitting, key=lambda profile: (profile.sm_count, profile.memory_mib))
    return (best.name,) * gmis


def _instances(handle: Any, gpu_uuid: str) -> tuple[MIGInstance, ...]:  # noqa: ANN401 - an opaque handle
    found: list[MIGInstance] = []
    for index in range(optional(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        instance = optional(lambda index=index: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        if instance is None:  # a free place: NVML numbers the places, not the instances
            continue
        attributes = pynvml.nvmlDeviceGetAttributes(instance)
        found.append(
            MIGInstance(
                uuid=text(pynvml.nvmlDeviceGetUUID(instance)),
                gpu_uuid=gpu_uuid,
                sm_count=int(attributes.multiprocessorCount),
                memory_mib=int(attributes.memorySizeMB),
                slices=int(attributes.gpuInstanceSliceCount),
            )
        )
    return tuple(found)


def _profiles(handle: Any) -> tuple[MIGProfile, ...]:  # noqa: ANN401 - an opaque handle
    found: list[MIGProfile] = []
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = optional(lambda number=number: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number))
        if info is None or info.instanceCount == 0:
            continue
        name = text(info.name).removeprefix("MIG ")
        found.append(
            MIGProfile(
                id=int(info.id),
                name=name or f"{info.sliceCount}g.{round(int(info.memorySizeMB) / 1024)}gb",
                sm_count=int(info.multiprocessorCount),
                memory_mib=int(info.memorySizeMB),
                slices=int(info.sliceCount),
                most=int(info.instanceCount),
            )
        )
    return tuple(sorted(found, key=lambda profile: (profile.slices, profile.memory_mib, profile.id)))
