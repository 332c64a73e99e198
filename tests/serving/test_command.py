"""`gmiflow serve` on a real run."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from waiting import PATIENCE_S, until

from gmiflow.runtime import load_policy
from gmiflow.serving import PolicyClient

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "run"
    command = ["run", "examples/quickstart.gmi", "--iterations", "1", "--num-env", "64", "--run-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "gmiflow.cli", *command], cwd=ROOT, check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def serving(run, *options):
    """A server process that is ready, and its first event."""
    command = [sys.executable, "-m", "gmiflow.cli", "serve", str(run), "--format", "json", "--device", "cpu", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def test_a_run_is_served_until_sigterm(run):
    obs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    with torch.no_grad():
        expected = load_policy(run)(torch.tensor(obs))[0].numpy()
    with serving(run, "--gmis", "2", "--tcp", "0") as (process, ready):
        assert (ready["event"], ready["observation"], ready["action"]) == ("Ready", 4, 1)
        token = run / "serve.token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600 == stat.S_IMODE((run / "serve.sock").stat().st_mode)
        port = int(ready["listening"][1].rpartition(":")[2])
        with PolicyClient.of_run(run) as here, PolicyClient(("127.0.0.1", port), token.read_text().strip()) as there:
            for client in (here, there):
                assert np.allclose(client.act(obs), expected, atol=1e-6)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        stopped = json.loads(out)
        assert process.returncode == 0 and stopped["event"] == "Stopped"
        assert (stopped["requests"], stopped["rows"], stopped["refused"]) == (2, 10, {})
        assert not token.exists() and not (run / "serve.sock").exists()


def test_no_answer_is_lost_when_it_stops_under_load(run):
    counts = [0] * 8
    with serving(run) as (process, _):

        def ask(number):
            with contextlib.suppress(ConnectionError), PolicyClient.of_run(run) as client:
                while True:
                    client.act(np.zeros(4, np.float32))
                    counts[number] += 1

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        until(lambda: sum(counts) >= 100, "a hundred answers")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(out)["requests"] == sum(counts)


def test_a_killed_server_leaves_nothing_that_stops_the_next_and_a_living_one_is_left_alone(run, tmp_path):
    with serving(run) as (process, _):
        process.kill()
        process.wait()
        assert (run / "serve.sock").exists()
        with serving(run):
            second = subprocess.run(
                [sys.executable, "-m", "gmiflow.cli", "serve", str(run)], cwd=ROOT, capture_output=True, text=True
            )
            assert second.returncode == 2 and "another server listens" in second.stderr
            own = tmp_path / "own.sock"
            with serving(run, "--socket", str(own)):
                token = own.with_suffix(".token").read_text().strip()
                with PolicyClient(own, token) as client:
                    assert client.act(np.zeros(4)).shape == (1,)
            with PolicyClient.of_run(run) as client:  # its token is untouched
                assert client.act(np.zeros(4)).shape == (1,)


def test_mistakes_are_told_without_a_traceback(run, tmp_path):
    short = tmp_path / "token"
    short.write_text("short\n")
    cases = {
        (str(tmp_path),): (1, "E0707"),
        (str(run), "--training", "other"): (1, "E0707"),
        (str(run), "--token-file", str(short)): (2, "16 to 512 characters"),
        (str(run), "--socket", str(tmp_path / ("x" * 120))): (2, "too long for a Unix socket"),
        (str(run), "--socket", str(short)): (2, "is not a socket"),
        (str(run), "--socket", str(tmp_path / "nowhere" / "s.sock")): (2, "there is no folder"),
    }
    processes = {
        arguments: subprocess.Popen(
            [sys.executable, "-m", "gmiflow.cli", "serve", *arguments, "--device", "cpu"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"},
        )
        for arguments in cases
    }  # fmt: skip
    for arguments, process in processes.items():
        code, words = cases[arguments]
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, (arguments, err)
        assert words in err and "Traceback" not in err and out == ""
    assert short.read_text() == "short\n"
