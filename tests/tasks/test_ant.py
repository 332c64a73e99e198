import math

import pytest
import torch
from task_support import make_task, observation, snapshot, verdict

from gmiflow.tasks.ant import Ant

UPRIGHT = [1.0, 0.0, 0.0, 0.0]
REST = [0.0, math.radians(65.0)] * 4
DT = 0.0166


@pytest.fixture
def task():
    return make_task(Ant, 1)


def turned(axis, degrees):
    half = math.radians(degrees) / 2
    return [math.cos(half), *(math.sin(half) * component for component in axis)]


def state(
    task, position=(0.0, 0.0, 0.5), quaternion=UPRIGHT, joints=REST, velocity=(0.0,) * 6, rates=(0.0,) * 8, **rest
):
    return snapshot(task, [*position, *quaternion, *joints], [*velocity, *rates], **rest)


def test_torso_turned_left_by_a_quarter(task):
    obs = observation(task, state(task, quaternion=turned((0, 0, 1), 90), velocity=[1, 2, 3, 0.1, 0.2, 0.3]))
    # Ahead is +y and left is -x of the world; angular velocity is in the torso's frame already.
    expected = [0.5, 2, -1, 3, 0.1, 0.2, 0.3, math.pi / 2, 0, -math.pi / 2, 1, 0]
    torch.testing.assert_close(obs[:12], torch.tensor(expected), atol=1e-6, rtol=1e-6)


def test_torso_rolled_by_30_degrees(task):
    obs = observation(
        task, state(task, position=(0, 0, 0.6), quaternion=turned((1, 0, 0), 30), velocity=[0, 0, 1, 0, 0, 0])
    )
    expected = [0.6, 0, 0.5, math.sqrt(3) / 2, 0, 0, 0, 0, math.pi / 6, 0, math.sqrt(3) / 2, 1]
    torch.testing.assert_close(obs[:12], torch.tensor(expected), atol=1e-6, rtol=1e-6)


def test_the_target_is_seen_from_where_the_torso_is(task):
    obs = observation(task, state(task, position=(0, -1000, 0.5)))
    assert float(obs[9]) == pytest.approx(math.pi / 4)
    assert float(obs[11]) == pytest.approx(math.sqrt(0.5))


def test_the_angle_to_the_target_never_jumps_by_a_turn(task):
    obs = observation(task, state(task, position=(0, -1000, 0.5), quaternion=turned((0, 0, 1), -170)))
    assert float(obs[7]) == pytest.approx(math.radians(-170))
    assert float(obs[9]) == pytest.approx(math.radians(-145))  # 45 + 170 = 215 degrees


def test_joint_positions_are_scaled_by_their_limits(task):
    degrees = [-40, 30, 0, 65, 20, 100, 40, 47.5]
    obs = observation(task, state(task, joints=[math.radians(angle) for angle in degrees]))
    expected = torch.tensor([-1, -1, 0, 0, 0.5, 1, 1, -0.5])
    torch.testing.assert_close(obs[12:20], expected, atol=1e-6, rtol=0)


def test_rates_feet_and_action_are_scaled(task):
    feet = [float(number) for number in range(24)]
    action = [0.1 * number for number in range(8)]
    obs = observation(task, state(task, rates=range(8), sensordata=feet, action=action))
    torch.testing.assert_close(obs[20:28], 0.2 * torch.arange(8.0))
    torch.testing.assert_close(obs[28:52], 0.1 * torch.arange(24.0))
    torch.testing.assert_close(obs[52:60], torch.tensor(action))


def test_standing_still_and_upright(task):
    # Alive 0.5, upright 0.1, turned to the target 0.5.
    assert verdict(task, state(task)) == (pytest.approx(1.1), False)


def test_progress_is_speed_towards_the_target(task):
    assert verdict(task, state(task, position=(2 * DT, 0, 0.5)))[0] == pytest.approx(1.1 + 2.0, rel=1e-6)
    # The position is remembered: standing still afterwards is no progress; going back is negative.
    assert verdict(task, state(task, position=(2 * DT, 0, 0.5)))[0] == pytest.approx(1.1, rel=1e-6)
    assert verdict(task, state(task, position=(0, 0, 0.5)))[0] == pytest.approx(1.1 - 2.0, rel=1e-6)


