"""`gmiflow serve` on a real run."""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from waiting import PATIENCE_S, until

from gmiflow.runtime import load_policy
from gmiflow.runtime.supervisor import ECHO_S
from gmiflow.serving import PolicyClient, RefusedError
from gmiflow.serving.protocol import Reason

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


def test_drawn_actions_are_asked_for(run):
    """2,000 draws for one observation: their mean and deviation are the policy's within 5 standard errors."""
    obs = np.array([0.01, -0.02, 0.03, 0.0], np.float32)
    with torch.no_grad():
        mean, deviation, _ = (value.item() for value in load_policy(run)(torch.tensor(obs)))
    with serving(run, "--stochastic") as (_, ready), PolicyClient.of_run(run) as client:
        assert ready["deterministic"] is False
        drawn = client.act(np.tile(obs, (2000, 1)))
    assert abs(drawn.mean() - mean) < 5 * deviation / 2000**0.5
    assert abs(drawn.std() - deviation) < 5 * deviation / 4000**0.5


def test_a_client_is_told_that_nobody_serves(tmp_path):
    with pytest.raises(FileNotFoundError, match="start `gmiflow serve"):
        PolicyClient.of_run(tmp_path)
    (tmp_path / "serve.token").write_text("left by a server that was killed\n")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "serve.sock"))
    with pytest.raises(ConnectionRefusedError, match="start `gmiflow serve"):
        PolicyClient.of_run(tmp_path)


def test_the_client_of_the_guide(run, tmp_path, monkeypatch):
    """What the guide says of a run of the quickstart holds for one."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "pole").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names = {}
    with serving(run):
        exec(compile(block, "serving.md", "exec"), names)
    assert names["actions"].shape == (64, 1) and names["action"].shape == (1,)


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


def test_of_two_servers_that_start_in_the_same_instant_one_serves(run, tmp_path):
    path = tmp_path / "serve.sock"
    command = [sys.executable, "-m", "gmiflow.cli", "serve", str(run), "--device", "cpu", "--socket", str(path)]
    with contextlib.ExitStack() as stack:
        pair = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in pair:
            stack.enter_context(process)
            stack.callback(process.kill)
        until(lambda: any(process.poll() is not None for process in pair), "the end of one of them")
        (loser,) = [process for process in pair if process.poll() is not None]
        (winner,) = [process for process in pair if process is not loser]
        assert loser.returncode == 2 and "another server listens" in loser.stderr.read()
        assert winner.stderr.readline().startswith("serving")
        with PolicyClient(path, path.with_suffix(".token").read_text().strip()) as client:
            assert client.act(np.zeros(4)).shape == (1,)
        winner.send_signal(signal.SIGHUP)  # a terminal that is closed
        assert winner.wait(PATIENCE_S) == 0 and list(tmp_path.iterdir()) == []


HANGING = """
import pathlib, sys, time
from gmiflow.commands.serve import serve_at
from gmiflow.commands.serve_place import Place
from gmiflow.serving.protocol import Terms
from gmiflow.serving.server import PolicyServer

def hang(rows):
    pathlib.Path("begun").touch()
    time.sleep(1e6)

place = Place(pathlib.Path("place/serve.sock"), None)
serve_at(place, PolicyServer([hang], Terms(4, 1, 8, 8), place.token), None, "json")
"""


def test_a_second_signal_ends_a_server_whose_policy_hangs(tmp_path):
    path = tmp_path / "place" / "serve.sock"
    path.parent.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HANGING]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        assert json.loads(process.stdout.readline())["event"] == "Ready"
        token = path.with_suffix(".token").read_text().strip()
        client = stack.enter_context(PolicyClient(path, token, timeout_s=PATIENCE_S))
        asking = threading.Thread(target=ask_in_vain, args=(client,))
        asking.start()
        until((tmp_path / "begun").exists, "the policy's work")
        process.terminate()
        until(lambda: refuses(path), "the end of listening")
        time.sleep(2 * ECHO_S)  # a signal that comes sooner would pass for the first one's echo
        assert process.poll() is None
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM and list(path.parent.iterdir()) == []
        asking.join(PATIENCE_S)


def ask_in_vain(client):
    with contextlib.suppress(ConnectionError):  # the server ends
        client.act(np.zeros(4))


def refuses(path):
    """Whether nobody listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == errno.ECONNREFUSED


def test_few_open_files_mean_few_clients_and_no_noise(run, tmp_path):
    path = tmp_path / "serve.sock"
    command = [sys.executable, "-m", "gmiflow.cli", "serve", str(run), "--device", "cpu", "--socket", str(path)]
    limited = ["bash", "-c", 'ulimit -n 200; exec "$@"', "serve", *command]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(limited, cwd=ROOT, stderr=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert "for lack of open files" in process.stderr.readline()
        assert process.stderr.readline().startswith("serving")
        token = path.with_suffix(".token").read_text().strip()
        refused = 0
        for _ in range(200):
            try:
                stack.callback(PolicyClient(path, token).close)
            except RefusedError as error:
                refused += error.reason == Reason.TOO_MANY_CLIENTS
        assert 100 < refused < 200
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S)[1].startswith("answered 0 requests")


def test_mistakes_are_told_without_a_traceback(run, tmp_path):
    short = tmp_path / "token"
    short.write_text("short\n")
    cases = {
        (str(run.parent),): (1, f"it holds 1 of them; the newest is {run}"),
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
