"""The real command on a real file, disturbed: a GMI is killed, Ctrl-C, SIGTERM."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Self

import leftovers
import pytest
from waiting import PATIENCE_S, until

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

        def two() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1]
            return metrics.exists() and metrics.read_text().count("\n") >= 2

        until(two, "two iterations")

    def end(self) -> tuple[int, str]:
        """Exit code, what was printed; and nothing may be left."""
        output, messages = self.process.communicate(timeout=PATIENCE_S)  # less than a GMI waits for a lost peer
        until(lambda: not marked(self.mark), "the end of all processes")
        assert not list(Path("/dev/shm").glob(f"gmiflow-*-{self.process.pid}-*"))
        return self.process.returncode, output + messages

    def __enter__(self) -> Self:
        self.wait_for_iterations()
        return self

    def __exit__(self, *failure: object) -> None:
        with self.process:  # waits, and closes its pipes
            self.process.kill()


@pytest.fixture
def disturbed(tmp_path: Path):
    with Run(tmp_path, "quickstart.gmi", "--gmi-per-gpu", "2") as run:
        yield run


def test_a_killed_gmi_is_named(disturbed: Run) -> None:
    os.kill(leftovers.gmi_process(disturbed.directory, 1), signal.SIGKILL)
    status, output = disturbed.end()
    assert status == 1
    assert "GMI 1 was killed by SIGKILL" in output
    assert "Traceback" not in output


def test_ctrl_c_saves_a_checkpoint(disturbed: Run) -> None:
    disturbed.process.send_signal(signal.SIGINT)
    status, output = disturbed.end()
    assert status == 130
    assert (disturbed.directory / "checkpoints" / "last" / "meta.json").is_file()
    assert "Traceback" not in output


def test_sigterm_ends_with_a_checkpoint_as_ctrl_c_does(disturbed: Run) -> None:
    disturbed.process.send_signal(signal.SIGTERM)
    status, output = disturbed.end()
    assert status == 143
    assert (disturbed.directory / "checkpoints" / "last").exists()
    assert "Traceback" not in output


def test_a_terminal_that_is_closed_ends_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    words = ["run", str(ROOT / "examples" / "quickstart.gmi"), "--iterations", "100000", "--run-dir", str(directory)]
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "gmiflow.cli", *words])
    os.set_blocking(terminal, False)
    metrics = directory / "metrics.jsonl"

    def two() -> bool:
        with contextlib.suppress(BlockingIOError):
            while os.read(terminal, 4096):  # so that it never waits for a reader
                pass
        return metrics.exists() and metrics.read_text().count("\n") >= 2

    until(two, "two iterations")
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert (directory / "checkpoints" / "last").exists()


@pytest.fixture
def split(tmp_path: Path):
    """An agent and a trainer, each a GMI of its own."""
    with Run(tmp_path, "cartpole_async.gmi", "--num-env", "32") as run:
        yield run


def test_ctrl_c_ends_agents_and_trainers_with_a_checkpoint(split: Run) -> None:
    split.process.send_signal(signal.SIGINT)
    status, output = split.end()
    assert status == 130
    assert (split.directory / "checkpoints" / "last" / "environments_00000000.safetensors").is_file()
    assert "Traceback" not in output


def test_a_killed_launcher_leaves_nothing_of_a_split_for_long(split: Run) -> None:
    from gmiflow.runtime.leftovers import clean_stale

    split.process.kill()
    split.process.wait()
    until(lambda: not marked(split.mark), "the end of all processes")
    clean_stale()  # as every run does first: channels keep their names, so that a lost agent can be replaced
    assert not list(Path("/dev/shm").glob(f"gmiflow-*-{split.process.pid}-*"))
