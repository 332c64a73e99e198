"""A private MPS daemon: started for one job and one physical GPU, recorded, stopped, and cleaned up after a crash.

Every daemon has a directory of its own under `daemons_root()`, with a record of who started it. Only the process that
started a daemon stops it; the daemon of a process that died without doing so is stopped by the next job of the same
user on the same machine, after its identity was verified. The directory is short: its sockets are AF_UNIX ones.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gmiflow.runtime.gmi.mps_control import BINARY, MPSControl, MPSControlError
from gmiflow.runtime.gmi.process import ProcessIdentity, wait_until

logger = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 15.0
QUIT_TIMEOUT_S: Final = 10.0
FORCE_TIMEOUT_S: Final = 5.0
OPEN_FILES_WANTED: Final = 16_384
_SOCKET_PATH_LIMIT: Final = 108
_LONGEST_SOCKET: Final = len("/12345678/pipe/control_privileged")
_UNFINISHED_S: Final = 60.0
_PROCESS_MARK: Final = "nvidia-cuda-mps"
_RECORD: Final = "record.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class DaemonRecord:
    """Who started a daemon, and which one it is.

    Attributes:
        uid, host: of the job; another user's or machine's records are never touched.
        owner: the process of the job that started the daemon and will stop it.
        control: the control daemon, or None while it is being started.
        uuid: the physical GPU.
    """

    uid: int
    host: str
    owner: ProcessIdentity
    control: ProcessIdentity | None
    uuid: str

    def write(self, directory: Path) -> None:
        """Store as ``directory``/record.json, whole or not at all."""

        def pair(process: ProcessIdentity | None) -> list[int] | None:
            return [process.pid, process.start_ticks] if process else None

        data = {
            "uid": self.uid,
            "host": self.host,
            "owner": pair(self.owner),
            "control": pair(self.control),
            "uuid": self.uuid,
        }
        unfinished = directory / (_RECORD + ".new")
        unfinished.write_text(json.dumps(data) + "\n")
        unfinished.rename(directory / _RECORD)

    @classmethod
    def read(cls, directory: Path) -> DaemonRecord | None:
        """What `write` stored, or None when there is nothing readable."""
        try:
            data = json.loads((directory / _RECORD).read_text())
            owner, control = data["owner"], data["control"]
            return cls(
                uid=int(data["uid"]),
                host=str(data["host"]),
                owner=ProcessIdentity(pid=owner[0], start_ticks=owner[1]),
                control=ProcessIdentity(pid=control[0], start_ticks=control[1]) if control else None,
                uuid=str(data["uuid"]),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None


class MPSDaemon:
    """A running private daemon.

    Attributes:
        control: the channel to it.
        uuid: the physical GPU it serves.
        record: as stored beside it.
    """

    def __init__(self, directory: Path, control: MPSControl, record: DaemonRecord) -> None:
        """Use `start`."""
        self.control = control
        self.record = record
        self.uuid = record.uuid
        self._directory = directory

    @classmethod
    def start(
        cls,
        uuid: str,
        binary: str,
        *,
        log_directory: Path | None = None,
        root: Path | None = None,
        static_partitions: bool = False,
    ) -> MPSDaemon:
        """Start a daemon for one GPU.

        Args:
            uuid: "GPU-..." of the physical GPU.
            binary: path of nvidia-cuda-mps-control.
            log_directory: where control.log and server.log go; default: beside the daemon, gone with it.
            root: directory that holds the daemons' directories; default: `daemons_root()`.
            static_partitions: start it in the mode that hands out fixed sets of SMs.

        Raises:
            MPSControlError: it does not start or does not answer; nothing is left behind.
        """
        root = root or daemons_root()
        directory = root / secrets.token_hex(4)
        pipe, log = directory / "pipe", log_directory or directory / "log"
        record = DaemonRecord(
            uid=os.getuid(), host=socket.gethostname(), owner=ProcessIdentity.own(), control=None, uuid=uuid
        )
        _make_directory(directory, record)
        pipe.mkdir(mode=0o700)
        log.mkdir(mode=0o700, parents=True, exist_ok=True)
        raise_open_file_limit()
        control = MPSControl(binary, pipe, log)
        try:
            control.start_daemon({"CUDA_VISIBLE_DEVICES": uuid}, static_partitions=static_partitions)
            record = _recorded_control(directory, control, record)
        except MPSControlError:
            _end(directory, pipe, record)
            raise
        logger.debug("MPS daemon %s serves %s in %s", record.control, uuid, pipe)
        return cls(directory, control, record)

    @property
    def alive(self) -> bool:
        """Whether the control daemon still runs."""
        return self.record.control is not None and self.record.control.alive

    def stop(self) -> None:
        """End the daemon and its servers and remove its directory. May be called again."""
        if self.record.owner != ProcessIdentity.own():
            raise MPSControlError("this process did not start the MPS daemon, so it does not stop it")
        if self.alive and self._directory.exists():
            try:
                self.control.quit(QUIT_TIMEOUT_S)
            except MPSControlError as error:  # clients that hang keep it from ending by itself
                logger.warning("the MPS daemon of %s does not end by itself: %s", self.uuid, error)
        _end(self._directory, self.control.pipe_directory, self.record)


def daemons_root() -> Path:
    """The directory of this user's daemons, made when missing; short enough for AF_UNIX sockets.

    Raises:
        MPSControlError: somebody else made a directory of that name.
    """
    name = f"gmiflow-mps-{os.getuid()}"
    parent = Path(tempfile.gettempdir())
    if len(str(parent / name)) + _LONGEST_SOCKET >= _SOCKET_PATH_LIMIT:
        parent = Path("/tmp")
    root = parent / name
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if root.is_symlink() or status.st_uid != os.getuid():
        raise MPSControlError(f"{root} belongs to another user")
    return root


def reap_stale(root: Path | None = None) -> tuple[str, ...]:
    """Stop the daemons whose job died, and remove what such jobs left.

    Returns:
        UUIDs of the GPUs whose daemon was stopped.

    Directories of living jobs, other users and other machines are left alone.
    """
    root = root or daemons_root()
    stopped: list[str] = []
    for directory in sorted(entry for entry in root.iterdir() if entry.is_dir()):
        record = DaemonRecord.read(directory)
        if record is None:
            if time.time() - directory.stat().st_mtime > _UNFINISHED_S:
                shutil.rmtree(directory, ignore_errors=True)
            continue
        if record.uid != os.getuid() or record.host != socket.gethostname() or record.owner.alive:
            continue
        if _daemon_processes(directory / "pipe"):
            stopped.append(record.uuid)
        _end(directory, directory / "pipe", record)
    return tuple(stopped)


def raise_open_file_limit(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raise this process's soft limit of open files towards ``wanted``; return what it is now.

    The daemon, its servers and the GMIs inherit the limit; each client costs the server descriptors.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        return possible
    return soft


def _make_directory(directory: Path, record: DaemonRecord) -> None:
    """Make a daemon's directory; it appears under its name together with its record."""
    unfinished = Path(tempfile.mkdtemp(prefix=".", dir=directory.parent))
    record.write(unfinished)
    unfinished.rename(directory)


