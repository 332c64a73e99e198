"""What `gmiflow doctor` reports, and its checks of everything but the GPU. Nothing heavy is imported."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from gmiflow.hardware import Hardware

Status: TypeAlias = Literal["ok", "missing", "not applicable"]

SHARED_MEMORY_MIB: Final = 256
OPEN_FILES: Final = 16_384
NVIDIA_VENDOR: Final = 0x10DE
PACKAGES: Final[tuple[tuple[str, str, str], ...]] = (
    ("packages", "torch", ""),
    ("packages", "numpy", ""),
    ("packages", "safetensors", ""),
    ("packages", "tensorboard", ""),
    ("packages", "nvidia-ml-py", ""),
    ("packages", "lark", ""),
    ("packages", "jinja2", ""),
    ("packages", "cuda-bindings", "gpu"),
    ("simulators", "mujoco", ""),
    ("simulators", "mujoco-warp", "gpu"),
    ("simulators", "warp-lang", "gpu"),
    ("simulators", "gymnasium", "gym"),
    ("MPI", "mpi4py", "mpi"),
)
"""Heading, distribution name, and the extra of gmiflow that brings it; "" for what every run needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of the report.

    Attributes:
        group: heading that the line goes under.
        name: what was looked at.
        status: whether it is there.
        detail: what was found.
        mend: what to do about it; "" when there is nothing to do.
        required: whether gmiflow cannot work without it on any machine.
        gpu: whether it is of use beside a GPU only.
    """

    group: str
    name: str
    status: Status
    detail: str
    mend: str = ""
    required: bool = False
    gpu: bool = False


def without_gpu(check: Check) -> Check:
    """The line of a machine that has no GPU: what is of use beside one only is not missing there."""
    if not check.gpu or check.status != "missing":
        return check
    return dataclasses.replace(check, status="not applicable", mend="")


def has_nvidia_device(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether a device of NVIDIA is plugged in, with or without its driver."""
    for vendor in devices.glob("*/vendor"):
        with contextlib.suppress(OSError):
            if int(vendor.read_text(), 16) == NVIDIA_VENDOR:
                return True
    return False


def machine_checks(hardware: Hardware) -> tuple[Check, ...]:
    """Python, cores, shared memory, open files."""
    from gmiflow.runtime.gmi.cpus import read_topology

    nodes = len({core.node for core in read_topology().cores})
    cores = f"{hardware.cores} usable core{'s' * (hardware.cores != 1)} on {nodes} NUMA node{'s' * (nodes != 1)}"
    return (
        Check(group="machine", name="Python", status="ok", detail=f"{platform.python_version()}, {platform.system()}"),
        Check(group="machine", name="CPU", status="ok", detail=cores),
        shared_memory_check(Path("/dev/shm")),
        open_files_check(*resource.getrlimit(resource.RLIMIT_NOFILE)),
    )


def shared_memory_check(path: Path) -> Check:
    """POSIX shared memory, which GMIs exchange data through."""
    try:
        status = os.statvfs(path)
    except OSError:
        return Check(
            group="machine",
            name=str(path),
            status="missing",
            detail="there is no POSIX shared memory",
            mend="mount a tmpfs there",
            required=True,
        )
    size_mib = status.f_frsize * status.f_blocks // 2**20
    free_mib = status.f_frsize * status.f_bavail // 2**20
    enough = free_mib >= SHARED_MEMORY_MIB
    return Check(
        group="machine",
        name=str(path),
        status="ok" if enough else "missing",
        detail=f"{free_mib:,} of {size_mib:,} MiB free",
        mend="" if enough else f"give it {SHARED_MEMORY_MIB} MiB or more, for example docker run --shm-size=2g",
    )


def open_files_check(soft: int, hard: int) -> Check:
    """Open files; the launcher raises the soft limit by itself."""
    unlimited = hard == resource.RLIM_INFINITY
    enough = unlimited or hard >= OPEN_FILES
    limit = "unlimited" if unlimited else f"{hard:,}"
    return Check(
        group="machine",
        name="open files",
        status="ok" if enough else "missing",
        detail=f"limit {soft:,}, may be raised to {limit}",
        mend="" if enough else f"many MPS clients need {OPEN_FILES:,}: raise the hard limit (ulimit -Hn)",
    )


def package_checks() -> tuple[Check, ...]:
    """Python packages by their metadata, without importing them."""
    return tuple(_package(group, name, extra) for group, name, extra in PACKAGES)


def _package(group: str, name: str, extra: str) -> Check:
    required, gpu = not extra, extra == "gpu"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        mend = f"pip install 'gmiflow[{extra}]'" if extra else f"pip install {name}"
        return Check(
            group=group, name=name, status="missing", detail="not installed", mend=mend, required=required, gpu=gpu
        )
    return Check(group=group, name=name, status="ok", detail=version, required=required, gpu=gpu)


def mpi_checks() -> tuple[Check, ...]:
    """A launcher of MPI programs."""
    from gmiflow.runtime.launchers.mpi import find_mpirun

    launcher = find_mpirun()
    if launcher is None:
        mend = "pip install 'gmiflow[mpi]' brings one; only runs over several machines need it"
        return (Check(group="MPI", name="mpirun", status="missing", detail="not installed", mend=mend),)
    try:
        said = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return (Check(group="MPI", name="mpirun", status="missing", detail=str(error), mend="reinstall MPI"),)
    version = (said.splitlines() or ["version unknown"])[0]
    return (Check(group="MPI", name="mpirun", status="ok", detail=f"{version} ({launcher})"),)
