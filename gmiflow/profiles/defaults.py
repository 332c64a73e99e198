"""What sizing starts from with a profile or without: a small module, since every `gmiflow check` loads it."""

from __future__ import annotations

from gmiflow.ir.workflow import Component, Workflow

STRATUM = 16
"""Consecutive environments whose samples are permuted together (CONTRACT, "Slice invariance")."""

MAX_SEARCHED_GMIS = 10
"""The paper's Algorithm 1 searches 10 down to 1 GMIs per GPU; a plan may be given more."""

REFERENCE = {"cpu": 256, "cuda": 4096}
"""Environments per device where the search starts, and what `num_env = auto` becomes without a profile."""

PRIOR = {"cpu": (3e-4, 5e-6, 1e-5, 1e-4), "cuda": (1.4e-3, 3e-8, 1.3e-7, 1e-4)}
"""Seconds of a step before anything is measured, Ant on two cores and on an H200 with graphs: latency, of each
environment of a GMI, of each environment of the device, of each further GMI."""


def devices_of(component: Component, index: int, workflow: Workflow) -> tuple[int, ...]:
    """Devices of one component: where `place` puts it, else all, or one each when components fill the devices."""
    placed = {device for stage in component.stages for device in stage.place or ()}
    if placed:
        return tuple(sorted(placed))
    devices = workflow.target.devices
    return (index % devices,) if len(workflow.components) >= devices > 1 else tuple(range(devices))
