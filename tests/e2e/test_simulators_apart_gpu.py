"""Simulators in GMIs of their own on one GPU: steps cross in its memory, and train what all roles together train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gmiflow.runtime import load_policy

ROOT = Path(__file__).parents[2]
ITERATIONS = 8


def trained(run: Path, *options: str) -> tuple[dict, dict, dict[str, torch.Tensor]]:
    """The plan, the report and the policy of examples/own_simulator.gmi, whose pendulum is plain torch, on a GPU."""
    words = ["run", str(ROOT / "examples" / "own_simulator.gmi"), "--target", "h200", "--num-env", "1024"]
    words += ["--iterations", str(ITERATIONS), "--run-dir", str(run), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gmiflow.cli", *words]
    done = subprocess.run(command, env=environment, cwd=run.parent, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    plan, report = (json.loads((run / name).read_text()) for name in ("plan.json", "report.json"))
    return plan, report["trainings"]["train"], load_policy(run).state_dict()


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> dict[str, torch.Tensor]:
    """The policy when one GMI has all roles."""
    folder = tmp_path_factory.mktemp("together")
    return trained(folder / "run", "--mapping", "dp_only", "--gmi-per-gpu", "1", "--execution", "eager")[2]


@pytest.mark.gpu
@pytest.mark.parametrize("execution", ["eager", "graph"])
@pytest.mark.parametrize(("mapping", "gmis", "kinds"), [("e_at", 2, ["ipc"]), ("dp_mp", 3, ["ipc", "ipc"])])
def test_steps_cross_in_the_memory_of_the_gpu(
    tmp_path: Path, together, mapping: str, gmis: int, kinds: list[str], execution: str
) -> None:
    words = ("--mapping", mapping, "--gmi-per-gpu", str(gmis), "--execution", execution)
    plan, training, policy = trained(tmp_path / "run", *words)
    assert [channel["kind"] for channel in plan["channels"]] == kinds
    parts = dict.fromkeys(("simulate", "infer", "learn"), execution)
    assert training["execution"] == {"planned": execution, **parts}
    assert training["weights"]["equal_on_all_gmis"]
    assert training["env_steps"] == ITERATIONS * 64 * 1024
    # In every step three observations, a reward and two flags there, and an action back.
    assert training["channels"]["moved_bytes"] == ITERATIONS * 64 * 1024 * (3 * 4 + 4 + 1 + 1 + 4)
    for name, value in together.items():
        torch.testing.assert_close(policy[name], value, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.gpu
def test_pairs_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Two simulators, two GMIs that act and train; the state of the simulators is on the GPU, the checkpoint is not."""
    words = ("--mapping", "e_at", "--gmi-per-gpu", "4")
    straight = trained(tmp_path / "straight", *words)[2]
    trained(tmp_path / "half", *words, "--iterations", str(ITERATIONS // 2))
    resumed = trained(tmp_path / "rest", *words, "--resume", str(tmp_path / "half"))[2]
    for name, value in straight.items():
        torch.testing.assert_close(resumed[name], value, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.gpu
def test_a_simulator_of_mujoco_warp_steps_for_an_agent_in_another_gmi(tmp_path: Path) -> None:
    """Its graph is captured in the simulator's process; what crosses is not of its own memory."""
    file = tmp_path / "ant.gmi"
    file.write_text((ROOT / "examples" / "ant.gmi").read_text())
    run = tmp_path / "run"
    words = ["run", str(file), "-w", "train", "--target", "h200", "--num-env", "256", "--iterations", str(ITERATIONS)]
    words += ["--mapping", "e_at", "--gmi-per-gpu", "2", "--run-dir", str(run)]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    training = json.loads((run / "report.json").read_text())["trainings"]["train"]
    assert training["execution"] == {"planned": "graph", "simulate": "graph", "infer": "graph", "learn": "graph"}
    assert training["weights"]["equal_on_all_gmis"]
