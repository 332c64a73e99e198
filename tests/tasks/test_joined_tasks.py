"""One task for the environments of several trainings gives each what a task of its own gives."""

import pytest
import torch
from task_support import TASK_CLASSES, actions, make_task

from gmiflow.runtime.noise import CounterNoise
from gmiflow.sim.standalone import standalone_context

SEEDS, NUM_ENV, STEPS = (3, 4, 5), 16, 24


def joined(cls):
    task = cls()
    noise = CounterNoise.joined([CounterNoise(seed=seed, num_env=NUM_ENV, env_offset=0) for seed in SEEDS])
    task.setup(standalone_context(NUM_ENV * len(SEEDS), noise=noise))
    return task


@pytest.mark.parametrize("cls", TASK_CLASSES)
def test_environments_side_by_side_are_as_those_alone(cls):
    together, alone = joined(cls), [make_task(cls, NUM_ENV, seed=seed) for seed in SEEDS]
    assert torch.equal(together.reset()["obs"], torch.cat([task.reset()["obs"] for task in alone]))
    last = cls.info.episode_length - 2  # so that some episodes end by time too
    for task in (together, *alone):
        task._episode_step[3::NUM_ENV] = last
    for action in actions(together, STEPS):
        out = together.step({"action": action})
        parts = [task.step({"action": own}) for task, own in zip(alone, action.split(NUM_ENV), strict=True)]
        for port, value in out.items():
            assert torch.equal(value, torch.cat([part[port] for part in parts])), port


def test_every_tensor_of_the_state_has_a_row_per_environment():
    task = joined(TASK_CLASSES[-1])
    task.reset()
    assert {value.shape[0] for value in task.state_dict().values()} == {NUM_ENV * len(SEEDS)}
