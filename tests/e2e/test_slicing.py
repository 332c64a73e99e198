"""CONTRACT, "Slice invariance": the same training on 1, 2 and 4 GMIs, as real processes on real physics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
GMIS = (1, 2, 4)


@pytest.fixture(scope="module", params=["ant", "quickstart"])
def checkpoints(request, tmp_path_factory) -> dict[int, Path]:
    """The last checkpoint of 3 iterations, by number of GMIs."""
    base = tmp_path_factory.mktemp(request.param)
    for gmis in GMIS:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "gmiflow.cli", "run", f"examples/{request.param}.gmi", "--target", "cpu"),
                *("--set", "workflow.num_env=128", "--iterations", "3", "--gmi-per-gpu", str(gmis)),
                *("--run-dir", str(base / str(gmis))),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stderr
    return {gmis: base / str(gmis) / "checkpoints" / "last" for gmis in GMIS}


@pytest.mark.parametrize("file", ["policy.safetensors", "trainer.safetensors"])
def test_slicing_changes_nothing(checkpoints, file):
    """Weights and normaliser; moments of Adam and the learning rate."""
    whole = load_file(checkpoints[1] / file)
    assert whole
    for gmis in GMIS[1:]:
        cut = load_file(checkpoints[gmis] / file)
        assert cut.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(cut[name], value, rtol=2e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")


def test_the_learning_rate_has_moved_and_is_equal(checkpoints):
    rates = {
        gmis: load_file(path / "trainer.safetensors")["learning_rate"].item() for gmis, path in checkpoints.items()
    }
    assert len(set(rates.values())) == 1
    assert rates[1] > 0
