"""Agents apart from trainers on one GPU: slots in its memory, mapped with CUDA IPC; by PPO and by A3C."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ITERATIONS = 8


def run(folder: Path, text: str, *options: str) -> tuple[dict, dict]:
    """The plan and the report of an example with agents and trainers apart, on a GPU, with its text ``text``."""
    file = folder / "cartpole.gmi"
    file.write_text(text.replace("targets.cpu", "targets.h200"))
    words = ["--iterations", str(ITERATIONS), *options, "--run-dir", str(folder / "run")]
    command = [sys.executable, "-m", "gmiflow.cli", "run", str(file), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    plan, report = (json.loads((folder / "run" / name).read_text()) for name in ("plan.json", "report.json"))
    return plan, report["trainings"]["train"]


@pytest.fixture
def text() -> str:
    return (ROOT / "examples" / "cartpole_async.gmi").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize("agents", [1, 2])
def test_rollouts_cross_in_the_memory_of_the_gpu(tmp_path: Path, text: str, agents: int) -> None:
    plan, training = run(tmp_path, text.replace("agents   = 1", f"agents   = {agents}"))
    assert [channel["kind"] for channel in plan["channels"]] == ["ipc"]
    assert training["weights"]["equal_on_all_gmis"]
    assert set(training["lags"]) <= {"0", "1"}
    assert sum(training["lags"].values()) == ITERATIONS * agents


@pytest.mark.gpu
def test_several_trainers_take_their_share_of_what_one_agent_collects(tmp_path: Path, text: str) -> None:
    plan, training = run(tmp_path, text.replace("trainers = 1", "trainers = 2"))
    assert [channel["kind"] for channel in plan["channels"]] == ["ipc", "ipc"]
    assert training["weights"]["equal_on_all_gmis"]
    assert sum(training["lags"].values()) == ITERATIONS * 2


@pytest.mark.gpu
def test_slots_are_copied_out_where_the_oldest_may_be_dropped(tmp_path: Path, text: str) -> None:
    changed = text.replace("on_full = block", "on_full = drop_oldest").replace("max_staleness = 1", "max_staleness = 2")
    _, training = run(tmp_path, changed.replace("depth = 1", "depth = 2"))
    assert training["weights"]["equal_on_all_gmis"]
    assert max(map(int, training["lags"])) <= 2
    assert sum(training["lags"].values()) == ITERATIONS


@pytest.mark.gpu
def test_without_staleness_the_weights_are_those_of_sync(tmp_path: Path, text: str) -> None:
    text = text.replace("max_staleness = 1", "max_staleness = 0")
    found = []
    for name, options in (("split", ()), ("whole", ("--mapping", "dp_only", "--gmi-per-gpu", "1"))):
        folder = tmp_path / name
        folder.mkdir()
        found.append(run(folder, text, *options)[1]["weights"])
    assert found[0] == found[1]


@pytest.mark.gpu
@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_trainers_on_one_gpu_apply_their_gradients_to_one_policy(tmp_path: Path, execution: str) -> None:
    """A3C: two trainers with an agent each; with `graph` the gradient has a graph for each of the two slots."""
    text = (ROOT / "examples" / "cartpole_a3c.gmi").read_text()
    words = ("--num-env", "1024", "--horizon", "16", "--execution", execution)
    plan, training = run(tmp_path, text, *words)
    assert [channel["kind"] for channel in plan["channels"]] == ["ipc", "ipc"]
    assert training["execution"] == {"planned": execution, "collect": execution, "learn": execution}
    assert training["weights"]["equal_on_all_gmis"]
    assert sum(training["lags"].values()) == ITERATIONS * 2
    assert max(map(int, training["lags"])) <= 3
