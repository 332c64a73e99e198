"""Where measured profiles are kept: one file per machine, GPUs, driver and torch, in the user's cache.

The compiler reads them, so a file that is damaged or cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
from pathlib import Path

from gmiflow.hardware import Hardware
from gmiflow.profiles.calibration import FORMAT, CollectiveProfile, Device, built_in

FOLDER_VARIABLE = "GMIFLOW_PROFILES"
"""Environment variable that names another folder than the user's cache."""


_DRIVER = Path("/proc/driver/nvidia/version")


def folder() -> Path:
    """`$GMIFLOW_PROFILES`, or `gmiflow/profiles` in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "gmiflow" / "profiles"


def machine_key(hardware: Hardware, device: Device) -> dict[str, str | int | list[str]]:
    """What a measurement depends on; a change of any of it needs a new one."""
    gpus = [gpu.name for gpu in hardware.gpus] if device == "cuda" else []
    return {
        "format": FORMAT,
        "machine": platform.node(),
        "cores": hardware.cores,
        "gpus": gpus,
        "driver": _driver() if gpus else "",
        "torch": _version("torch"),
    }


def path_of(hardware: Hardware, device: Device) -> Path:
    """The file of this machine's collectives on the CPU or its GPUs, whether it is there or not."""
    key = json.dumps(machine_key(hardware, device), sort_keys=True)
    return folder() / f"collectives-{device}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def load_collectives(hardware: Hardware, device: Device) -> CollectiveProfile | None:
    """What was measured on this machine, or None."""
    if not folder().is_dir():  # nothing was measured: the key, which needs torch's metadata, is not worth making
        return None
    with contextlib.suppress(OSError, ValueError):
        return CollectiveProfile.from_json(path_of(hardware, device).read_text(encoding="utf-8"))
    return None


def collectives_for(hardware: Hardware, device: Device, gpu: str, gpus: int) -> CollectiveProfile:
    """What is known about a target: measured if it is this machine and was measured, else built in.

    Args:
        hardware: this machine.
        device: "cpu" or "cuda".
        gpu: model name of the target, "" when it names none.
        gpus: how many GPUs the target has.
    """
    present = [item for item in hardware.gpus if gpu.lower() in item.name.lower()]
    here = device == "cpu" or len(present) >= gpus
    measured = load_collectives(hardware, device) if here else None
    return measured or built_in(device, gpu or (hardware.gpus[0].name if hardware.gpus else ""))


def save_collectives(hardware: Hardware, device: Device, profile: CollectiveProfile) -> Path:
    """Keep a measurement; the file. Raises OSError when it cannot be written."""
    path = path_of(hardware, device)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(profile.to_json(), encoding="utf-8")
    fresh.replace(path)
    return path


def _driver() -> str:
    """Version of the NVIDIA driver as its kernel module tells it, "" when it does not."""
    with contextlib.suppress(OSError):
        found = re.search(r"\d+\.\d+(\.\d+)?", _DRIVER.read_text(encoding="utf-8"))
        return found[0] if found else ""
    return ""


@functools.cache
def _version(package: str) -> str:
    """Version of an installed package, "" without it; reading it takes longer than lowering a workflow."""
    import importlib.metadata  # a tenth of the time of `gmiflow check`

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
