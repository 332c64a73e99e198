"""Where a policy server listens and keeps its token: one server at a place, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Generator
from pathlib import Path

import click

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux."""

_LOCK_WAIT_S = 10.0
"""Longest wait for another server that starts or ends in the same folder, which takes milliseconds."""


class Place:
    """A Unix socket and the file of its token.

    Several servers may want the same place in the same instant, and one may come while another one ends. So whoever
    takes or leaves a place has the folder locked meanwhile, and takes away only what nobody listens on, or what is
    its own: the very files that it made, whatever has their names by now.
    """

    def __init__(self, path: Path, given_token: Path | None) -> None:
        """Look at the place; nothing is written.

        Args:
            path: of the socket.
            given_token: file with a token to use; else one is made, beside the socket.

        Raises:
            click.UsageError: no server can listen there, or another one does.
            OSError: the token cannot be read.
        """
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            hint = f"choose a shorter one with --socket ({SOCKET_PATH_BYTES} bytes at most)"
            raise click.UsageError(f"{path}: too long for a Unix socket; {hint}")
        if not path.parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
        self.path = path
        # A server with a socket of its own has a token of its own: another one of the same run keeps its own.
        self._token_file = path.with_name(f"{path.name.removesuffix('.sock')}.token") if given_token is None else None
        self.token = secrets.token_urlsafe(32) if given_token is None else _token_in(given_token)
        self._own: dict[Path, int] = {}
        self._is_stale()

    @contextlib.contextmanager
    def taken(self) -> Generator[None]:
        """Keep others out while the body listens on the path; afterwards the place is ours until `leave`.

        Raises:
            click.UsageError: another server was faster.
            OSError: the token cannot be written.
        """
        with _locked(self.path.parent):
            if self._is_stale():
                self.path.unlink()
            try:
                if self._token_file is not None:
                    self._write_token(self._token_file)
                yield
                self._own[self.path] = os.open(self.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except BaseException:
                with contextlib.suppress(click.UsageError):
                    if self._is_stale():  # bound by the body, and closed again
                        self.path.unlink()
                self._remove()
                raise

    def leave(self) -> None:
        """Remove what is still ours of the place; nothing when it was not taken."""
        if self._own:
            with _locked(self.path.parent):
                self._remove()

    def _write_token(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._own[path] = file
        os.write(file, f"{self.token}\n".encode())

    def _remove(self) -> None:
        """By the files' identities, which nobody else can have while they are open here."""
        for path, file in self._own.items():
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.lstat()):
                    path.unlink()
            os.close(file)
        self._own.clear()

    def _is_stale(self) -> bool:
        """Whether there is a socket that nobody listens on, as a killed server leaves it.

        Raises:
            click.UsageError: the place is not free.
        """
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISSOCK(mode):
            raise click.UsageError(f"{self.path} exists and is not a socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            code = probe.connect_ex(os.fspath(self.path))
        if code in (0, errno.EAGAIN):  # it may be too busy to take one more at once
            raise click.UsageError(f"another server listens on {self.path}; choose another with --socket")
        if code not in (errno.ECONNREFUSED, errno.ENOENT):
            raise click.UsageError(f"{self.path}: {os.strerror(code).lower()}; choose another with --socket")
        return code == errno.ECONNREFUSED


def _token_in(path: Path) -> str:
    token = path.read_text(encoding="utf-8", errors="replace").strip()
    if not 16 <= len(token) <= 512:
        raise click.UsageError(f"{path}: a token has 16 to 512 characters")
    return token


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other servers out of a folder for a moment; without effect on a file system that has no locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise click.UsageError(f"another process has locked {folder}; choose another --socket") from error
            time.sleep(0.01)
        except OSError:
            return
        else:
            return
