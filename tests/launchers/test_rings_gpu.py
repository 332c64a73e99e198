"""On two GPUs: a run whose gradients go through NCCL inside of CUDA graphs ends by itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.gpu
def test_a_run_on_two_gpus_ends(tmp_path):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    command = ["run", "examples/ant.gmi", "--target", "h200(gpus=2)", "--num-env", "2048", "--iterations", "6"]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *command, "--run-dir", str(tmp_path / "run"), "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    started = next(event for event in events if event["event"] == "Started")
    assert set(started["lowering"]["train"].values()) == {"graph"}
    assert "not closed" not in "".join(path.read_text() for path in (tmp_path / "run" / "logs").glob("*"))
