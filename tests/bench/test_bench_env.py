"""A simulator as rsl_rl's environment: what its PPO is given, step by step."""

import pytest

pytest.importorskip("rsl_rl")

import torch

from gmiflow.api import Simulator
from gmiflow.bench.rsl_rl import EpisodeSums, SimulatorEnv


class Counter(Simulator):
    """Two environments; the observation is the step, the reward the action: one falls at step 2, one is cut at 3."""

    def setup(self, context):
        """Nothing: all is said in the class."""

    def reset(self):
        self.number = 0
        return {"obs": torch.zeros(2, 1)}

    def step(self, inputs):
        self.number += 1
        return {
            "obs": torch.full((2, 1), float(self.number)),
            "reward": inputs["action"][:, 0].clone(),
            "terminated": torch.tensor([self.number == 2, False]),
            "truncated": torch.tensor([False, self.number == 3]),
        }


def test_rewards_are_scaled_and_ends_told_apart():
    sums = EpisodeSums(2, "cpu")
    env = SimulatorEnv(Counter(), num_env=2, action_size=1, device="cpu", reward_scale=0.5, count=sums.add)
    given = []
    for value in (1.0, 2.0, 4.0):
        observation, reward, done, extras = env.step(torch.tensor([[value], [10.0]]))
        seen = (observation["policy"].flatten(), reward, done, extras["time_outs"])
        given.append(tuple(tensor.tolist() for tensor in seen))
    assert given == [
        ([1.0, 1.0], [0.5, 5.0], [False, False], [False, False]),
        ([2.0, 2.0], [1.0, 5.0], [True, False], [False, False]),
        ([3.0, 3.0], [2.0, 5.0], [False, True], [False, True]),
    ]
    # Unscaled: 1 + 2 in two steps, and 10 + 10 + 10 in three; what the first began again does not count yet.
    assert sums.totals.tolist() == [2.0, 33.0, 5.0]
