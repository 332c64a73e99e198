"""Agents apart from the trainer on one GPU: slots in its memory, mapped with CUDA IPC."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.gpu
@pytest.mark.parametrize("agents", [1, 2])
def test_rollouts_cross_in_the_memory_of_the_gpu(tmp_path: Path, agents: int) -> None:
    text = (ROOT / "examples" / "cartpole_async.gmi").read_text()
    text = text.replace("targets.cpu", "targets.h200").replace("agents   = 1", f"agents   = {agents}")
    file = tmp_path / "cartpole.gmi"
    file.write_text(text)
    words = ["--iterations", "8", "--run-dir", str(tmp_path / "run")]
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(file), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert [channel["kind"] for channel in plan["channels"]] == ["ipc"]
    training = json.loads((tmp_path / "run" / "report.json").read_text())["trainings"]["train"]
    assert training["weights"]["equal_on_all_gmis"]
    assert set(training["lags"]) <= {"0", "1"}
    assert sum(training["lags"].values()) == 8 * agents
