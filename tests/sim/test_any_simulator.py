"""Gymnasium's Ant-v5 and a user's own torch simulator train through the same `.gmi` file, but for the simulator."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GUIDE = ROOT / "docs" / "guides" / "own-simulator.md"


def gmiflow(*arguments, cwd):
    command = [sys.executable, "-m", "gmiflow.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, env=environment)


def without_the_simulator(path):
    """The file's statements without comments, less the simulator's import, declaration and stage."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("//", "import std.sim"))]
    text = re.sub(r"(?ms)^simulator \w+\(.*?^\}\n", "", "\n".join(lines) + "\n")
    return re.sub(r"\n+", "\n", re.sub(r"(?m)^simulator sim .*\n", "", text))


def test_the_examples_differ_in_their_simulator_only():
    one, other = (without_the_simulator(EXAMPLES / f"{name}.gmi") for name in ("gymnasium", "own_simulator"))
    assert one == other
    assert "sim.obs" in one and "simulator" not in one


@pytest.mark.parametrize(("name", "entry"), [("gymnasium", "gmiflow.sim.gymnasium"), ("own_simulator", "pendulum")])
def test_both_train_through_gmiflow_run(name, entry, tmp_path):
    run = tmp_path / "run"
    small = ["--num-env", "16", "--horizon", "16", "--iterations", "3"]
    done = gmiflow("run", str(EXAMPLES / f"{name}.gmi"), *small, "--run-dir", str(run), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = (run / "plan.json").read_text()
    assert f'"{entry}:' in plan
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert rows[-1]["total_env_steps"] == 3 * 16 * 16
    # The policy learns from what the simulator gives: gradients flow, and the normalised value fits something.
    assert all(row["metrics"]["gradient_norm"] > 0.0 and row["metrics"]["kl"] > 0.0 for row in rows)
    assert all(abs(row["metrics"]["value_loss"]) < 1e6 for row in rows)


def test_sizes_that_the_environment_does_not_have_are_reported(tmp_path):
    text = (EXAMPLES / "gymnasium.gmi").read_text().replace("obs_size = 105", "obs_size = 27")
    (tmp_path / "ant.gmi").write_text(text)
    done = gmiflow("run", "ant.gmi", "--num-env", "16", "--iterations", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "Ant-v5: the observation has size 105, but the .gmi file declares 27" in done.stderr
    assert "Traceback" not in done.stdout


def test_the_guide_and_the_example_hold_the_same_class():
    (code, *_) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert (EXAMPLES / "pendulum.py").read_text() == code


def test_the_guide_s_training_runs(tmp_path):
    (text, *_) = re.findall(r"```gmi\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "pendulum.gmi").write_text(text)
    (tmp_path / "pendulum.py").write_text((EXAMPLES / "pendulum.py").read_text())
    assert gmiflow("check", "pendulum.gmi", cwd=tmp_path).returncode == 0
    done = gmiflow("run", "pendulum.gmi", "--num-env", "32", "--iterations", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "finished after 2 iterations" in done.stderr + done.stdout
