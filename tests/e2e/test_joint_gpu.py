"""Replicas that share one simulator on a GPU: one CUDA graph for the rollouts of all, with a branch for each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
REPLICAS = 3
MASS = """edition 1

import std.algo.ppo
import std.targets

simulator PointMass() {
  entry = py "point_mass:PointMass"
  in  action     : f32[env, 2] range -1 .. 1
  out obs        : f32[env, 6]
  out reward     : f32[env]
  out terminated : bool[env]
  out truncated  : bool[env]
}

simulator sim     = PointMass()
agent     actor   = ppo.Actor(hidden = [64, 64])
trainer   learner = ppo.Learner()

workflow train {
  mode       = MODE
  num_env    = 256
  horizon    = 16
  iterations = 8

  sim.obs                             -> actor.obs
  actor.action                        -> sim.action
  actor.experience                    -> learner.experience
  actor.bootstrap                     -> learner.bootstrap
  sim.{reward, terminated, truncated} -> learner
  learner.weights                     -> actor.weights
}

target lab { base = targets.h200(gpus = 1) }
"""


def trained(folder: Path, file: Path, joint: int, *options: str) -> tuple[dict, list[dict]]:
    """The report of a run, and the weights of every replica."""
    words = ["run", str(file), "--run-dir", str(folder), "--target", "lab", "--set", f"train.replicas={REPLICAS}"]
    done = subprocess.run(
        [sys.executable, "-m", "gmiflow.cli", *words, "--set", f"train.joint={joint}", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    names = [folder / "checkpoints" / f"train.{n}" / "last" / "policy.safetensors" for n in range(REPLICAS)]
    return json.loads((folder / "report.json").read_text()), [load_file(name) for name in names]


def require_joint(report: dict, execution: str) -> None:
    for training in report["trainings"].values():
        assert training["execution"]["collect"] == "graph, joint with 2 other trainings"
        assert training["execution"]["learn"] == "graph"
        assert training["execution"]["planned"] == execution


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("mode", "execution"), [("sync", "graph"), ("async { max_staleness = 1 }", "overlap")], ids=["graph", "overlap"]
)
def test_replicas_have_the_weights_that_they_have_apart(tmp_path: Path, mode: str, execution: str) -> None:
    """The simulator is of torch operations alone, so nothing differs in a single bit."""
    shutil.copy(ROOT / "benchmarks" / "point_mass.py", tmp_path / "point_mass.py")
    file = tmp_path / "mass.gmi"
    file.write_text(MASS.replace("MODE", mode))
    report, together = trained(tmp_path / "joint", file, REPLICAS)
    require_joint(report, execution)
    _, apart = trained(tmp_path / "apart", file, 1)
    for own, other in zip(together, apart, strict=True):
        assert all((own[name] == other[name]).all() for name in other)
    assert any((together[0][name] != together[1][name]).any() for name in together[0])


@pytest.mark.gpu
def test_ants_train_joint(tmp_path: Path) -> None:
    file = ROOT / "examples" / "ant.gmi"
    report, weights = trained(tmp_path / "joint", file, REPLICAS, "--num-env", "256", "--iterations", "12")
    require_joint(report, "graph")
    assert all(value.isfinite().all() for own in weights for value in own.values())
