"""The real command on a real file, disturbed: a GMI is killed, Ctrl-C, SIGTERM."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARK = "GMIFLOW_TEST_MARK"


def marked(mark: str) -> list[int]:
    """Living processes that the run started, itself included."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            if entry.name.isdigit() and alive and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


class Run:
    """`gmiflow run` of an example on two GMIs, for longer than any test waits."""

    def __init__(self, directory: Path, example: str, *options: str) -> None:
        self.mark = uuid.uuid4().hex
        self.directory = directory / "run"
        words = ["--iterations", "100000", *options, "--run-dir", str(self.directory)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gmiflow.cli", "run", str(ROOT / "examples" / example), *words],
            env={**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT)},
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_iterations(self) -> None:
        metrics = self.directory / "metrics.jsonl"
        deadline = time.monotonic() + 90
        while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> tuple[int, str, float]:
        """Exit code, what was printed, seconds until the end; and nothing may be left."""
        start = time.monotonic()
        output, messages = self.process.communicate(timeout=60)
        seconds = time.monotonic() - start
        while (left := marked(self.mark)) and time.monotonic() - start < 60:
            time.sleep(0.05)
        assert left == []
        assert not list(Path("/dev/shm").glob(f"gmiflow-*-{self.process.pid}-*"))
        return self.process.returncode, output + messages, seconds


@pytest.fixture
def disturbed(tmp_path: Path):
    run = Run(tmp_path, "quickstart.gmi", "--gmi-per-gpu", "2")
    run.wait_for_iterations()
    yield run
    if run.process.poll() is None:
        run.process.kill()


def test_a_killed_gmi_is_named(disturbed: Run) -> None:
    os.kill(max(marked(disturbed.mark)), signal.SIGKILL)
    status, output, seconds = disturbed.end()
    assert status == 1
    assert seconds < 10
    assert re.search(r"GMI [01] was killed by SIGKILL", output)
    assert "Traceback" not in output


def test_ctrl_c_saves_a_checkpoint(disturbed: Run) -> None:
    disturbed.process.send_signal(signal.SIGINT)
    status, output, _ = disturbed.end()
    assert status == 130
    assert (disturbed.directory / "checkpoints" / "last" / "meta.json").is_file()
    assert "Traceback" not in output


def test_sigterm_stops_at_once(disturbed: Run) -> None:
    disturbed.process.send_signal(signal.SIGTERM)
    status, output, seconds = disturbed.end()
    assert status == 143
    assert seconds < 10
    assert "Traceback" not in output


@pytest.fixture
def split(tmp_path: Path):
    """An agent and a trainer, each a GMI of its own."""
    run = Run(tmp_path, "cartpole_async.gmi", "--num-env", "32")
    run.wait_for_iterations()
    yield run
    if run.process.poll() is None:
        run.process.kill()


def test_ctrl_c_ends_agents_and_trainers_with_a_checkpoint(split: Run) -> None:
    split.process.send_signal(signal.SIGINT)
    status, output, _ = split.end()
    assert status == 130
    assert (split.directory / "checkpoints" / "last" / "environments_00000000.safetensors").is_file()
    assert "Traceback" not in output


def test_a_killed_launcher_leaves_nothing_of_a_split_for_long(split: Run) -> None:
    from gmiflow.runtime.rendezvous import clean_stale

    split.process.kill()
    split.process.wait()
    deadline = time.monotonic() + 10
    while marked(split.mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(split.mark) == []
    clean_stale()  # as every run does first: channels keep their names, so that a lost agent can be replaced
    assert not list(Path("/dev/shm").glob(f"gmiflow-*-{split.process.pid}-*"))
