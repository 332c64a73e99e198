"""Versions of what a measurement depends on, without importing or asking any of it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/version")


@functools.cache
def version(package: str) -> str:
    """Version of an installed package, "" without it; reading it takes longer than lowering a workflow."""
    import importlib.metadata  # a tenth of the time of `gmiflow check`

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def driver() -> str:
    """Version of the NVIDIA driver as its kernel module tells it, "" when it does not."""
    try:
        found = re.search(r"\d+\.\d+(\.\d+)?", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[0] if found else ""


@functools.cache
def cpu_model() -> str:
    """Model name of the processor, its architecture where the kernel does not tell."""
    import platform

    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


@functools.cache
def cuda_of_torch() -> str:
    """Version of CUDA that torch was built with, "" for a torch without."""
    from gmiflow.profiles.entry_sources import find_module  # needed for a key only

    path = find_module("torch.version", Path())
    try:
        text = path.read_text(encoding="utf-8") if path is not None else ""
    except OSError:
        text = ""
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else ""
