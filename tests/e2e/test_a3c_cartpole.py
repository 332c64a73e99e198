"""The real command: CartPole learns with A3C on the CPU, the bound on the lag holds, and all hold the same policy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ITERATIONS = 24


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of the example: two agents of 32 environments each, two trainers."""
    found = tmp_path_factory.mktemp("a3c") / "run"
    example = str(ROOT / "examples" / "cartpole_a3c.gmi")
    words = ["--num-env", "64", "--horizon", "24", "--iterations", str(ITERATIONS), "--run-dir", str(found)]
    command = [sys.executable, "-m", "gmiflow.cli", "run", example, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=found.parent, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return found


def test_cartpole_learns(run_dir: Path) -> None:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    returns = [line["mean_return"] for line in lines]
    assert len(lines) == ITERATIONS
    assert max(returns) > 2.5 * returns[0]


def test_nothing_older_than_the_bound_was_applied(run_dir: Path) -> None:
    training = json.loads((run_dir / "report.json").read_text())["trainings"]["train"]
    assert sum(training["lags"].values()) == 2 * ITERATIONS
    assert max(map(int, training["lags"])) <= 3
    assert training["weights"]["equal_on_all_gmis"]
    assert training["training_samples_per_s"] > 0


def test_the_plan_shows_who_shares_parameters(run_dir: Path) -> None:
    plan = json.loads((run_dir / "plan.json").read_text())
    assert plan["trainings"][0]["update"] == "apply"
    assert plan["collectives"] == []
    assert [(channel["producers"], channel["consumer"]) for channel in plan["channels"]] == [([0], 2), ([1], 3)]
    program = " ".join(next(run_dir.rglob("gmi_02.py")).read_text().split())
    assert "Applies its gradients to parameters that it shares with GMI 3." in program
