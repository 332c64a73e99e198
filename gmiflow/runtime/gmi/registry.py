"""Backends by name. Each is imported when a plan uses it."""

from __future__ import annotations

from gmiflow.plan import Backend
from gmiflow.runtime.failure import NOT_SUPPORTED, error
from gmiflow.runtime.gmi.base import GMIBackend


def make_backend(name: Backend) -> GMIBackend:
    """A new backend of that name.

    Raises:
        GMIError: E0710 for one that this runtime does not have.
    """
    if name == "cpu":
        from gmiflow.runtime.gmi.cpu import CPUBackend

        return CPUBackend()
    if name == "timeshare":
        from gmiflow.runtime.gmi.timeshare import TimeshareBackend

        return TimeshareBackend()
    if name == "mps":
        from gmiflow.runtime.gmi.mps import MPSBackend

        return MPSBackend()
    if name == "mig":
        from gmiflow.runtime.gmi.mig import MIGBackend

        return MIGBackend()
    if name == "green":
        from gmiflow.runtime.gmi.green import GreenBackend

        return GreenBackend()
    raise error(NOT_SUPPORTED, f"the GMI backend {name} is not available")
