import math

import mujoco
import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.cartpole import CartPole, CartPoleSwingUp


def test_balance_observes_cart_and_pole():
    task = make_task(CartPole)
    state = snapshot(task, [0.5, 0.1], [-2.0, 3.0])
    torch.testing.assert_close(observation(task, state), torch.tensor([0.5, -2.0, 0.1, 3.0]))


@pytest.mark.parametrize(
    ("position", "degrees", "ends"),
    [(0.0, 11.9, False), (0.0, -12.1, True), (0.0, 12.1, True), (2.39, 0.0, False), (-2.41, 0.0, True)],
)
def test_balance_ends_beyond_12_degrees_or_2_4_metres(position, degrees, ends):
    task = make_task(CartPole)
    assert verdict(task, snapshot(task, [position, math.radians(degrees)])) == (1.0, ends)


def test_swing_up_observes_cosine_and_sine():
    task = make_task(CartPoleSwingUp)
    state = snapshot(task, [0.5, math.pi / 6], [-2.0, 3.0])
    expected = torch.tensor([0.5, -2.0, math.sqrt(3) / 2, 0.5, 3.0])
    torch.testing.assert_close(observation(task, state), expected)


@pytest.mark.parametrize(
    ("degrees", "action", "reward"),
    [(0.0, 0.0, 1.0), (180.0, 0.0, 0.0), (60.0, 0.5, 0.75 - 0.00025), (90.0, -1.0, 0.499)],
)
def test_swing_up_rewards_height_less_effort(degrees, action, reward):
    task = make_task(CartPoleSwingUp)
    state = snapshot(task, [0.0, math.radians(degrees)], action=[action])
    assert verdict(task, state) == (pytest.approx(reward, abs=1e-6), False)


@pytest.mark.parametrize(("position", "ends"), [(2.39, False), (2.41, True), (-2.41, True)])
def test_swing_up_ends_only_at_the_ends_of_the_track(position, ends):
    task = make_task(CartPoleSwingUp)
    assert verdict(task, snapshot(task, [position, 3.0]))[1] is ends


@pytest.mark.parametrize(("angle", "velocity", "action"), [(0.1, 0.0, 0.0), (0.0, 0.0, 1.0), (-0.15, 0.8, -0.4)])
def test_accelerations_are_those_of_barto_sutton_and_anderson(angle, velocity, action):
    """Closed form of the frictionless cart and uniform pole (IEEE Trans. SMC 13, 1983)."""
    cart, pole, half, gravity, force = 1.0, 0.1, 0.5, 9.81, 10.0 * action
    common = (force + pole * half * velocity**2 * math.sin(angle)) / (cart + pole)
    angular = (gravity * math.sin(angle) - math.cos(angle) * common) / (
        half * (4.0 / 3.0 - pole * math.cos(angle) ** 2 / (cart + pole))
    )
    linear = common - pole * half * angular * math.cos(angle) / (cart + pole)

    model = make_task(CartPole, 1).engine.model
    data = mujoco.MjData(model)
    data.qpos[1], data.qvel[1], data.ctrl[0] = angle, velocity, action
    mujoco.mj_forward(model, data)
    assert data.qacc == pytest.approx([linear, angular], rel=1e-5)


def test_a_perfect_episode_returns_500():
    """Held upright by a hand-made controller, the episode is truncated after 500 steps of reward 1."""
    task = make_task(CartPole, 16)
    obs = task.reset()["obs"]
    total = torch.zeros(16)
    gain = torch.tensor([0.3, 0.6, 8.0, 2.0])
    for step in range(1, 501):
        out = task.step({"action": (obs @ gain).unsqueeze(1)})
        obs = out["obs"]
        total += out["reward"]
        assert not out["terminated"].any()
        assert bool(out["truncated"].all()) is (step == 500)
        assert bool(out["truncated"].any()) is (step == 500)
    assert total.tolist() == [500.0] * 16


def test_the_swinging_pole_keeps_its_energy_and_momentum():
    """Released from the horizontal without a force: nothing dissipates, nothing pushes sideways."""
    model = make_task(CartPoleSwingUp, 1).engine.model
    data = mujoco.MjData(model)
    data.qpos[1] = math.pi / 2
    swing = 0.1 * 9.81 * 0.5 * 2.0  # J between the pole's highest and lowest place
    for _ in range(1000):
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        assert data.energy.sum() == pytest.approx(0.0, abs=0.03 * swing)  # the pole's middle starts at height 0
        momentum = 1.1 * data.qvel[0] + 0.1 * 0.5 * math.cos(data.qpos[1]) * data.qvel[1]
        assert momentum == pytest.approx(0.0, abs=0.05)  # kg m/s; the pole's own reaches 0.3