def test_progress_keeps_its_digits_far_from_the_start(task):
    """In float32, 60,000 - 60,000 would be off by up to 0.004."""
    verdict(task, state(task, position=(300.0, 40.0, 0.5)))
    moved = torch.tensor(300.0 + DT) - torch.tensor(300.0)  # what float32 can hold of the step

    def distance(x):
        return math.hypot(1000.0 - x, 40.0)

    expected = (distance(300.0) - distance(300.0 + float(moved))) / DT
    angle_reward = 1.1
    assert verdict(task, state(task, position=(300.0 + DT, 40.0, 0.5)))[0] == pytest.approx(
        expected + angle_reward, abs=2e-5
    )


def test_heading_below_the_threshold_is_rewarded_in_proportion(task):
    degrees = math.degrees(math.acos(0.4))
    assert verdict(task, state(task, quaternion=turned((0, 0, 1), degrees)))[0] == pytest.approx(0.6 + 0.25, abs=1e-5)
    assert verdict(task, state(task, quaternion=turned((0, 0, 1), 180.0)))[0] == pytest.approx(0.6 - 0.625, abs=1e-5)


@pytest.mark.parametrize(("projection", "upright"), [(0.935, 0.1), (0.925, 0.0)])
def test_upright_is_above_0_93(task, projection, upright):
    degrees = math.degrees(math.acos(projection))
    assert verdict(task, state(task, quaternion=turned((1, 0, 0), degrees)))[0] == pytest.approx(
        1.0 + upright, abs=1e-5
    )


def test_effort_and_energy_cost(task):
    action = [1.0, -0.5, 0, 0, 0, 0, 0, 0]
    rates = [3.0, 4.0, 9, 0, 0, 0, 0, 0]
    # 0.005 (1 + 0.25) + 0.05 (|1 x 0.6| + |-0.5 x 0.8|)
    assert verdict(task, state(task, action=action, rates=rates))[0] == pytest.approx(1.1 - 0.00625 - 0.05)


def test_each_joint_above_its_limit_costs(task):
    joints = [math.radians(angle) for angle in (40, 100, -40, 30, 39, 65, 0, 65)]
    # Two at the upper limit; the lower limit and 39 of 40 degrees cost nothing.
    assert verdict(task, state(task, joints=joints))[0] == pytest.approx(1.1 - 0.2)


@pytest.mark.parametrize(("height", "result"), [(0.305, (-2.0, True)), (0.315, (pytest.approx(1.1), False))])
def test_falling_below_0_31_ends_with_minus_2(task, height, result):
    assert verdict(task, state(task, position=(0, 0, height))) == result


def test_start_distribution():
    task = make_task(Ant, 4096)
    task.reset()
    qpos, qvel = task.engine.qpos, task.engine.qvel
    assert qpos[:, :7].unique(dim=0).tolist() == [[0, 0, pytest.approx(0.44), 1, 0, 0, 0]]
    assert (qvel[:, :6] == 0).all()
    hips, ankles, rates = qpos[:, 7::2], qpos[:, 8::2], qvel[:, 6:]
    low = math.radians(30.0)
    assert hips.min() >= -0.2 and hips.max() <= 0.2 and abs(float(hips.mean())) < 0.005
    assert float(hips.std()) == pytest.approx(0.4 / math.sqrt(12), rel=0.02)
    # Half of the ankles would start beyond their limit and are put on it.
    assert ankles.min() == pytest.approx(low) and ankles.max() <= low + 0.2
    assert float((ankles <= low + 1e-6).float().mean()) == pytest.approx(0.5, abs=0.02)
    assert rates.abs().max() <= 0.1 and float(rates.std()) == pytest.approx(0.2 / math.sqrt(12), rel=0.02)


def test_it_stands_on_its_feet_when_relaxed():
    task = make_task(Ant, 8)
    task.reset()
    for _ in range(300):
        out = task.step({"action": torch.zeros(8, 8)})
        assert not out["terminated"].any()
    assert (task.engine.qvel.abs() < 1e-2).all()
    # Four feet carry the weight: the vertical forces at the feet add up to it, less the lower legs' own weight.
    weight = 9.81 * float(task.engine.model.body_subtreemass[1])
    forces = task.engine.derived["sensordata"].view(8, 4, 2, 3)[:, :, 0]
    assert (forces.norm(dim=2).sum(1) > 0.5 * weight).all()
