"""The rendezvous directory: where the GMIs of a run find each other and the supervisor.

It holds the supervisor's socket (or how to call it on another machine), a page in which every GMI notes
the stage at work, and the token
from which the names of shared memory are made. The launcher makes a fresh one per run; programs
that are started by hand agree on one through the file `token`. No torch.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.gmi.process import ProcessIdentity

_PREFIX = "gmiflow-"
_TOKEN = re.compile(r"gmiflow-(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]+")
_SOCKET_PATH_LIMIT = 100
_SLOT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A rendezvous directory that exists.

    Attributes:
        path: the directory.
        token: unique to the run, machine-wide; names its user, namespace of processes and first process.
    """

    path: Path
    token: str

    @classmethod
    def create(cls, gmis: int) -> Rendezvous:
        """Make a fresh one for ``gmis`` GMIs, in the directory for temporary files."""
        token = _new_token()
        parent = Path(tempfile.gettempdir())
        if len(str(parent)) + len(token) > _SOCKET_PATH_LIMIT - 30:
            parent = Path("/tmp")
        path = parent / f"{_PREFIX}{token}"
        path.mkdir(mode=0o700)
        (path / "token").write_text(token)
        (path / "progress").write_bytes(bytes(gmis * _SLOT_BYTES))
        return cls(path, token)

    @classmethod
    def join(cls, path: Path) -> Rendezvous:
        """The rendezvous in ``path``; who comes first to an empty directory makes the token."""
        path.mkdir(parents=True, exist_ok=True)
        file = path / "token"
        if not file.exists():
            proposal = path / f"token-{os.getpid()}"
            proposal.write_text(_new_token())
            with contextlib.suppress(FileExistsError):  # another GMI was faster: its token counts
                os.link(proposal, file)
            proposal.unlink()
        return cls(path, file.read_text())

    @property
    def socket(self) -> Path:
        """Where the supervisor listens; not there when programs are started by hand."""
        return self.path / "supervisor.sock"

    @property
    def contact(self) -> Path:
        """How to call a launcher on another machine, or that other ranks share; not there without such."""
        return self.path / "launcher.json"

    def segment(self, collective: str) -> str:
        """Name of the shared memory of a collective."""
        return f"{_PREFIX}{self.token}-{re.sub(r'[^A-Za-z0-9_.]', '_', collective)}"

    def progress(self) -> Progress | None:
        """The page of stages at work, or None when nobody made one."""
        file = self.path / "progress"
        return Progress(file) if file.exists() else None

    def remove(self) -> None:
        """Remove the directory, and shared memory whose users never met."""
        _remove_segments(self.token)
        shutil.rmtree(self.path, ignore_errors=True)


class Progress:
    """Two numbers per GMI, written by it and read by the supervisor: stage at work, stages entered."""

    def __init__(self, file: Path) -> None:
        """Map ``file``."""
        with file.open("r+b") as handle:
            self._memory = mmap.mmap(handle.fileno(), 0)

    def slot(self, gmi: int) -> memoryview:
        """The numbers of a GMI, as a writable view of 8-byte integers."""
        return memoryview(self._memory)[gmi * _SLOT_BYTES : (gmi + 1) * _SLOT_BYTES].cast("q")

    def note(self, gmi: int, stage: int) -> None:
        """Write the stage at work for a GMI of another machine."""
        with self.slot(gmi) as slot:
            slot[0] = stage

    def stage(self, gmi: int) -> int:
        """Index of the stage at work in `StageClock.names`."""
        with self.slot(gmi) as slot:
            return int(slot[0])


def clean_stale() -> list[str]:
    """Remove what runs of this user left that were killed outright; the names of what was removed."""
    removed: list[str] = []
    for parent in {Path(tempfile.gettempdir()), Path("/tmp"), shared_memory.directory()}:
        for path in parent.glob(f"{_PREFIX}{os.getuid()}-*"):
            match = _TOKEN.match(path.name)
            # Another namespace of processes (a container that shares /dev/shm) cannot be judged from here.
            if match is None or int(match[2]) != _namespace():
                continue
            if ProcessIdentity(pid=int(match[3]), start_ticks=int(match[4])).alive:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            removed.append(path.name)
    return sorted(removed)


def _new_token() -> str:
    identity = ProcessIdentity.own()
    return f"{os.getuid()}-{_namespace()}-{identity.pid}-{identity.start_ticks}-{secrets.token_hex(4)}"


def _namespace() -> int:
    """Number of the namespace in which process ids count; 0 where there are none."""
    try:
        return int(re.sub(r"\D", "", os.readlink("/proc/self/ns/pid")) or 0)
    except OSError:
        return 0


def _remove_segments(token: str) -> None:
    for path in shared_memory.directory().glob(f"{_PREFIX}{token}-*"):
        if path.is_file():
            path.unlink(missing_ok=True)
