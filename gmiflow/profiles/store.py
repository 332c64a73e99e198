"""Where measured profiles are kept: in the user's cache, and those of workloads also beside their `.gmi` file.

Collectives have one file per machine, GPUs, driver and torch. Workloads have one per file, workflow and key
(`workload_key`); `ant.profile.json` and `ant.*.profile.json` beside `ant.gmi` can be committed and are found, too.
The compiler reads them, so a file that is damaged or cannot be read is as good as none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gmiflow.cache import user_cache
from gmiflow.hardware import Hardware
from gmiflow.ir.workflow import Workflow
from gmiflow.profiles.calibration import FORMAT, CollectiveProfile, Device, built_in

if TYPE_CHECKING:
    from gmiflow.profiles.workload import ProfileKey, WorkloadProfile

FOLDER_VARIABLE = "GMIFLOW_PROFILES"
"""Environment variable that names another folder than the user's cache."""

LOCK = ".lock"
"""In the folder: locked while a process changes a profile."""


def folder() -> Path:
    """`$GMIFLOW_PROFILES`, or `gmiflow/profiles` in the user's cache; among the temporary files for a user without."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    cache = user_cache()
    if cache is None:
        return Path(tempfile.gettempdir()) / f"gmiflow-cache-{os.getuid()}" / "profiles"
    return cache / "gmiflow" / "profiles"


def machine_key(hardware: Hardware, device: Device) -> dict[str, str | int | list[str]]:
    """What a measurement depends on; a change of any of it needs a new one."""
    from gmiflow.profiles.versions import driver, version  # not worth it where nothing was measured

    gpus = [gpu.name for gpu in hardware.gpus] if device == "cuda" else []
    return {
        "format": FORMAT,
        "machine": platform.node(),
        "cores": hardware.cores,
        "gpus": gpus,
        "driver": driver() if gpus else "",
        "torch": version("torch"),
    }


def path_of(hardware: Hardware, device: Device) -> Path:
    """The file of this machine's collectives on the CPU or its GPUs, whether it is there or not."""
    key = json.dumps(machine_key(hardware, device), sort_keys=True)
    return folder() / f"collectives-{device}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def load_collectives(hardware: Hardware, device: Device) -> CollectiveProfile | None:
    """What was measured on this machine, or None."""
    if not _calibrated(device):
        return None
    with contextlib.suppress(OSError, ValueError):
        return CollectiveProfile.from_json(path_of(hardware, device).read_text(encoding="utf-8"))
    return None


def damaged_collectives(hardware: Hardware, device: Device) -> Path | None:
    """The file of what was measured on this machine when it cannot be used, and built-in times are taken instead."""
    if not _calibrated(device) or load_collectives(hardware, device) is not None:
        return None
    path = path_of(hardware, device)
    return path if path.exists() else None


def _calibrated(device: Device) -> bool:
    """Whether anything was measured: else the key, which needs torch's metadata, is not worth making."""
    return any(folder().glob(f"collectives-{device}-*.json"))


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
    write_whole(path, profile.to_json())
    return path


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A profile of a workload and its file."""

    path: Path
    profile: WorkloadProfile


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """What is known of a workload on a machine.

    Attributes:
        key: of the workload here and now; None when no profile of it exists, since making a key takes time.
        valid: the profile with this key, or None.
        nearest: without a valid one, that with the fewest fields of the key that differ.
        differences: names of those fields, in the order of the key.
    """

    key: ProfileKey | None = None
    valid: Stored | None = None
    nearest: Stored | None = None
    differences: tuple[str, ...] = ()


def look_up(workflow: Workflow, hardware: Hardware) -> Lookup:
    """Find the profile of a workflow on this machine, whatever its size and target."""
    known = workloads_of(workflow)
    if not known:
        return Lookup()
    from gmiflow.profiles.workload_key import key_of  # sources are hashed: not worth it without a profile

    key = key_of(workflow, hardware)
    valid = [item for item in known if item.profile.key == key]
    if valid:
        latest = max(valid, key=lambda item: (item.profile.date, len(item.profile.measurements)))
        return Lookup(key=key, valid=latest)
    nearest = min(known, key=lambda item: len(item.profile.key.differences(key)))
    return Lookup(key=key, nearest=nearest, differences=nearest.profile.key.differences(key))


def workloads_of(workflow: Workflow) -> tuple[Stored, ...]:
    """All profiles of a workflow, of any machine and age: those beside its file, then those in the cache."""
    paths = (*_beside(workflow), *_cached(workflow))
    if not paths:
        return ()
    from gmiflow.profiles.workload import WorkloadProfile  # not worth it where nothing was measured

    found: list[Stored] = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            profile = WorkloadProfile.from_json(path.read_text(encoding="utf-8"))
            if profile.source == source_of(workflow):
                found.append(Stored(path=path, profile=profile))
    return tuple(found)


def source_of(workflow: Workflow) -> str:
    """What a profile says it is of: name of the file, and the workflow."""
    return f"{Path(workflow.file).name} {workflow.name}"


def workload_path(source: str, key: ProfileKey) -> Path:
    """The file of a profile in the cache, whether it is there or not."""
    text = json.dumps(asdict(key), sort_keys=True)
    return folder() / f"{_cache_name(source)}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def save_workload(profile: WorkloadProfile, path: Path | None = None) -> Path:
    """Keep a profile, in the cache unless ``path`` is given; the file. Raises OSError when it cannot be written."""
    path = path or workload_path(profile.source, profile.key)
    write_whole(path, profile.to_json())
    return path


def change_workload(
    empty: WorkloadProfile, change: Callable[[WorkloadProfile], WorkloadProfile]
) -> tuple[WorkloadProfile, Path]:
    """Change what the cache has under a key, while no other process does: of two sessions at once, none loses a point.

    Args:
        empty: profile with the key, to start from when the cache has none.
        change: gives the profile to keep.

    Returns:
        The profile that is kept now, and its file.

    Raises:
        OSError: when it cannot be written.
    """
    from gmiflow.profiles.workload import WorkloadProfile  # not worth it where nothing was measured

    path = workload_path(empty.source, empty.key)
    make_folder(path.parent)
    with _locked(path.parent / LOCK):
        known = empty
        with contextlib.suppress(OSError, ValueError):
            kept = WorkloadProfile.from_json(path.read_text(encoding="utf-8"))
            known = kept if (kept.key, kept.source) == (empty.key, empty.source) else empty
        profile = change(known)
        write_whole(path, profile.to_json())
    return profile, path


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Wait for other processes that change profiles; without effect on a file system that has no locks."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _beside(workflow: Workflow) -> Iterable[Path]:
    """Files that may be profiles of the `.gmi` file, in its folder."""
    file = Path(workflow.file)
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(file.parent) if name.endswith(".profile.json"))
        return [file.parent / name for name in names if name.startswith(f"{file.stem}.")]
    return ()


def _cached(workflow: Workflow) -> Iterable[Path]:
    return sorted(folder().glob(f"{_cache_name(source_of(workflow))}-*.json"))


def _cache_name(source: str) -> str:
    return f"workload-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody sees half of it. Raises OSError, with the path, when it cannot be written."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        make_folder(path.parent)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def require_writable(file: Path) -> None:
    """Make the folder of a file and try to write there, before work is done that would be lost. Raises OSError."""
    make_folder(file.parent)
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there; OSError says "not a directory" where a file is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
