"""What a run could leave on the machine, and how it is found: everything bears the name of the process it belongs to.

Directories for temporary files and shared memory are called after a token, and every process that a run starts has a
token in its environment. A token names the user, the namespace of processes and one process for good (see
`ProcessIdentity`): the launcher, or the rank on a machine where the launcher is not. When that process is gone, what
bears its token is a leftover. No torch.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.gmi.process import ProcessIdentity

PREFIX = "gmiflow-"
MARK = "GMIFLOW_RUN"
"""Variable that holds the token; whatever a stage starts inherits it."""

_TOKEN = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]+")
_LOOK_AGAIN_S = 0.02


def new_token() -> str:
    """A name that nothing else has, of what belongs to this process."""
    identity = ProcessIdentity.own()
    return f"{os.getuid()}-{_namespace()}-{identity.pid}-{identity.start_ticks}-{secrets.token_hex(4)}"


def owner_is_gone(token: str) -> bool:
    """Whether the process that a token names has ended; False too when that cannot be judged from here.

    Another namespace of processes (a container that shares /dev/shm) cannot be.
    """
    match = _TOKEN.match(token)
    if match is None or int(match[1]) != os.getuid() or int(match[2]) != _namespace():
        return False
    return not ProcessIdentity(pid=int(match[3]), start_ticks=int(match[4])).alive


@contextlib.contextmanager
def temporary_folder() -> Generator[Path]:
    """A directory for temporary files, removed afterwards, or by the next run when this process is killed."""
    path = Path(tempfile.gettempdir()) / f"{PREFIX}{new_token()}"
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def end_marked(leftover: Callable[[str], bool], patience_s: float = 2.0) -> int:
    """Kill the processes whose token is a leftover's, and what they start meanwhile; how many there were.

    Args:
        leftover: says so of a token.
        patience_s: how long to wait for those that do not end at once, for example within a driver.
    """
    killed: set[ProcessIdentity] = set()
    deadline = time.monotonic() + patience_s
    while (found := _marked(leftover)) and time.monotonic() < deadline:
        for identity in found:
            with contextlib.suppress(PermissionError):
                identity.signal(signal.SIGKILL)
        killed |= found
        time.sleep(_LOOK_AGAIN_S)
    return len(killed)


def clean_stale() -> list[str]:
    """Remove what runs of this user left that were killed outright; the names of what was removed.

    Processes go first: only those of runs whose launcher and whose fork server were both killed are left.
    """
    end_marked(owner_is_gone)
    removed: list[str] = []
    for parent in {Path(tempfile.gettempdir()), Path("/tmp"), shared_memory.directory()}:
        for path in parent.glob(f"{PREFIX}{os.getuid()}-*"):
            if not owner_is_gone(path.name.removeprefix(PREFIX)):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            removed.append(path.name)
    return sorted(removed)


def _marked(leftover: Callable[[str], bool]) -> set[ProcessIdentity]:
    """Processes other than this one whose token is a leftover's."""
    beginning, own = f"{MARK}=".encode(), str(os.getpid())
    found: set[ProcessIdentity] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            token = next((word[len(beginning) :] for word in variables if word.startswith(beginning)), None)
            if token is not None and name != own and leftover(token.decode(errors="replace")):
                found |= {identity for identity in [ProcessIdentity.of(int(name))] if identity is not None}
    return found


def _namespace() -> int:
    """Number of the namespace in which process ids count; 0 where there are none."""
    try:
        return int(re.sub(r"\D", "", os.readlink("/proc/self/ns/pid")) or 0)
    except OSError:
        return 0
