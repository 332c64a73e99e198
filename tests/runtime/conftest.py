import os
import uuid

import leftovers
import pytest
from waiting import until


@pytest.fixture(scope="module")
def fork_server(tmp_path_factory):
    """Forks the processes of all runs of a file."""
    from shared_fork_server import SharedForkServer

    with SharedForkServer(tmp_path_factory.mktemp("server")) as launcher:
        yield launcher


@pytest.fixture
def one_fork_server(fork_server, monkeypatch):
    """Has `run_plan` start processes by `fork_server`, and checks at the end that none is left."""
    monkeypatch.setattr("gmiflow.runtime.launch.LocalLauncher", lambda: fork_server)
    yield
    until(lambda: not fork_server.children(), "the end of all processes")


@pytest.fixture
def mark(monkeypatch, tmp_path):
    """Marks all processes started by the test, and checks at its end that none is left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftovers.MARK, value)
    monkeypatch.setenv("POINT_MASS_DIED", str(tmp_path / "died"))
    yield value
    assert leftovers.wait_for_none(value) == []
    assert leftovers.files(os.getpid()) == []
