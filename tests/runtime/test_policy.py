"""A trained policy as a torch module."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from plans import launch_plan, training_plan, write_programs
from point_mass import LinearPolicy
from safetensors.torch import load_file

from gmiflow.runtime import load_policy
from gmiflow.runtime.checkpoint import CheckpointReader
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.launch import run_plan
from gmiflow.runtime.run_directory import find_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("policy")
    trainings = [training_plan(name=name, seed=seed, checkpoint_every=2) for name, seed in (("a", 1), ("b", 2))]
    plan = launch_plan(*trainings, gmis=1)
    result = run_plan(plan, write_programs(plan, base / "programs"), base / "run")
    assert result.exit_code == 0
    (base / "run" / "plan.json").write_text(plan.to_json())
    return base / "run"


def test_the_module_has_the_weights_of_the_checkpoint(run):
    for name in ("a", "b"):
        policy = load_policy(run, training=name)
        saved = load_file(run / "checkpoints" / name / "last" / "policy.safetensors")
        assert {key: value.tolist() for key, value in policy.state_dict().items()} == {
            key: value.tolist() for key, value in saved.items()
        }
        assert not policy.training


def test_one_checkpoint_can_be_named(run):
    folder = run / "checkpoints" / "a" / "iter_000002"
    first = load_policy(folder, training="a").state_dict()
    last = load_policy(run, training="a").state_dict()
    assert any(not torch.equal(first[key], last[key]) for key in last)
    saved = load_file(folder / "policy.safetensors")
    assert all(torch.equal(first[key], saved[key]) for key in saved)


@pytest.mark.parametrize(
    ("place", "training", "words"),
    [
        ("", None, "the run has several trainings; its trainings are a, b"),
        ("", "c", "the run has no training c; its trainings are a, b"),
        ("checkpoints/nosuch", "a", "there is no checkpoint of the training a"),
        ("..", "a", "neither a run directory nor a checkpoint in one"),
    ],
)
def test_mistakes_are_named(run, place, training, words):
    with pytest.raises(GMIError, match=re.escape(words)) as raised:
        load_policy(run / place, training=training)
    assert raised.value.failure.code == "E0707"


def test_a_folder_of_runs_names_the_newest(run):
    with pytest.raises(GMIError) as raised:
        load_policy(run.parent)
    assert raised.value.failure.notes == (f"it holds 1 of them; the newest is {run}",)


def test_what_serves_keeps_no_policy(tmp_path):
    (tmp_path / "plan.json").write_text('{"trainings": [{"name": "serve", "mode": "serve"}]}')
    with pytest.raises(GMIError, match="there is no checkpoint of the training serve") as raised:
        find_checkpoint(tmp_path, "serve")
    assert raised.value.failure.notes == ("a workflow that serves keeps none: name the run whose policy it served",)
    (tmp_path / "plan.json").write_text("[")
    with pytest.raises(GMIError) as raised:
        find_checkpoint(tmp_path, "serve")
    assert raised.value.failure.notes == ()


def test_weights_of_another_policy_are_refused_with_both_sizes(run):
    reader = CheckpointReader(run / "checkpoints" / "a" / "last")
    other = LinearPolicy(4, 3)  # the run's has two actions
    other.register_buffer("scale", torch.ones(4))
    with pytest.raises(GMIError, match="is another one") as raised:
        reader.restore_policy(other)
    assert raised.value.failure.notes[:-1] == (
        "`scale` is not in the checkpoint",
        "`weight` is [2, 4] in the checkpoint and [3, 4] here",
        "`log_std` is [2] in the checkpoint and [3] here",
    )


def test_the_guide(tmp_path, monkeypatch):
    """Its first example, on a run of the project that `gmiflow new` makes, with as many numbers; export as well."""
    import subprocess

    command = [sys.executable, "-m", "gmiflow.cli"]
    subprocess.run([*command, "new", "hover"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    project = tmp_path / "hover"
    options = ["--iterations", "2", "--num-env", "64", "--run-dir", "runs/pole"]
    subprocess.run([*command, "run", "hover.gmi", *options], cwd=project, check=True, capture_output=True, timeout=200)
    monkeypatch.chdir(project)
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/using-a-policy.md").read_text(), re.DOTALL)
    scope: dict = {}
    exec(first, scope)
    assert scope["action"].shape[0] == 1
    assert scope["action"].abs().max() <= 1.0
    assert scope["value"].isfinite().all()
    exec(next(line for line in second.splitlines() if "torch.export.save" in line), scope)
    again = torch.export.load("pole.pt2").module()
    torch.testing.assert_close(again(scope["obs"])[0], scope["mean"])