def _recorded_control(directory: Path, control: MPSControl, record: DaemonRecord) -> DaemonRecord:
    """Find the daemon that was just started, wait until it answers, and store who it is."""
    found: list[ProcessIdentity] = []

    def answers() -> bool:
        found[:] = _daemon_processes(control.pipe_directory)
        if not found:
            return False
        try:
            control.servers()
        except MPSControlError:
            return False
        return True

    if not wait_until(answers, START_TIMEOUT_S):
        log = control.log_directory / "control.log"
        last = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
        said = last[0] if last else "its log is empty"
        raise MPSControlError(f"{BINARY} -d started no daemon that answers within {START_TIMEOUT_S:g} s: {said}")
    identity = _control_of(control.pipe_directory, found)
    complete = DaemonRecord(uid=record.uid, host=record.host, owner=record.owner, control=identity, uuid=record.uuid)
    complete.write(directory)
    return complete


def _control_of(pipe_directory: Path, processes: Iterable[ProcessIdentity]) -> ProcessIdentity:
    """Tell the control daemon from its servers: by its pid file, else the oldest."""
    ordered = sorted(processes, key=lambda process: (process.start_ticks, process.pid))
    pid = _pid_in_file(pipe_directory)
    return next((process for process in ordered if process.pid == pid), ordered[0])


def _pid_in_file(pipe_directory: Path) -> int | None:
    """The process id that the control daemon left in its pipe directory."""
    try:
        return int((pipe_directory / f"{BINARY}.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _daemon_processes(pipe_directory: Path) -> list[ProcessIdentity]:
    """Control daemon and servers of one pipe directory, recognised by what they were started with.

    Where the kernel hides a process's variables, its id in the pid file has to do.
    """
    found: list[ProcessIdentity] = []
    noted = _pid_in_file(pipe_directory)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or (process := ProcessIdentity.of(int(entry.name))) is None:
            continue
        if _PROCESS_MARK not in process.command_line():
            continue
        started_with = process.environment()
        if started_with.get("CUDA_MPS_PIPE_DIRECTORY") == str(pipe_directory) or (
            not started_with and process.pid == noted
        ):
            found.append(process)
    return found


def _end(directory: Path, pipe_directory: Path, record: DaemonRecord) -> None:
    """Make sure that nothing of a daemon runs any more, then remove its directory."""
    remaining = [process for process in _daemon_processes(pipe_directory) if process.alive]
    control = record.control
    if control is not None and control.alive and _PROCESS_MARK in control.command_line() and control not in remaining:
        remaining.append(control)
    for number in (signal.SIGTERM, signal.SIGKILL):
        # After a clean quit the processes are already on their way out.
        if wait_until(lambda: not any(process.alive for process in remaining), FORCE_TIMEOUT_S / 5):
            break
        for process in remaining:
            process.signal(number)
        if wait_until(lambda: not any(process.alive for process in remaining), FORCE_TIMEOUT_S):
            break
    if left := [process.pid for process in remaining if process.alive]:
        logger.error("MPS processes %s of %s cannot be ended", left, record.uuid)
        return
    shutil.rmtree(directory, ignore_errors=True)
