"""Advantages and returns against numbers worked out by hand and a float64 recursion."""

import torch

from gmiflow.rl.returns import AdvantageEstimator


def estimate(reward, terminated, truncated, value, bootstrap, **settings):
    reward = torch.as_tensor(reward, dtype=torch.float32)
    horizon, num_env = reward.shape
    settings = {"gamma": 0.5, "lam": 0.5, **settings}
    estimator = AdvantageEstimator(horizon=horizon, num_env=num_env, **settings)
    estimator.compute(
        reward=reward,
        terminated=torch.as_tensor(terminated, dtype=torch.bool),
        truncated=torch.as_tensor(truncated, dtype=torch.bool),
        value=torch.as_tensor(value, dtype=torch.float32),
        bootstrap=torch.as_tensor(bootstrap, dtype=torch.float32),
    )
    return estimator.advantage, estimator.returns


def test_three_steps_without_an_end():
    # delta_2 = 3 + .5 * 8 - 4 = 3;     A_2 = 3
    # delta_1 = 2 + .5 * 4 - 2 = 2;     A_1 = 2 + .25 * 3 = 2.75
    # delta_0 = 1 + .5 * 2 - 1 = 1;     A_0 = 1 + .25 * 2.75 = 1.6875
    advantage, returns = estimate([[1], [2], [3]], [[0], [0], [0]], [[0], [0], [0]], [[1], [2], [4]], [8])
    assert advantage.flatten().tolist() == [1.6875, 2.75, 3.0]
    assert returns.flatten().tolist() == [2.6875, 4.75, 7.0]


def test_termination_cuts_the_future():
    # Ends after step 1: delta_1 = 2 - 2 = 0, A_1 = 0; step 2 is a new episode.
    advantage, returns = estimate([[1], [2], [3]], [[0], [1], [0]], [[0], [0], [0]], [[1], [2], [4]], [8])
    assert advantage.flatten().tolist() == [1.0, 0.0, 3.0]
    assert returns.flatten().tolist() == [2.0, 2.0, 7.0]


def test_time_out_adds_the_discounted_value_of_the_step():
    # As above, but cut: r_1 = 2 + .5 * 2 = 3, delta_1 = 3 - 2 = 1 = A_1, A_0 = 1 + .25 * 1.
    advantage, returns = estimate([[1], [2], [3]], [[0], [0], [0]], [[0], [1], [0]], [[1], [2], [4]], [8])
    assert advantage.flatten().tolist() == [1.25, 1.0, 3.0]
    assert returns.flatten().tolist() == [2.25, 3.0, 7.0]


def test_time_out_in_the_last_step_ignores_the_bootstrap():
    # The bootstrap is the value of a state that was already reset.
    advantage, _ = estimate([[3]], [[0]], [[1]], [[4]], [800])
    assert advantage.tolist() == [[3.0 + 0.5 * 4.0 - 4.0]]


def test_reward_scale_does_not_scale_the_value():
    advantage, _ = estimate([[300]], [[0]], [[0]], [[4]], [8], reward_scale=0.01)
    assert advantage.tolist() == [[3.0 + 4.0 - 4.0]]


def test_equals_the_definition_in_float64_on_random_input():
    generator = torch.Generator().manual_seed(0)
    horizon, num_env, gamma, lam, scale = 24, 37, 0.99, 0.95, 0.1
    reward, value = torch.randn(2, horizon, num_env, generator=generator)
    bootstrap = torch.randn(num_env, generator=generator)
    ends = torch.rand(2, horizon, num_env, generator=generator) < 0.1
    advantage, returns = estimate(
        reward, ends[0], ends[1] & ~ends[0], value, bootstrap, gamma=gamma, lam=lam, reward_scale=scale
    )
    expected = torch.zeros(horizon, num_env, dtype=torch.float64)
    for env in range(num_env):
        following, running = float(bootstrap[env]), 0.0
        for step in reversed(range(horizon)):
            now, cut = float(value[step, env]), bool(ends[1, step, env] and not ends[0, step, env])
            alive = not (ends[0, step, env] or cut)
            delta = scale * float(reward[step, env]) + gamma * now * cut + gamma * following * alive - now
            running = delta + gamma * lam * alive * running
            expected[step, env], following = running, now
    torch.testing.assert_close(advantage.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(returns.double(), expected + value.double(), rtol=1e-5, atol=1e-5)
