"""V-trace against numbers worked out by hand, and against generalised advantage estimation."""

import math

import pytest
import torch

from gmiflow.rl.returns import AdvantageEstimator
from gmiflow.rl.vtrace import VTraceEstimator

CLIPPED, HALF, SAME = math.log(2.0), math.log(0.5), 0.0


def estimate(reward, truncated, value, bootstrap, log_ratio):
    tensors = {
        "reward": torch.tensor(reward, dtype=torch.float32),
        "terminated": torch.zeros(len(reward), 1, dtype=torch.bool),
        "truncated": torch.tensor(truncated, dtype=torch.bool),
        "value": torch.tensor(value, dtype=torch.float32),
        "bootstrap": torch.tensor(bootstrap, dtype=torch.float32),
        "log_ratio": torch.tensor(log_ratio, dtype=torch.float32),
    }
    estimator = VTraceEstimator(horizon=len(reward), num_env=1, gamma=0.5, lam=0.5)
    estimator.compute(**tensors)
    return estimator.advantage.flatten().tolist(), estimator.returns.flatten().tolist()


def test_three_steps_by_hand():
    # rho = 1 (clipped from 2), 1/2, 1; c = lam rho.
    # v_2 - V_2 = 3 + .5 * 8 - 4 = 3
    # v_1 - V_1 = .5 (2 + .5 * 4 - 2) + .5 * .25 * 3 = 1.375
    # v_0 - V_0 = (1 + .5 * 2 - 1) + .5 * .5 * 1.375 = 1.34375
    # A_2 = 3; A_1 = .5 (2 + .5 * 7 - 2) = 1.75; A_0 = 1 + .5 * 3.375 - 1 = 1.6875
    ratio = [[CLIPPED], [HALF], [SAME]]
    advantage, returns = estimate([[1], [2], [3]], [[0], [0], [0]], [[1], [2], [4]], [8], ratio)
    assert advantage == pytest.approx([1.6875, 1.75, 3.0], rel=1e-6)
    assert returns == pytest.approx([2.34375, 3.375, 7.0], rel=1e-6)


def test_a_time_out_by_hand():
    # r_1 = 2 + .5 * 2 = 3 and nothing follows: v_1 - V_1 = .5 (3 - 2) = .5 = A_1; v_0 - V_0 = 1 + .25 * .5.
    ratio = [[SAME], [HALF], [SAME]]
    advantage, returns = estimate([[1], [2], [3]], [[0], [1], [0]], [[1], [2], [4]], [8], ratio)
    assert advantage == pytest.approx([1.25, 0.5, 3.0], rel=1e-6)
    assert returns == pytest.approx([2.125, 2.5, 7.0], rel=1e-6)


def test_on_policy_the_targets_are_the_returns_of_gae():
    generator = torch.Generator().manual_seed(3)
    reward, value = (torch.randn(12, 32, generator=generator) for _ in range(2))
    terminated, truncated = (torch.rand(12, 32, generator=generator) < 0.1 for _ in range(2))
    given = {
        "reward": reward,
        "terminated": terminated,
        "truncated": truncated & ~terminated,
        "value": value,
        "bootstrap": torch.randn(32, generator=generator),
    }
    settings = {"horizon": 12, "num_env": 32, "gamma": 0.97, "lam": 0.9, "reward_scale": 0.5}
    ours, gae = VTraceEstimator(**settings), AdvantageEstimator(**settings)
    ours.compute(**given, log_ratio=torch.zeros(12, 32))
    gae.compute(**given)
    torch.testing.assert_close(ours.returns, gae.returns, rtol=1e-5, atol=1e-5)
