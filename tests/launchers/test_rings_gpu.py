"""On two GPUs: a run whose gradients go through NCCL inside of CUDA graphs ends by itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("options", "kind", "captured"),
    [
        ([], "rp", True),
        (["--gmi-per-gpu", "2"], "hybrid", True),
        (["--gmi-per-gpu", "2", "--set", "target.rings=1"], "hybrid", False),  # the paper's, through the host
        (["--gmi-per-gpu", "2", "--set", "target.rings=2"], "hybrid", True),
    ],
)
def test_a_run_on_two_gpus_ends(tmp_path, options, kind, captured):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    command = ["run", "examples/ant.gmi", "--target", "h200(gpus=2)", "--num-env", "2048", "--iterations", "6"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "gmiflow.cli",
            *command,
            *options,
            "--run-dir",
            str(tmp_path / "run"),
            "--format",
            "json",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    started = next(event for event in events if event["event"] == "Started")
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert [group["kind"] for group in plan["collectives"]] == [kind]
    assert started["lowering"]["train"]["collect"] == "graph"
    assert (started["lowering"]["train"]["learn"] == "graph") == captured
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["trainings"]["train"]["weights"]["equal_on_all_gmis"]
    assert "not closed" not in "".join(path.read_text() for path in (tmp_path / "run" / "logs").glob("*"))
