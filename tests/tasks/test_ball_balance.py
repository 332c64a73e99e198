import math

import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.ball_balance import BallBalance

TRAY = [0.0, 0.0, 0.56, 1.0, 0.0, 0.0, 0.0]


@pytest.fixture
def task():
    return make_task(BallBalance, 1)


def state(task, ball=(0.0, 0.0, 0.7), velocity=(0.0, 0.0, 0.0), legs=(0.0,) * 6, rates=(0.0,) * 6, **rest):
    return snapshot(task, [*TRAY, *legs, *ball, 1, 0, 0, 0], [*(0.0,) * 6, *rates, *velocity, 9, 9, 9], **rest)


def test_observation(task):
    legs, rates = [9, 0.1, 9, 0.2, 9, 0.3], [9, 1, 9, 2, 9, 3]  # upper legs, marked 9, are not observed
    tray = [float(number) for number in range(12)]
    obs = observation(
        task, state(task, ball=[0.4, -0.3, 0.9], velocity=[1, 2, -3], legs=legs, rates=rates, sensordata=tray)
    )
    expected = [0.1, 0.2, 0.3, 1, 2, 3, 0.4, -0.3, 0.9, 1, 2, -3, *(number / 20 for number in range(12))]
    torch.testing.assert_close(obs, torch.tensor(expected))


def test_a_ball_at_rest_in_the_goal_earns_1(task):
    assert verdict(task, state(task)) == (pytest.approx(1.0), False)


def test_distance_and_speed_divide_the_reward(task):
    # Distance (0.3, 0.4, 0) is 0.5, speed (0, 2, 1) is sqrt(5).
    reward, ends = verdict(task, state(task, ball=[0.3, 0.4, 0.7], velocity=[0, 2, 1]))
    assert (reward, ends) == (pytest.approx(1 / 1.5 / (1 + math.sqrt(5))), False)


@pytest.mark.parametrize(("height", "ends"), [(0.14, True), (0.16, False)])
def test_a_ball_below_0_15_metres_is_lost(task, height, ends):
    assert verdict(task, state(task, ball=[0, 0, height]))[1] is ends


def test_actions_move_the_servo_targets_within_the_limits():
    task = make_task(BallBalance, 1)
    task.reset()
    task.apply(torch.tensor([[1.0, -0.5, 0.0]]))
    torch.testing.assert_close(task.engine.ctrl[0], torch.tensor([0.2, -0.1, 0.0]))
    for _ in range(20):
        task.apply(torch.tensor([[1.0, -0.5, 0.0]]))
    torch.testing.assert_close(task.engine.ctrl[0], torch.tensor([math.radians(90), math.radians(-70), 0.0]))


def test_start_distribution():
    task = make_task(BallBalance, 8192)
    task.reset()
    qpos, qvel = task.engine.qpos, task.engine.qvel
    ball, velocity = qpos[:, 13:16], qvel[:, 12:15]
    distance = ball[:, :2].norm(dim=1)
    assert distance.min() >= 0.001 and distance.max() <= 0.5
    assert float(distance.mean()) == pytest.approx(0.2505, abs=0.005)
    assert ball[:, 2].min() >= 1.0 and ball[:, 2].max() <= 2.0
    assert float(ball[:, 2].mean()) == pytest.approx(1.5, abs=0.01)
    assert ball[:, :2].mean(0).abs().max() < 0.01  # every direction alike
    assert (velocity[:, 2] == -5.0).all() and (qvel[:, :12] == 0).all() and (qvel[:, 15:] == 0).all()
    # Straight towards the axis, at 0..5 m/s times the distance's fraction of its range.
    inward = -(velocity[:, :2] * ball[:, :2]).sum(1) / distance
    across = velocity[:, 0] * ball[:, 1] - velocity[:, 1] * ball[:, 0]
    assert across.abs().max() < 1e-6
    ratio = inward / ((distance - 0.001) / 0.499)
    assert ratio.min() > -1e-3 and ratio.max() < 5.0 + 1e-3
    assert float(ratio.mean()) == pytest.approx(2.5, abs=0.05)
    at_rest = torch.tensor(task.engine.model.qpos0[:13], dtype=torch.float32)
    torch.testing.assert_close(qpos[:, :13], at_rest.expand(8192, 13))


def test_the_tray_stands_and_the_ball_lies_on_it():
    task = make_task(BallBalance, 1)
    task.reset()
    rest = torch.tensor(task.engine.model.qpos0, dtype=torch.float32).unsqueeze(0)
    task.engine.write(torch.tensor([0]), rest, torch.zeros(1, 18))
    for _ in range(200):
        out = task.step({"action": torch.zeros(1, 3)})
    obs = out["obs"][0]
    # Half the tray's thickness and the ball's radius above the tray, which sags by less than a millimetre.
    assert float(task.engine.qpos[0, 2]) == pytest.approx(0.5591, abs=1e-3)
    assert float(obs[8]) == pytest.approx(0.5591 + 0.01 + 0.1, abs=2e-3)
    assert obs[9:12].abs().max() < 1e-2
    # The force between plate and hub carries plate and ball.
    weight = 9.81 * (math.pi * 0.5**2 * 0.02 * 100 + 4 / 3 * math.pi * 0.1**3 * 200)
    assert 20 * float(obs[12:15].norm()) == pytest.approx(weight, rel=1e-2)
