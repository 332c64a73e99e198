import subprocess
import sys

import pytest
import torch
from task_support import TASK_CLASSES, make_task

from gmiflow.tasks.catalog import TASKS

# The published table: observations, actions, episode steps, seconds per control step.
TABLE = {
    "cartpole": (4, 1, 500, 0.02),
    "cartpole_swing_up": (5, 1, 500, 0.02),
    "ant": (60, 8, 1000, 0.0166),
    "humanoid": (108, 21, 1000, 0.0166),
    "ball_balance": (24, 3, 500, 0.01),
    "anymal": (48, 12, 2500, 0.02),
    "franka_cabinet": (23, 9, 500, 0.0166),
    "shadow_hand": (211, 20, 600, 0.01667),
}


def test_the_catalog_has_the_published_sizes():
    assert {
        name: (info.observation_size, info.action_size, info.episode_length, info.control_dt)
        for name, info in TASKS.items()
    } == TABLE


@pytest.mark.parametrize("info", TASKS.values(), ids=TASKS.keys())
def test_the_parts_of_an_observation_add_up(info):
    assert sum(size for _, size in info.observation) == info.observation_size


@pytest.mark.parametrize("cls", TASK_CLASSES)
def test_a_task_has_the_sizes_of_its_entry(cls):
    task = make_task(cls, 4)
    info = cls.info
    assert info.entry == f"{cls.__module__}:{cls.__name__}"
    assert task.engine.model.nu == info.action_size
    assert task.engine.model.opt.timestep * info.substeps == pytest.approx(info.control_dt, rel=1e-12)
    obs = task.reset()["obs"]
    assert obs.shape == (4, info.observation_size) and obs.dtype == torch.float32
    out = task.step({"action": torch.zeros(4, info.action_size)})
    assert out["obs"].shape == (4, info.observation_size)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in out.items() if name != "obs"} == {
        "reward": ((4,), torch.float32),
        "terminated": ((4,), torch.bool),
        "truncated": ((4,), torch.bool),
    }


def test_the_catalog_imports_neither_torch_nor_a_simulator():
    code = "import sys, gmiflow.tasks.catalog; print({'torch', 'mujoco', 'warp', 'numpy'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout.strip() == "set()"
