"""The Triton kernel against the torch operations, on a GPU."""

import pytest
import torch
from task_support import Ant, Humanoid, make_task

pytestmark = pytest.mark.gpu

COUNT = 83
"""Not a multiple of a program's environments."""


def make(cls, fused):
    task = make_task(cls, COUNT, device="cuda")
    assert task._fused
    task._fused = fused
    task.reset()
    task._episode_step[3] = cls.info.episode_length - 10
    return task


def mirror(original, copy):
    """Let ``copy`` have the physics of ``original``, whose own is not repeatable to the bit on a GPU."""
    engines, step, seen = (original.engine, copy.engine), original.engine.step, {}

    def tensors(engine):
        return {"qpos": engine.qpos, "qvel": engine.qvel, "warmstart": engine.warmstart, **engine.derived}

    def observed_step():
        step()
        seen.update({name: tensor.clone() for name, tensor in tensors(engines[0]).items()})

    def mirrored_step():
        for name, tensor in tensors(engines[1]).items():
            tensor.copy_(seen[name])

    original.engine.step, copy.engine.step = observed_step, mirrored_step


@pytest.mark.parametrize("cls", [Ant, Humanoid])
def test_the_kernel_does_what_the_operations_do(cls):
    reference, fused = make(cls, False), make(cls, True)
    mirror(reference, fused)
    generator = torch.Generator(device="cuda").manual_seed(0)
    ends = 0
    for step in range(60):
        action = torch.rand(COUNT, cls.info.action_size, generator=generator, device="cuda") * 2.4 - 1.2
        if step == 20:
            reference.engine.qvel[5] = torch.nan  # physics that blows up
        if step == 30:
            reference.engine.qpos[7, 2] = 0.1  # a fall
        expected, got = reference.step({"action": action}), fused.step({"action": action})
        for name, tensor in expected.items():
            torch.testing.assert_close(got[name], tensor, atol=2e-5, rtol=2e-5)
        for name in ("qpos", "qvel", "warmstart"):
            torch.testing.assert_close(getattr(fused.engine, name), getattr(reference.engine, name))
        assert torch.equal(fused._episode_step, reference._episode_step)
        torch.testing.assert_close(fused.state_dict()["memory.last_place"], reference.state_dict()["memory.last_place"])
        ends += int((expected["terminated"] | expected["truncated"]).sum())
    assert ends >= 3
    assert reference.diagnostics()["diverged"] == fused.diagnostics()["diverged"] == 1
