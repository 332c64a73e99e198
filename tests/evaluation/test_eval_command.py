"""`gmiflow eval` and `gmiflow render --policy` on a run of two replicas."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.commands import eval as eval_module
from gmiflow.commands import render as render_module

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replicas")
    options = ["--num-env", "64", "--iterations", "4", "--gmi-per-gpu", "1", "--set", "workflow.replicas=2"]
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(ROOT / "examples" / "quickstart.gmi"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--run-dir", "run"], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def evaluate(*arguments):
    done = CliRunner().invoke(eval_module.command, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


def test_every_replica_is_evaluated(run):
    document = json.loads(evaluate(run, "--episodes", "8", "--format", "json").stdout)
    assert (document["task"], document["seed"]) == ("cartpole", 12345)
    first, second = document["trainings"]
    assert [row["training"] for row in (first, second)] == ["train.0", "train.1"]
    assert second["seed"] == first["seed"] + 1
    assert first["mean_return"] != second["mean_return"]
    for row in (first, second):
        assert (row["episodes"], row["unfinished"], row["checkpoint"]) == (8, 0, "iter_000004")
        assert row["mean_return"] == row["episode_length"]  # a reward of 1 per step
        assert row["solved"] is False
        assert 0 < row["measures"]["pole_angle"] < 0.3


def test_one_training_and_the_best_checkpoint(run):
    """The same episodes at every call; a checkpoint names its training."""
    both = json.loads(evaluate(run, "--episodes", "8", "--best", "--format", "json").stdout)["trainings"]
    options = ("--episodes", "8", "--training", "train.1", "--format", "json")
    (named,) = json.loads(evaluate(run / "checkpoints" / "train.1" / "best", *options).stdout)["trainings"]
    assert named == both[1]
    assert named["checkpoint"].startswith("iter_")  # `best` is a link


def test_the_table_shows_the_goal(run):
    lines = evaluate(run, "--episodes", "4").stdout.splitlines()
    assert lines[0].split() == ["training", "episodes", "return", "+-", "steps", "survival", "pole_angle", "rad"]
    assert [line.split()[0] for line in lines[1:]] == ["train.0", "train.1", "goal"]
    assert lines[1].endswith("not solved")
    assert ">= 475" in lines[3] and ">= 0.9" in lines[3]


def test_what_is_no_run_is_said(run, tmp_path):
    done = CliRunner().invoke(eval_module.command, [str(tmp_path)])
    assert done.exit_code == 1
    assert "error[E0707]" in done.output and "neither a run directory nor a checkpoint" in done.output
    done = CliRunner().invoke(eval_module.command, [str(run), "--training", "train.7"])
    assert "its trainings are train.0, train.1" in done.output


def test_a_policy_is_drawn(run, tmp_path):
    checkpoint, movie = run / "checkpoints" / "train.1" / "last", tmp_path / "cart.mp4"
    arguments = ["--policy", str(run), "--training", "train.1", "--steps", "12", "-o", str(movie)]
    done = CliRunner().invoke(render_module.command, arguments)
    assert (done.exit_code, done.stdout) == (0, f"{movie}\n"), done.output
    assert movie.read_bytes()[4:8] == b"ftyp"
    assert checkpoint.is_dir()


def test_a_policy_of_another_task_is_refused(run):
    done = CliRunner().invoke(render_module.command, ["ant", "--policy", str(run)])
    assert done.exit_code == 2
    assert "it was trained in cartpole, not in ant" in done.output
    done = CliRunner().invoke(render_module.command, [])
    assert "name a task, or a run with --policy" in done.output
