"""The real command: without staleness, agents apart from the trainer leave the weights of one GMI with all roles."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def report_of(run_dir: Path, file: Path, *options: str) -> dict:
    words = ["--iterations", "2", "--num-env", "32", *options, "--run-dir", str(run_dir)]
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(file), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=run_dir.parent, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    told = "train: experience was 0.00 policy versions old in the mean, 0 at most" in done.stdout
    assert told == (run_dir.name == "split"), done.stdout
    return json.loads((run_dir / "report.json").read_text())["trainings"]["train"]


def test_without_staleness_the_weights_are_those_of_sync(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "cartpole_async.gmi").read_text()
    text = text.replace("max_staleness = 1", "max_staleness = 0").replace("targets.cpu", "targets.cpu(cores = 1)")
    file = tmp_path / "cartpole.gmi"
    file.write_text(text)
    split = report_of(tmp_path / "split", file)
    whole = report_of(tmp_path / "whole", file, "--mapping", "dp_only", "--gmi-per-gpu", "1")
    assert (len(split["gmis"]), split["lags"]) == (2, {"0": 2})
    assert len(whole["gmis"]) == 1
    assert split["weights"]["equal_on_all_gmis"]
    assert split["weights"] == whole["weights"]
