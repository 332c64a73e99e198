"""The guide's simulator trains through `gmiflow run` in an interpreter of its own, is interrupted, and goes on."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guides" / "foreign-interpreters.md").read_text(encoding="utf-8")
SMALL = ["--num-env", "32", "--horizon", "8", "--gmi-per-gpu", "2"]


@pytest.fixture
def folder(tmp_path, python):
    (code,) = re.findall(r"^```python file=cart.py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    text = next(t for t in re.findall(r"^```gmi\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE) if "Cart" in t)
    (tmp_path / "cart.py").write_text(code)
    (tmp_path / "cart.gmi").write_text(text.replace("/opt/py38/bin/python", str(python)))
    return tmp_path


def start(folder, *arguments, mark):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", leftovers.MARK: mark}
    command = [sys.executable, "-m", "gmiflow.cli", "run", "cart.gmi", *SMALL, "--run-dir", "run", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def rows(folder):
    path = folder / "run" / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be half written
    return [json.loads(line) for line in whole.splitlines()]


def test_it_trains_is_interrupted_and_goes_on(folder):
    mark = f"{folder.name}-{os.getpid()}"
    running = start(folder, "--iterations", "100000", mark=mark)
    until(lambda: rows(folder) or running.poll() is not None, "an iteration")
    hosts = [pid for pid in leftovers.processes(mark) if b"gmiflow_shim" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=PATIENCE_S)
    assert len(hosts) == 2, output
    assert leftovers.wait_for_none(mark) == [] and leftovers.files(running.pid) == []
    made = rows(folder)[-1]["iteration"]
    going_on = start(folder, "--resume", "run", "--iterations", str(made + 1), mark=mark)
    output, _ = going_on.communicate(timeout=PATIENCE_S)
    assert going_on.returncode == 0, output
    last = rows(folder)[-1]
    assert (last["iteration"], last["total_env_steps"]) == (made + 1, 32 * 8 * (made + 1))
    assert last["metrics"]["gradient_norm"] > 0
    assert leftovers.wait_for_none(mark) == []
    log = next((folder / "run" / "logs").glob("gmi_00*")).read_text()
    assert re.search(r"sim runs in .*: Python 3\.\d+\.\d+, NumPy ", log)
