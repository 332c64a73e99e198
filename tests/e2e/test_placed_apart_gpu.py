"""Stages on two GPUs: what crosses is written into the memory of the other GPU, and trains what one GPU trains."""

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
APART = "place { sim = devices(0), actor = devices(%d), learner = devices(1) }"


def trained(folder: Path, place: str, *options: str) -> tuple[dict, dict, dict[str, torch.Tensor]]:
    """The plan, the report and the policy of examples/own_simulator.gmi, whose pendulum is plain torch."""
    text = (ROOT / "examples" / "own_simulator.gmi").read_text()
    assert text.count("  horizon") == 1
    file, run = folder / "placed.gmi", folder / "run"
    file.write_text(text.replace("  horizon", f"  {place}\n  horizon"))
    (folder / "pendulum.py").write_text((ROOT / "examples" / "pendulum.py").read_text())
    words = ["run", str(file), "--target", "h200(gpus=2)", "--num-env", "1024", "--iterations", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words, "--run-dir", str(run), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    plan, report = (json.loads((run / name).read_text()) for name in ("plan.json", "report.json"))
    return plan, report["trainings"]["train"], load_policy(run).state_dict()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("actor", "options", "mapping", "devices"),
    [
        (0, ["--execution", "graph"], "ea_t", [0, 1]),
        (0, ["--set", "target.agents=2"], "ea_t", [0, 0, 1]),
        (0, ["--set", "target.agents=1", "--set", "target.trainers=2"], "ea_t", [0, 1, 1]),
        (1, [], "e_at", [0, 1]),
    ],
)
def test_stages_on_two_gpus_train_what_one_trains(tmp_path: Path, actor, options, mapping, devices) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for name in ("together", "apart"):
        (tmp_path / name).mkdir()
    together = trained(tmp_path / "together", "place { sim = devices(1) }", "--execution", "eager")[2]
    plan, training, policy = trained(tmp_path / "apart", APART % actor, *options)
    assert (plan["trainings"][0]["mapping"], [gmi["device"] for gmi in plan["gmis"]]) == (mapping, devices)
    assert {channel["kind"] for channel in plan["channels"]} == {"p2p"}
    assert training["weights"]["equal_on_all_gmis"]
    for name, value in together.items():
        torch.testing.assert_close(policy[name], value, rtol=1e-3, atol=1e-3, msg=name)
