"""Serve workflows on one GPU: rollouts and steps as CUDA graphs, observations and actions in its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HORIZON, ITERATIONS, NUM_ENV = 16, 12, 256


def served(folder: Path, *options: str) -> tuple[dict, dict, str]:
    """The plan, the report and the logs of examples/ant_serve.gmi on an H200."""
    text = (ROOT / "examples" / "ant_serve.gmi").read_text().replace("targets.cpu", "targets.h200")
    (folder / "serve.gmi").write_text(text)
    words = ["run", str(folder / "serve.gmi"), "--iterations", str(ITERATIONS), "--run-dir", str(folder / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words, *options],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    plan, report = (json.loads((folder / "run" / name).read_text()) for name in ("plan.json", "report.json"))
    logs = "".join(log.read_text() for log in (folder / "run" / "logs").glob("gmi_*.log"))
    return plan, report["trainings"]["serve"], logs


def check_numbers(serve: dict, logs: str) -> None:
    """Every step was timed by itself, inside of graphs too."""
    assert serve["env_steps"] == ITERATIONS * HORIZON * NUM_ENV
    assert 0 < serve["latency_ms"]["p50"] <= serve["latency_ms"]["p99"]
    timed = [gmi for gmi in serve["gmis"] if "latency_ms" in gmi]
    assert all(gmi["timed_steps"] == HORIZON * (ITERATIONS - 8) for gmi in timed)  # eight iterations warm up
    # A step of all environments cannot be faster than the rate says: their times add up to that of the run.
    mean_s = NUM_ENV / len(timed) / min(gmi["env_steps_per_s"] for gmi in timed)
    assert serve["latency_ms"]["p50"] / 1000 < 3 * mean_s
    assert "steps are timed together" not in logs


@pytest.mark.gpu
@pytest.mark.parametrize("mapping", ["mp_dp", "dp_mp"])
def test_steps_cross_in_the_memory_of_the_gpu(tmp_path: Path, mapping: str) -> None:
    sizes = () if mapping == "mp_dp" else ("--set", "target.agents=2")
    plan, serve, logs = served(tmp_path, "--mapping", mapping, *sizes)
    assert [channel["kind"] for channel in plan["channels"]] == ["ipc", "ipc"]
    assert serve["execution"] == {"planned": "graph", "simulate": "graph", "infer": "graph"}
    assert serve["weights"]["equal_on_all_gmis"]
    check_numbers(serve, logs)


@pytest.mark.gpu
@pytest.mark.parametrize("gmis", [1, 2])
def test_a_whole_rollout_is_one_graph_where_roles_share_a_gmi(tmp_path: Path, gmis: int) -> None:
    _, serve, logs = served(tmp_path, "--mapping", "dp_only", "--gmi-per-gpu", str(gmis))
    assert serve["execution"] == {"planned": "graph", "collect": "graph"}
    check_numbers(serve, logs)


@pytest.mark.gpu
def test_a_policy_acts_alike_with_and_without_graphs(tmp_path: Path) -> None:
    """MuJoCo Warp does not repeat itself bit by bit; twelve short rollouts stay close in their mean return."""
    found = []
    for execution in ("eager", "graph"):
        folder = tmp_path / execution
        folder.mkdir()
        served(folder, "--mapping", "mp_dp", "--execution", execution)
        lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
        found.append([json.loads(line)["episodes"] for line in lines])
    assert sum(found[0]) == pytest.approx(sum(found[1]), rel=0.1, abs=5)
