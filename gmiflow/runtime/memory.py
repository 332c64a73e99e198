"""How much memory the processes of a run hold: on the host from /proc, on GPUs from NVML. No torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def host_bytes(leaders: Iterable[int]) -> int:
    """Peak resident memory of processes and of what they started, shared pages counted once where the kernel tells.

    Args:
        leaders: process ids; each leads a process group, as the fork server makes it.
    """
    return sum(_peak_bytes(pid) for pid in _of_groups(set(leaders)))


def device_bytes(gpu_uuids: Sequence[str]) -> tuple[int, ...]:
    """Bytes in use on each GPU, by whatever process; empty where NVML does not answer."""
    if not gpu_uuids:
        return ()
    from gmiflow.runtime.nvml_reader import open_nvml

    reader = open_nvml(gpu_uuids)
    if reader is None:
        return ()
    try:
        return tuple(round((sample.memory_used_mib or 0.0) * 2**20) for sample in reader.gpus())
    finally:
        reader.close()


def _peak_bytes(pid: int) -> int:
    """The proportional share of a process now, and what it held more at its peak; 0 when it has ended."""
    status = _fields(pid, "status")
    resident = status.get("VmRSS", 0)
    share = _fields(pid, "smaps_rollup").get("Pss", resident)
    return 1024 * (share + max(0, status.get("VmHWM", 0) - resident))


def _fields(pid: int, file: str) -> dict[str, int]:
    """The numbers in kB of a file of /proc; empty when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return {}
    return {name: int(number) for name, number in _FIELD.findall(text)}


def _of_groups(leaders: set[int]) -> list[int]:
    """Processes of these process groups."""
    found: list[int] = []
    for name in os.listdir("/proc") if leaders and Path("/proc").is_dir() else ():
        if name.isdigit() and _group(int(name)) in leaders:
            found.append(int(name))
    return found


def _group(pid: int) -> int:
    """The process group of a process, 0 when it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
