"""`gmiflow bench train` as a user meets it: real trainings of CartPole, two iterations long."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gmiflow.commands.bench import command

ROOT = Path(__file__).parents[2]
SMALL = ["--tasks", "cartpole", "--num-env", "64", "--iterations", "2", "--target", "cpu"]


def bench(*arguments, exit_code=0):
    done = CliRunner().invoke(command, ["train", *map(str, arguments)])
    assert done.exit_code == exit_code, done.output
    return done


def rows_in(folder):
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two seeds side by side, evaluated."""
    folder = tmp_path_factory.mktemp("bench") / "out"
    return folder, bench(*SMALL, "--seeds", 2, "--seed", 3, "--replicas", "--episodes", 4, "--out", folder)


def test_a_row_holds_training_and_behaviour(made):
    folder, done = made
    first, second = rows_in(folder)
    assert [row["seed"] for row in (first, second)] == [3, 4]
    for row in (first, second):
        assert (row["task"], row["side"], row["replicas"], row["stopped_by"]) == (
            "cartpole",
            "gmiflow",
            2,
            "iterations",
        )
        assert (row["iterations"], row["env_steps"], row["horizon"]) == (2, 2 * 64 * 32, 32)
        assert row["steps_per_s"] > 0 and row["wall_s"] > row["train_s"] > 0
        assert row["goal"] == 475.0 and row["goal_s"] is None
        assert row["evaluation"]["seed"] == row["seed"] and row["evaluation"]["episodes"] == 4
        assert row["curve"][-1][1] == row["env_steps"]
    assert first["curve"] != second["curve"]
    lines = done.stdout.splitlines()
    assert lines[2].startswith("| cartpole | gmiflow, 2 side by side | 2     |")
    assert len({len(line) for line in lines[:3]}) == 1  # columns stand below each other
    said = [line for line in done.stderr.splitlines() if line.startswith("  seed ")]
    assert [line.partition(" env steps in ")[0] for line in said] == [
        "  seed 3: 2 iterations, 4,096", "  seed 4: 2 iterations, 4,096",
    ]  # fmt: skip
    assert said[0].endswith(f"{first['evaluation']['mean_return']:,.1f} without exploration")
    assert f"the runs are in {folder}" in done.stderr
    assert (folder / "table.md").read_text() == done.stdout
    assert (folder / "curves.png").exists()


def test_what_is_there_is_not_made_again(made):
    folder, _ = made
    before = (folder / "rows.jsonl").read_bytes()
    again = bench(*SMALL, "--seeds", 2, "--seed", 3, "--replicas", "--out", folder, "--format", "json")
    assert (folder / "rows.jsonl").read_bytes() == before
    assert [json.loads(line) for line in again.stdout.splitlines()] == rows_in(folder)
    assert "[" not in again.stderr  # nothing was begun


def test_a_row_that_was_torn_is_made_again(made):
    folder, _ = made
    path = folder / "rows.jsonl"
    first, second = rows_in(folder)
    path.write_bytes(path.read_bytes()[:-100])
    bench(*SMALL, "--seeds", 2, "--seed", 3, "--replicas", "--episodes", 0, "--out", folder)
    again = rows_in(folder)
    assert again[0] == first
    assert (again[1]["key"], again[1]["evaluation"]) == (second["key"], None)
    # The same seed makes the same training: returns and steps are equal, times are not.
    assert [point[1:] for point in again[1]["curve"]] == [point[1:] for point in second["curve"]]


def test_a_budget_begins_nothing_that_it_would_cut_off(tmp_path):
    options = ["--tasks", "ant,cartpole", "--seeds", 1, "--target", "cpu", "--seconds", "60s", "--budget", "50s"]
    done = bench(*options, "--out", tmp_path / "out")
    assert done.stdout == ""
    assert "2 of 2 rows are left: the same command goes on" in done.stderr
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "ant,aunt"], "there is no task 'aunt'; there are ant, humanoid, anymal"),
        (["--against", "sb3"], "there is no peer 'sb3'; there are rsl_rl, rsl_rl_graphed"),
        (["--only-against"], "--only-against needs --against"),
        (["--set", "workflow.horizon"], "--set workflow.horizon: expected PATH=VALUE"),
        (["--target", "cpu", "--set", "workflow.horizn=8"], "E0215: "),
    ],
)
def test_wrong_usage(arguments, message, tmp_path):
    done = bench(*arguments, "--out", tmp_path / "out", exit_code=2)
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "out" / "rows.jsonl").exists()


def test_without_the_peer_s_package_the_mend_is_said(tmp_path):
    # A finder that overlooks a package makes the process one that does not have it.
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def overlook(name, *arguments, **options):\n"
        "    return None if name in ('rsl_rl', 'tensordict') else find(name, *arguments, **options)\n"
        "PathFinder.find_spec = overlook\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "gmiflow.cli", "bench", "train", *SMALL, "--against", "rsl_rl"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("error[E0719]: --against rsl_rl needs the Python package rsl_rl and tensordict\n")
    assert "pip install rsl-rl-lib tensordict" in done.stderr
    assert not (tmp_path / "bench-train").exists()


def test_rsl_rl_trains_on_the_same_simulator(tmp_path):
    pytest.importorskip("rsl_rl")
    folder = tmp_path / "out"
    bench(*SMALL, "--seeds", 1, "--against", "rsl_rl", "--only-against", "--episodes", 4, "--out", folder)
    (row,) = rows_in(folder)
    assert (row["side"], row["iterations"], row["env_steps"]) == ("rsl_rl", 2, 2 * 64 * 32)
    assert row["evaluation"]["episodes"] == 4
    assert 0 < row["evaluation"]["measures"]["pole_angle"] < 0.3
    # Every step is rewarded by 1 until the pole leans by 12 degrees: poles fall after some tenths of a second.
    assert 5.0 < row["last_return"] < 200.0


@pytest.mark.gpu
def test_both_sides_on_a_gpu(tmp_path):
    """The command of the guide, short: gmiflow, rsl_rl, and rsl_rl with the simulator's step as one CUDA graph."""
    pytest.importorskip("rsl_rl")
    folder = tmp_path / "out"
    peers = "rsl_rl,rsl_rl_graphed"
    bench("--tasks", "ant", "--num-env", 256, "--iterations", 5, "--seeds", 1, "--against", peers, "--out", folder)
    rows = rows_in(folder)
    assert [row["side"] for row in rows] == ["gmiflow", "rsl_rl", "rsl_rl_graphed"]
    for row in rows:
        assert (row["iterations"], row["env_steps"]) == (5, 5 * 256 * 16)
        assert row["evaluation"]["episodes"] == 64
        assert abs(row["evaluation"]["measures"]["forward_speed"]) < 20.0
