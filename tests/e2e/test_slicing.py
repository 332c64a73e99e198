"""CONTRACT, "Slice invariance": the same training on 1, 2 and 4 GMIs, as real processes on real physics."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[1] / "runtime"))

from shared_fork_server import SharedForkServer

from gmiflow.pipeline import Options, compile_file
from gmiflow.runtime.launch import run_plan

ROOT = Path(__file__).parents[2]
GMIS = (1, 2, 4)


@pytest.fixture(scope="module", params=["ant", "quickstart"])
def checkpoints(request, tmp_path_factory) -> dict[int, Path]:
    """The last checkpoint of 3 iterations, by number of GMIs."""
    base = tmp_path_factory.mktemp(request.param)
    with SharedForkServer(base) as launcher:
        for gmis in GMIS:
            overrides = (("workflow.num_env", "128"), ("workflow.iterations", "3"), ("target.gmi_per_gpu", str(gmis)))
            options = Options(target="cpu", overrides=overrides, use_profiles=False)
            compiled = compile_file(str(ROOT / "examples" / f"{request.param}.gmi"), options)
            assert compiled.plan is not None and compiled.programs is not None, compiled.diagnostics
            programs = base / f"programs_{gmis}"
            programs.mkdir()
            for name, text in compiled.programs.items():
                (programs / name).write_text(text)
            result = run_plan(compiled.plan, programs, base / str(gmis), launcher=launcher)
            assert result.exit_code == 0, result.failures
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
