"""The environment of the fork server, which is that of every GMI."""

import os
from pathlib import Path

import pytest
from waiting import until

from gmiflow.runtime.launchers.rank import starter_environment
from gmiflow.runtime.spawn import ForkServer


def environment_of_children() -> dict[str, str]:
    """Variables of the fork server among this process's children, as it was started."""

    def look() -> dict[str, str]:
        for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
            folder = Path("/proc") / child
            if b"forkserver" in (folder / "cmdline").read_bytes():
                words = (folder / "environ").read_bytes().split(b"\0")
                return dict(word.decode().split("=", 1) for word in words if b"=" in word)
        return {}

    return until(look, "a fork server")  # the system shows a new process's words a moment after its start


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(tmp_path, monkeypatch, given, expected):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    with ForkServer([], tmp_path / "log"):
        assert environment_of_children()["OMP_WAIT_POLICY"] == expected
    assert starter_environment([])["OMP_WAIT_POLICY"] == expected
