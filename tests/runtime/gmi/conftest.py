import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def control_binary(tmp_path, monkeypatch):
    """The stand-in for nvidia-cuda-mps-control, first on PATH under that name."""
    directory = tmp_path / "bin"
    directory.mkdir()
    binary = directory / "nvidia-cuda-mps-control"
    shutil.copy(Path(__file__).with_name("fake_mps_control.py"), binary)
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")
    return str(binary)


@pytest.fixture
def daemons(monkeypatch):
    """A short directory for daemons: pytest's own temporary paths are too long for AF_UNIX sockets."""
    directory = Path(tempfile.mkdtemp(prefix="gmi-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
