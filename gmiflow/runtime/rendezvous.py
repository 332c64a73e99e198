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
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.failure import LAUNCH_FAILED, error
from gmiflow.runtime.leftovers import PREFIX, new_token, owner_is_gone

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
        token = new_token()
        parent = Path(tempfile.gettempdir())
        if len(str(parent)) + len(token) > _SOCKET_PATH_LIMIT - 30:
            parent = Path("/tmp")
        path = parent / f"{PREFIX}{token}"
        path.mkdir(mode=0o700)
        (path / "token").write_text(token)
        (path / "progress").write_bytes(bytes(gmis * _SLOT_BYTES))
        return cls(path, token)

    @classmethod
    def join(cls, path: Path) -> Rendezvous:
        """The rendezvous in ``path``; who comes first to an empty directory makes the token.

        Raises:
            GMIError: E0711 when it cannot be written, or its first process has ended: what bears the token is cleared
                away as a leftover then.
        """
        try:
            token = _agreed_token(path)
        except OSError as problem:
            what = f"{path} cannot be a rendezvous directory: {problem.strerror or problem}"
            raise error(LAUNCH_FAILED, what, "give all programs the same fresh directory") from problem
        if owner_is_gone(token):
            what = f"the rendezvous directory {path} is that of a run that has ended"
            raise error(LAUNCH_FAILED, what, "use a fresh rendezvous directory for each run")
        return cls(path, token)

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
        return f"{PREFIX}{self.token}-{re.sub(r'[^A-Za-z0-9_.]', '_', collective)}"

    def progress(self) -> Progress | None:
        """The page of stages at work, or None when nobody made one."""
        file = self.path / "progress"
        return Progress(file) if file.exists() else None

    def remove(self) -> None:
        """Remove the directory, and shared memory whose users never met."""
        _remove_segments(self.token)
        shutil.rmtree(self.path, ignore_errors=True)


def _agreed_token(path: Path) -> str:
    path.mkdir(parents=True, exist_ok=True)
    file = path / "token"
    if not file.exists():
        proposal = path / f"token-{os.getpid()}"
        proposal.write_text(new_token())
        with contextlib.suppress(FileExistsError):  # another GMI was faster: its token counts
            os.link(proposal, file)
        proposal.unlink()
    return file.read_text()


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


def _remove_segments(token: str) -> None:
    for path in shared_memory.directory().glob(f"{PREFIX}{token}-*"):
        if path.is_file():
            path.unlink(missing_ok=True)
