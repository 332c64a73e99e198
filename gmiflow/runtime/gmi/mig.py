"""`mig`: GMIs in existing MIG instances, one each: SMs, memory and faults are separate in hardware.

The backend never changes MIG mode or geometry. When the instances do not fit the plan, the error lists the commands
that an administrator would run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gmiflow.plan import Backend, GMIPlan
from gmiflow.runtime.failure import LAUNCH_FAILED, SLICE_UNPROVEN, GMIError, RuntimeFailure, error
from gmiflow.runtime.gmi.base import GMIBackend
from gmiflow.runtime.gmi.gpu import memory_failure, planned_gpus, visible_sms
from gmiflow.runtime.gmi.mig_geometry import (
    MIGInstance,
    MIGState,
    even_geometry,
    geometry_commands,
    mig_sm_count,
    read_mig,
)

_ROUNDING = 0.005
"""Plans round shares: 0.142 counts as one seventh."""


class MIGBackend(GMIBackend):
    """One GMI per MIG instance."""

    name: ClassVar[Backend] = "mig"

    def __init__(self) -> None:
        """Without instances until `prepare`."""
        self._chosen: dict[int, MIGInstance] = {}

    def prepare(self, gmis: Sequence[GMIPlan], run_dir: Path) -> None:
        """Choose an existing instance for every GMI.

        Raises:
            GMIError: E0711 with the administrator's commands when the instances do not fit.
        """
        for device, gpu in planned_gpus(gmis).items():
            members = [gmi for gmi in gmis if gmi.device == device]
            state = read_mig(gpu.uuid)
            if state is None or not state.supported:
                raise error(LAUNCH_FAILED, f"GPU {device} ({gpu.name}) has no MIG", "`backend = mps` shares it instead")
            chosen = choose_instances(members, state)
            if chosen is None:
                raise unfit(device, state, members)
            self._chosen.update(chosen)

    def environment(self, gmi: GMIPlan) -> dict[str, str]:
        """The instance; a process uses one."""
        return {"CUDA_VISIBLE_DEVICES": self._chosen[gmi.id].uuid}

    def prove(self, gmi: GMIPlan) -> dict[str, Any]:
        """The process sees as many SMs as its instance has.

        Raises:
            GMIError: E0712 when it does not.
        """
        uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        expected, seen = mig_sm_count(uuid), visible_sms()
        if not uuid.startswith("MIG-") or (expected and seen != expected):
            raise error(
                SLICE_UNPROVEN,
                f"GMI {gmi.id} sees {seen} SMs, but its MIG instance has {expected}",
                f"CUDA_VISIBLE_DEVICES is {uuid or 'empty'}",
            )
        return {"uuid": uuid, "sm_count": seen}

    def explain(self, gmi: GMIPlan, output: str) -> RuntimeFailure | None:
        """Memory that ran out."""
        return memory_failure(gmi, output)

    def release(self) -> None:
        """The instances stay: they are the administrator's."""
        self._chosen.clear()


def choose_instances(gmis: Sequence[GMIPlan], state: MIGState) -> dict[int, MIGInstance] | None:
    """Give every GMI the smallest free instance with its share of the slices and its memory, the largest GMIs first.

    Returns:
        Instance by GMI id, or None when they do not fit.
    """
    free = sorted(state.instances, key=lambda instance: (instance.slices, instance.memory_mib))
    whole = state.slices or 7
    chosen: dict[int, MIGInstance] = {}
    for gmi in sorted(gmis, key=lambda gmi: (-gmi.share, -gmi.memory_mib, gmi.id)):
        fitting = [
            instance
            for instance in free
            if instance.slices / whole >= gmi.share - _ROUNDING and instance.memory_mib >= gmi.memory_mib
        ]
        if not fitting:
            return None
        chosen[gmi.id] = fitting[0]
        free.remove(fitting[0])
    return chosen


def unfit(device: int, state: MIGState, gmis: Sequence[GMIPlan]) -> GMIError:
    """The error for instances that do not fit, with the commands for some that do."""
    sizes = ", ".join(f"{instance.slices} slices/{instance.memory_mib} MiB" for instance in state.instances)
    notes = [f"instances on GPU {device}: {sizes or 'none'}" if state.enabled else f"MIG mode is off on GPU {device}"]
    wanted = even_geometry(state, len(gmis), max((gmi.memory_mib for gmi in gmis), default=0))
    if wanted:
        notes.append("an administrator can cut it so; this ends whatever runs on the GPU:")
        notes += [f"    {command}" for command in geometry_commands(state, wanted)]
    else:
        notes.append(f"no profile of this GPU gives {len(gmis)} instances of that size")
    return error(LAUNCH_FAILED, f"the MIG instances of GPU {device} do not fit the plan's {len(gmis)} GMIs", *notes)
