import math

import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.humanoid import Humanoid

UPRIGHT = [1.0, 0.0, 0.0, 0.0]
# In the order of the model: abdomen z y x; per leg hip x z y, knee, ankle y x; per arm two shoulders, elbow.
GEARS = [67.5] * 3 + 2 * [45, 45, 135, 90, 22.5, 22.5] + 2 * [67.5, 67.5, 45]
STANDING = 2.0 + 0.1 + 0.5
DT = 0.0166


@pytest.fixture
def task():
    return make_task(Humanoid, 1)


@pytest.fixture
def middle(task):
    """Every joint in the middle of its range."""
    return task.engine.model.jnt_range[1:].mean(axis=1).tolist()


def state(task, joints, height=1.3, velocity=(0.0,) * 6, rates=(0.0,) * 21, x=0.0, **rest):
    return snapshot(task, [x, 0.0, height, *UPRIGHT, *joints], [*velocity, *rates], **rest)


def test_motor_gears(task):
    assert task.engine.model.actuator_gear[:, 0].tolist() == GEARS
    assert sum(task.engine.model.body_mass) == pytest.approx(40.0, abs=2.0)


def test_torso_is_observed_with_its_spin_scaled(task, middle):
    obs = observation(task, state(task, middle, velocity=[1, 2, 3, 4, 8, -12]))
    torch.testing.assert_close(obs[:12], torch.tensor([1.3, 1, 2, 3, 1, 2, -3, 0, 0, 0, 1, 1]))


def test_joints_are_observed_with_their_scales(task, middle):
    limits = task.engine.model.jnt_range[1:]
    joints = [*limits[:10, 1], *limits[10:20, 0], middle[20]]
    obs = observation(task, state(task, joints, rates=range(21)))
    torch.testing.assert_close(obs[12:33], torch.tensor([1.0] * 10 + [-1.0] * 10 + [0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(obs[33:54], 0.1 * torch.arange(21.0))


def test_joint_forces_add_motors_springs_and_constraints(task, middle):
    fields = {
        "qfrc_actuator": [7.0] * 6 + [float(joint) for joint in range(21)],
        "qfrc_passive": [7.0] * 6 + [100.0] * 21,
        "qfrc_constraint": [7.0] * 6 + [-30.0] * 21,
    }
    obs = observation(task, state(task, middle, **fields))
    torch.testing.assert_close(obs[54:75], 0.01 * (torch.arange(21.0) + 70.0))


def test_feet_and_action(task, middle):
    action = [0.04 * joint for joint in range(21)]
    obs = observation(task, state(task, middle, sensordata=[float(n) for n in range(12)], action=action))
    torch.testing.assert_close(obs[75:87], 0.01 * torch.arange(12.0))
    torch.testing.assert_close(obs[87:108], torch.tensor(action))


def test_standing_and_running(task, middle):
    assert verdict(task, state(task, middle)) == (pytest.approx(STANDING), False)
    assert verdict(task, state(task, middle, x=3 * DT))[0] == pytest.approx(STANDING + 3.0)


def test_energy_is_weighted_by_the_gear(task, middle):
    action, rates = [0.0] * 21, [0.0] * 21
    action[5], rates[5] = 1.0, -20.0  # right hip y, gear 135
    action[7], rates[7] = -0.5, 40.0  # right ankle y, gear 22.5
    cost = 0.01 * 1.25 + 0.05 * (1.0 * 2.0 * 1.0 + 0.5 * 4.0 * 22.5 / 135)
    assert verdict(task, state(task, middle, action=action, rates=rates))[0] == pytest.approx(STANDING - cost, rel=1e-5)


def test_limits_cost_from_0_98_on_both_sides(task, middle):
    limits = task.engine.model.jnt_range[1:]
    joints = list(middle)
    half = (limits[:, 1] - limits[:, 0]) / 2
    joints[0] = middle[0] + 0.99 * half[0]  # abdomen z: half way from 0.98 to 1
    joints[6] = middle[6] - 1.00 * half[6]  # right knee: at its limit
    joints[20] = middle[20] + 0.97 * half[20]  # left elbow: below the threshold
    cost = 0.25 * (0.5 * 67.5 / 135 + 1.0 * 90 / 135)
    assert verdict(task, state(task, joints))[0] == pytest.approx(STANDING - cost, abs=1e-4)


@pytest.mark.parametrize(("height", "result"), [(0.79, (-1.0, True)), (0.81, (pytest.approx(STANDING), False))])
def test_falling_below_0_8_ends_with_minus_1(task, middle, height, result):
    assert verdict(task, state(task, middle, height=height)) == result


def test_start_distribution():
    task = make_task(Humanoid, 2048)
    task.reset()
    qpos, qvel = task.engine.qpos, task.engine.qvel
    assert qpos[:, :7].unique(dim=0).tolist() == [[0, 0, pytest.approx(1.34), 1, 0, 0, 0]]
    assert (qvel[:, :6] == 0).all() and qvel[:, 6:].abs().max() <= 0.1
    knees = qpos[:, [7 + 6, 7 + 12]]
    highest = math.radians(-2.0)
    assert knees.max() == pytest.approx(highest) and knees.min() >= highest - 0.2
    free = torch.ones(21, dtype=torch.bool)
    free[[6, 12]] = False
    others = qpos[:, 7:][:, free]
    assert others.abs().max() <= 0.2 and abs(float(others.mean())) < 0.005


def test_it_comes_to_stand_on_both_feet():
    """Dropped from the start height it lands on its soles, which carry most of its weight until it topples."""
    task = make_task(Humanoid, 32)
    task.reset()
    loads = []
    for _ in range(25):
        out = task.step({"action": torch.zeros(32, 21)})
        assert not out["terminated"].any()
        feet = task.engine.derived["sensordata"].view(32, 2, 2, 3)[:, :, 0]
        loads.append(float(feet.norm(dim=2).sum(1).mean()))
    assert (out["obs"][:, 10] > 0.85).all()
    weight = 9.81 * float(task.engine.model.body_subtreemass[1])
    assert sum(loads[10:]) / 15 == pytest.approx(weight, rel=0.35)
