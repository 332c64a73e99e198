"""The guide's own simulator on a GPU: what it trains to does not depend on whether its rollouts are CUDA graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gmiflow.runtime import load_policy

ROOT = Path(__file__).parents[2]


@pytest.mark.gpu
def test_graphs_train_the_pendulum_as_plain_calls_do(tmp_path: Path) -> None:
    found = []
    for chosen in ("eager", "graph"):
        run = tmp_path / chosen
        words = ["run", str(ROOT / "examples" / "own_simulator.gmi"), "--target", "h200", "--iterations", "12"]
        words += ["--execution", chosen, "--num-env", "1024", "--run-dir", str(run)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "gmiflow.cli", *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        found.append(load_policy(run).state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-3, msg=name)
