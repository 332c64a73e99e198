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


ELSEWHERE = """
import dataclasses
import os
import pathlib
import types

from gmiflow.runtime.comm.channel import device
from gmiflow.runtime.comm.collectives import cuda_driver


def describe(gpu):
    return dataclasses.replace(cuda_driver.describe(gpu), uuid=f"{os.getpid():032x}")


def copy_rows(*arguments):
    pathlib.Path(__file__).with_name("copied").touch()
    cuda_driver.copy_rows(*arguments)


elsewhere = types.SimpleNamespace(**{**vars(cuda_driver), "describe": describe, "copy_rows": copy_rows})
device.load_driver = lambda: elsewhere
"""
"""Python runs it first, as `sitecustomize`: every process takes the GPU of the others for another one than its own."""


def trained(
    folder: Path, place: str, *options: str, first: str = "", target: str = "h200(gpus=2)"
) -> tuple[dict, dict, dict[str, torch.Tensor]]:
    """The plan, the report and the policy of examples/own_simulator.gmi, whose pendulum is plain torch."""
    text = (ROOT / "examples" / "own_simulator.gmi").read_text()
    assert text.count("  horizon") == 1
    folder.mkdir()
    file, run = folder / "placed.gmi", folder / "run"
    file.write_text(text.replace("  horizon", f"  {place}\n  horizon"))
    (folder / "pendulum.py").write_text((ROOT / "examples" / "pendulum.py").read_text())
    (folder / "sitecustomize.py").write_text(first)
    words = ["run", str(file), "--target", target, "--num-env", "1024", "--iterations", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words, "--run-dir", str(run), *options],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
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
    words = ["--mapping", mapping, "--gmi-per-gpu", str(len(devices)), *options]
    together = trained(tmp_path / "together", "place { sim = devices(1) }", *words)[2]
    plan, training, policy = trained(tmp_path / "apart", APART % actor, *options)
    assert (plan["trainings"][0]["mapping"], [gmi["device"] for gmi in plan["gmis"]]) == (mapping, devices)
    assert {channel["kind"] for channel in plan["channels"]} == {"p2p"}
    assert training["weights"]["equal_on_all_gmis"]
    for name, value in together.items():
        torch.testing.assert_close(policy[name], value, rtol=1e-3, atol=1e-3, msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("mapping", "gmis", "execution"),
    [("ea_t", 2, "graph"), ("ea_t", 3, "eager"), ("e_at", 2, "graph"), ("e_at", 4, "eager")],
)
def test_one_gpu_taken_for_two_trains_what_it_trains(tmp_path: Path, mapping: str, gmis: int, execution: str) -> None:
    """All that two GPUs need but the wire between them: real memory of another process, mapped and copied to."""
    words = ["--mapping", mapping, "--gmi-per-gpu", str(gmis), "--execution", execution]
    together = trained(tmp_path / "together", "", *words, target="h200")[2]
    training, policy = trained(tmp_path / "apart", "", *words, first=ELSEWHERE, target="h200")[1:]
    assert (tmp_path / "apart" / "copied").exists()
    assert training["weights"]["equal_on_all_gmis"]
    for name, value in together.items():
        torch.testing.assert_close(policy[name], value, rtol=1e-3, atol=1e-3, msg=name)
